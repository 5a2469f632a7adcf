"""Trying again when the store has moved on while an answer was computed."""

from collections.abc import Callable
from typing import TypeVar

from tallymark.store.protocol import SnapshotOutdated

MOST_TRIES = 4

_Made = TypeVar("_Made")


def of_a_moment(make: Callable[[], _Made]) -> _Made:
    """The result of `make`, run again with a new snapshot if the store no longer has the one it began with.

    Only for reads, since `make` may run several times.
    """
    for _ in range(MOST_TRIES - 1):
        try:
            return make()
        except SnapshotOutdated:
            pass
    return make()
