"""What passes between the pipeline, the store, the keeper and the query service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tallymark.aggregates.functions import kept_for
from tallymark.events.tenants import MAIN
from tallymark.ledger import Ledger as Ledger
from tallymark.meters.model import BUILT_IN, Meter
from tallymark.store.selections import Kept

DROPPED = -(2**30)
"""the set of what a meter dropped is so much minus the meter's; ids have 32 bits"""


class Added(NamedTuple):
    """Since when a function has been computed."""

    version: int
    at_ms: int
    """when that version was defined"""


@dataclass(frozen=True, slots=True)
class RegisteredMeter:
    """One version of a tenant's meter as the store knows it; `meter_id` stands for (tenant, name, version)."""

    meter_id: int
    version: int
    meter: Meter
    created_ms: int
    broken: str | None = None
    """why it stopped counting, if it did"""
    missed: int = 0
    """events that it, or a version that shares its points, would have looked at while it was broken: fresh ones with a
    name that it counts"""
    tenant: str = MAIN
    first_id: int = 0
    """`meter_id` of the first version that counted the same events in the same way; 0 if it is this one"""
    added: Mapping[str, Added] = field(default_factory=dict)
    """by what is kept (`Function.kept`), for what the first of these versions did not keep"""
    kept: Kept | None = None
    """the metrics that it stores, of a meter with `keep: queried`; None is all"""
    begun_ms: int | None = None
    """when the first version that has these points was defined; None if it is this one"""

    @property
    def set_id(self) -> int:
        """Whose points its numbers are, in deltas and points; versions share them as `Meter.continues` says."""
        return self.first_id or self.meter_id

    @property
    def late_set_id(self) -> int:
        """The set of what came late, of a meter that says what becomes of that."""
        return -self.set_id

    @property
    def dropped_set_id(self) -> int:
        """The set of the named numbers that it does not store because no saved query selects them: a mere count."""
        return DROPPED - self.set_id

    @property
    def stored_metrics(self) -> frozenset[str] | None:
        """The only named numbers that it stores; None for all."""
        return None if self.kept is None or self.kept.selection.every else self.kept.selection.metrics

    @property
    def counts_as(self) -> int | None:
        """What its deltas say in the column `version`: null for the first version that has these points."""
        return None if self.set_id == self.meter_id else self.version

    def added_for(self, name: str) -> Added | None:
        """Since when a function that it can be asked for has had all that it needs; None if from the beginning."""
        kept = kept_for([name], decimals=self.meter.decimals) if self.added else ()
        return max((self.added[part] for part in kept if part in self.added), default=None)

    @property
    def built_in(self) -> bool:
        """By its origin, not by its definition: that may be another in the next version."""
        begun_ms = self.created_ms if self.begun_ms is None else self.begun_ms
        return begun_ms == 0 and self.meter.name in BUILT_IN

    @property
    def labels(self) -> tuple[str, ...]:
        return self.meter.labels


def label_column(label: str) -> str:
    """The column of an answer that holds a label: prefixed, since a user may call a label `n` or `sum`."""
    return f"label.{label}"


@dataclass(frozen=True, slots=True)
class LiveMeters:
    """The meters that count at one revision of the registry: deleted, replaced and broken ones are not among them."""

    revision: int
    meters: tuple[RegisteredMeter, ...]
    broken: tuple[RegisteredMeter, ...] = ()
    """those that would count if they were not broken: what they miss is counted"""


MOST_LOOKED_AT = 10_000
"""dead letters that a store without an index of their kinds looks through for those of a reason"""
MAYBE_DUPLICATE = "maybe_duplicate"
"""reason of the letters whose events are in the ledger's `aside`, not in `dead`: nobody can tell if they count"""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something that could not be counted, kept with its reason so that it can be put back."""

    hop: str
    """`collector` or `pipeline`"""
    reason: str
    detail: str
    events: int
    raw: bytes
    at_ms: int
    partition: int = -1
    offset: int = -1
    tenant: str = MAIN


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """A dead letter that is kept, without what it holds."""

    letter_id: int
    hop: str
    reason: str
    detail: str
    events: int
    at_ms: int
    partition: int
    offset: int
    raw_bytes: int
    tenant: str = MAIN

    @classmethod
    def of(cls, letter_id: int, letter: DeadLetter) -> "LetterSummary":
        return cls(
            letter_id,
            letter.hop,
            letter.reason,
            letter.detail,
            letter.events,
            letter.at_ms,
            letter.partition,
            letter.offset,
            len(letter.raw),
            letter.tenant,
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of offsets of one partition: start <= offset < end."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of a partition that a meter did not count because it was broken: start <= offset < end."""

    partition: int
    start: int
    end: int
    missed: int
    """events, as in `RegisteredMeter.missed`"""


@dataclass(frozen=True, slots=True)
class StretchResult:
    """All that one task hands on for one stretch; exactly one a stretch, also when nothing was fresh."""

    stretch: Stretch
    log_identity: str
    meters_revision: int
    meter_ids: tuple[int, ...]
    """the meters that were live for this stretch"""
    deltas: bytes
    """`store.deltas.encode`; empty bytes if nothing was fresh, or if they were deposited"""
    ledger: Ledger
    received: Mapping[int, int] = field(default_factory=dict)
    """receipt time (ms, rounded down to 10) -> events: what the sink needs to state the lag"""
    dead: tuple[DeadLetter, ...] = ()
    broken: Mapping[int, str] = field(default_factory=dict)
    """meter_id -> error: the meter failed on this stretch and counted nothing of it"""
    buried: bool = False
    """the stretch is one record that kills its task: nobody must try to read it again"""
    deposit: str = ""
    """where the store keeps the deltas, if the task brought them there itself; counts once `Sink.apply` has named it"""
    missed: Mapping[int, int] = field(default_factory=dict)
    """meter_id -> events of the stretch that a broken meter missed; each that is broken is named, if only with 0"""
    tenants: Mapping[str, Ledger] = field(default_factory=dict)
    """the ledger split by tenant; empty if all of it is `main`'s"""
    format: int = 0
    """of what a task hands on (`store.format.VERSION`); tasks of older versions say nothing"""
    new_tenants: tuple[str, ...] = ()
    """tenants of events in the stretch that have no meters yet, not even the built-in ones: it must be planned again"""

    @property
    def ledgers(self) -> Mapping[str, Ledger]:
        return self.tenants or {MAIN: self.ledger}


@dataclass(frozen=True, slots=True)
class Lag:
    """How long events of a while took from receipt to the store, in ms."""

    at_ms: int
    events: int
    p50: float
    p95: float
    p99: float
    highest: float


@dataclass(frozen=True, slots=True)
class Marks:
    """How far the store has come, at one moment."""

    revision: int
    """of the registry of meters"""
    journal_end: int
    """sequence of the last batch applied"""
    folded: int
    """sequence of the last batch that is in the points"""
    rolled: Mapping[int, int]
    """grain -> epoch seconds: its buckets before that are rolled"""
    first_s: int
    """the earliest bucket that holds points"""
    last_s: int
    """the latest bucket that holds points"""


@dataclass(frozen=True, slots=True)
class Folding:
    """A fold under way: batches up to `through` are in the sums of all meters, and in the points up to this series."""

    through: int
    meter: int
    series: str


@dataclass(frozen=True, slots=True)
class Folded:
    """What one slice of a fold did; all zero when nothing waited."""

    deltas: int = 0
    points: int = 0
    more: bool = False
    """slices are left, or so many batches waited that they were not all taken"""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much was deleted because nobody needs it any more."""

    journal: int = 0
    letters: int = 0
