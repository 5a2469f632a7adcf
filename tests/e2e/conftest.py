"""Real processes on a data folder of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from running import Running


@pytest.fixture
def make_running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Makes a `Running` that is not started yet; whatever is left of it is killed at the end of the test."""
    made: list[Running] = []

    def make(**settings: object) -> Running:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        made.append(Running(tmp_path / f"running{len(made)}", settings=named))
        return made[-1]

    yield make
    for running in made:
        running.close()
