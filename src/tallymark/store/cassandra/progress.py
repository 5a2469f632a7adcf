"""How far folding and rolling are: the single values of the book of points."""

from collections.abc import Iterable

import msgspec

from tallymark.store.cassandra.book import Head, Key
from tallymark.store.folding import Bucket
from tallymark.store.grains import DAY_S, EARLIEST_S, HOUR_S, LATEST_S, MINUTE_S

UNROLLED = "unrolled"
"""kind of the rows (grain, bucket): coarse buckets that hold finer points not yet rolled"""


def unrolled_rows(buckets: Iterable[Bucket]) -> dict[Key, bytes]:
    return {(UNROLLED, grain_s, bucket_s): b"" for grain_s, bucket_s in buckets}


class Rolling(msgspec.Struct, frozen=True, array_like=True):
    """A bucket being rolled: it is done up to this shard of this meter."""

    bucket_s: int
    meter: int
    shard: int


class Progress(msgspec.Struct, frozen=True):
    """What counts is what was written by changes up to `mark`."""

    mark: int = 0
    folded: int = 0
    folding: int | None = None
    """the fold under way as change `mark + 1` takes batches up to this one; whoever goes on takes exactly these"""
    rolled: dict[int, int] = {}
    """by grain, as in `Marks`"""
    first_s: int = LATEST_S
    last_s: int = EARLIEST_S
    meters: tuple[int, ...] = ()
    """those that have points"""
    rolling: dict[int, Rolling] = {}
    """by grain"""

    def with_through(self, grain_s: int, through: int) -> "Progress":
        return msgspec.structs.replace(self, rolled=self.rolled | {grain_s: through})

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


class _Progress2(msgspec.Struct, frozen=True):
    """What format 1 and 2 had instead of `rolled`."""

    hours_through: int = EARLIEST_S
    days_through: int = EARLIEST_S


def progress(head: Head) -> Progress:
    found = head.read_facts(Progress)
    if not found.rolled:
        old = head.read_facts(_Progress2)
        rolled = {HOUR_S: old.hours_through, DAY_S: old.days_through}
        found = msgspec.structs.replace(found, rolled=rolled)
    if MINUTE_S not in found.rolled:
        # Until format 5 nothing was finer, so that no minute was left to be rolled.
        found = found.with_through(MINUTE_S, found.rolled[HOUR_S])
    return found
