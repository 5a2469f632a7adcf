from collections.abc import Iterator

import pytest

from scripted_server import Scripted, running


@pytest.fixture
def server() -> Iterator[Scripted]:
    with running() as server:
        yield server
