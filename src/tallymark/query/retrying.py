"""Asking again when the store moved on while an answer was made."""

from collections.abc import Callable
from typing import TypeVar

from tallymark.store.protocol import SnapshotOutdated

MOST_TRIES = 4

_Made = TypeVar("_Made")


def of_a_moment(make: Callable[[], _Made]) -> _Made:
    """What `make` gives; of a new moment when the store no longer has the one that it began with.

    Only for what changes nothing: it may be done several times.
    """
    for _ in range(MOST_TRIES - 1):
        try:
            return make()
        except SnapshotOutdated:
            pass
    return make()
