"""Stored windows: what saved queries found in each of their windows, and how far each query has come.

Queries are divided into shares, so that several keepers can evaluate them, each the shares whose leases it holds. No
Polars here: what a window holds is the business of `evaluation`.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

SHARES = 16
"""fixed: a query belongs to the same share wherever it is evaluated"""


def share_of(tenant: str, name: str) -> int:
    return zlib.crc32(f"{tenant}/{name}".encode()) % SHARES


@dataclass(frozen=True, slots=True)
class Lineage:
    """The windows of one text of a saved query. Another text, or version of its meter, begins another lineage."""

    lineage_id: int
    """chosen at random, so that no two lineages ever share a window"""
    tenant: str
    name: str
    digest: str
    """of what is asked: text, zone and version of the meter"""
    group_s: int
    """windows that start within so many seconds are kept together"""
    from_s: int
    """start of the first window"""
    next_s: int
    """start of the first window that is not stored yet"""
    due_s: int
    """end of that window: when it can be stored"""
    through_s: int = 0
    """end of the last stored window; 0 if there is none"""
    windows: int = 0
    """how many are stored"""
    stale_s: int = 0
    stale_until_s: int = 0
    """windows that start in between may lack late events, and are computed again"""
    problem: str = ""
    """why it cannot be evaluated"""
    dropped: bool = False
    """its windows are being deleted"""

    @property
    def share(self) -> int:
        return share_of(self.tenant, self.name)


@dataclass(frozen=True, slots=True)
class Share:
    """How far one share of the queries has come."""

    sequence: int
    """of the last batch of the journal that is looked at: what came before is in the stored windows"""
    lineages: Sequence[Lineage] = ()
    epoch: int = 0
    """a higher one each time somebody takes the share over"""


@dataclass(frozen=True, slots=True)
class StoredWindow:
    lineage: Lineage
    start_s: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ShareChange:
    """What a round of evaluation changes in one share."""

    share: int
    at: int
    """the last batch of the journal that these windows were computed from: a later value is never replaced by theirs"""
    sequence: int | None = None
    """None leaves it"""
    lineages: Sequence[Lineage] = ()
    """new ones, and those that have changed"""
    gone: Sequence[int] = ()
    """ids of lineages whose windows are all deleted"""
    windows: Sequence[StoredWindow] = field(default_factory=tuple)
    epoch: int = 0
    """of the share as it was read: what was decided before another one had it is refused"""
