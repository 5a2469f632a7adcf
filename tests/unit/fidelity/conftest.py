from collections.abc import Callable
from pathlib import Path

import pytest

from asking import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(scope="session")
def new_desk(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Desk]:
    """For property tests, which need a new one for every example."""
    return lambda: Desk(tmp_path_factory.getbasetemp())
