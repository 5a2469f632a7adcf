"""Point sets: what a store must know of each to keep its points."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tallymark.meters.model import OTHER, Meter
from tallymark.store.deltas import SEPARATOR
from tallymark.store.grains import MINUTE_S
from tallymark.store.model import DROPPED

Definitions = Iterable[tuple[int, Meter]]
"""(set, a meter that has it)"""


@dataclass(frozen=True, slots=True)
class Limit:
    most: int
    """series that are admitted"""
    other: str
    """the series of all that are not; not counted among them"""


def base_grains(definitions: Definitions) -> dict[int, int]:
    """Set -> base grain, for those that are counted by less than a minute; what came late or was dropped, too."""
    fine = {set_id: meter.grain_s for set_id, meter in definitions if meter.grain_s < MINUTE_S}
    return {each: grain_s for set_id, grain_s in fine.items() for each in (set_id, -set_id, DROPPED - set_id)}


def series_limits(definitions: Definitions) -> dict[int, Limit]:
    """Of the sets that have one; what came late has its own series, and as many."""
    found: dict[int, Limit] = {}
    for set_id, meter in definitions:
        if meter.max_series is not None:
            limit = Limit(meter.max_series, SEPARATOR.join([OTHER] * len(meter.labels)))
            found |= {set_id: limit, -set_id: limit}
    return found


class PointSets:
    """Both, kept in memory: a set never changes them, so that they are read again only when one is new."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._grains: dict[int, int] = {}
        self._limits: dict[int, Limit] = {}

    def grains(self, sets: Collection[int], definitions: Callable[[], Definitions]) -> Mapping[int, int]:
        """Of at least these sets."""
        self._look_up(sets, definitions)
        return self._grains

    def limits(self, sets: Collection[int], definitions: Callable[[], Definitions]) -> Mapping[int, Limit]:
        """Of at least these sets."""
        self._look_up(sets, definitions)
        return self._limits

    def _look_up(self, sets: Collection[int], definitions: Callable[[], Definitions]) -> None:
        if not self._seen.issuperset(sets):
            found = list(definitions())
            # Added, not replaced: another thread, with a later snapshot, may have found more meanwhile.
            self._grains.update(base_grains(found))
            self._limits.update(series_limits(found))
            self._seen.update(sets)
