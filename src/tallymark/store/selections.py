"""Which metrics a meter with `keep: queried` stores, version by version.

A change of the selection is a version of the meter, so that it takes effect at a position in each partition. A version
notes only how its selection differs from the one before it: a thousand changes of a thousand metrics stay small.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Selection:
    """What saved queries select of one meter."""

    metrics: frozenset[str] = frozenset()
    every: bool = False
    """some query looks at all metrics"""
    as_of: int = 0
    """`Documents.changes` at the latest when the queries were read: what was read earlier does not replace it"""


@dataclass(frozen=True, slots=True)
class Step:
    """What a version changes about the selection, as it is kept."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    every: bool = False
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """The selection that is in force, and since when."""

    since_ms: Mapping[str, int] = field(default_factory=dict)
    """of each metric that is selected: since when it has been stored without a break"""
    every_since_ms: int | None = None
    """since when all of them are stored; None if only those selected are"""
    as_of: int = 0

    def __contains__(self, metric: object) -> bool:
        return self.every_since_ms is not None or metric in self.since_ms

    @property
    def selection(self) -> Selection:
        return Selection(frozenset(self.since_ms), self.every_since_ms is not None, self.as_of)

    def is_same(self, selection: Selection) -> bool:
        """Whether it stores the same, whenever the queries were read."""
        return replace(selection, as_of=self.as_of) == self.selection


def step(before: Kept | None, wanted: Selection) -> Step:
    """From the selection before, or from none, to the one wanted."""
    known = frozenset() if before is None else frozenset(before.since_ms)
    return Step(
        tuple(sorted(wanted.metrics - known)), tuple(sorted(known - wanted.metrics)), wanted.every, wanted.as_of
    )


def kept(steps: Iterable[tuple[int, Step | None]]) -> Kept | None:
    """What is stored after (moment, step) of versions that share their points; one without a step stores all."""
    found: Kept | None = None
    all_since_ms: int | None = None
    for at_ms, change in steps:
        if change is None or change.every:
            all_before_ms, all_since_ms = all_since_ms, at_ms if all_since_ms is None else all_since_ms
        else:
            all_before_ms, all_since_ms = all_since_ms, None
        if change is None:
            found = None
            continue
        # What was stored anyway, among all others, goes on without a break.
        begun_ms = at_ms if all_before_ms is None else all_before_ms
        since_ms = {} if found is None else dict(found.since_ms)
        for metric in change.removed:
            since_ms.pop(metric, None)
        since_ms |= dict.fromkeys(change.added, begun_ms)
        found = Kept(since_ms, all_since_ms if change.every else None, change.as_of)
    return found
