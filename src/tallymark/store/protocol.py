"""The store as the stages see it: what SQLite and Cassandra both do."""

from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from tallymark.meters.model import Meter
from tallymark.store.model import (
    DeadLetter,
    Folded,
    Gap,
    Lag,
    Ledger,
    LetterSummary,
    LiveMeters,
    Marks,
    Pruned,
    RegisteredMeter,
    Stretch,
    StretchResult,
)

if TYPE_CHECKING:
    # A collector reads positions and has no Polars.
    import polars as pl

    from tallymark.store.documents import Document, Kind
    from tallymark.store.read_plan import Question
    from tallymark.store.selections import Selection
    from tallymark.store.windows import Lineage, Share, ShareChange


class StoreError(Exception):
    """The store refused something; the message says what and the way out.

    StoreError
    ├── PositionConflict   a stretch neither follows the applied position nor lies before it
    ├── WrongLog           positions of another log, or applied beyond the log's end
    ├── LeaseLost          another process has taken over this role; nothing was written
    ├── SnapshotOutdated   a snapshot is too old to be read: take a new one
    ├── StoreUnreachable   the store does not answer: try again
    ├── UnknownMeter       no live meter has that name
    ├── TooManyRows        the answer has more rows than the caller allows
    └── TooManyBytes       the answer takes more memory than the caller allows
    """


class PositionConflict(StoreError):
    """Another driver applied something else, or a stretch was skipped."""


class WrongLog(StoreError):
    """The store's positions belong to another log."""


class LeaseLost(StoreError):
    """Another process has this role now; this one may not write."""


class SnapshotOutdated(StoreError):
    """A reader was so slow that the store dropped what it was reading."""


class StoreUnreachable(StoreError):
    """The store's servers do not answer, or not enough of them."""


class UnknownMeter(StoreError):
    """No live meter has this name."""


class TooManyRows(StoreError):
    """The answer has more rows than were allowed; reading stopped there."""

    def __init__(self, most_rows: int) -> None:
        super().__init__(f"the answer has more than {most_rows:,} rows; ask for less, or group by fewer labels")
        self.most_rows = most_rows


class TooManyBytes(StoreError):
    """The answer takes more memory than was allowed; reading stopped there."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the answer takes more than {most_bytes:,} bytes; ask for less, or group by fewer labels")
        self.most_bytes = most_bytes


class Registry(Protocol):
    """Definitions of meters and their versions, by tenant."""

    def live_meters(self) -> LiveMeters:
        """Of all tenants."""
        ...

    def tenants(self) -> list[str]:
        """Those that have meters: `main` always, others from their first event or meter on."""
        ...

    def add_tenant(self, tenant: str) -> None:
        """Makes its built-in meters, unless it has them."""
        ...

    def all_meters(self) -> list[RegisteredMeter]:
        """As `meters`, of all tenants."""
        ...

    def meters(self, tenant: str) -> list[RegisteredMeter]:
        """The newest version of every meter that is not deleted, broken ones included."""
        ...

    def meter(self, tenant: str, name: str) -> RegisteredMeter: ...

    def put_meter(
        self, tenant: str, meter: Meter, *, now_ms: int, selection: "Selection | None" = None
    ) -> RegisteredMeter:
        """The same definition again changes nothing; another one is a new version.

        One that differs in `compute` and `keep` alone goes on with the numbers of the version before it. A meter with
        `keep: queried` begins with the selection, or goes on with the one it has.
        """
        ...

    def select(self, tenant: str, name: str, selection: "Selection", *, now_ms: int) -> bool:
        """Which metrics a meter with `keep: queried` stores from the next batch on; another selection is a new version.

        False if nothing changed: it stores them already, knows a newer selection, or is no such meter.
        """
        ...

    def delete_meter(self, tenant: str, name: str, *, now_ms: int) -> None: ...

    def live_from(self, meter_id: int) -> dict[int, int]:
        """partition -> first offset that this version of a meter counted."""
        ...

    def broken_since(self, meter_id: int) -> dict[int, tuple[int, str]]:
        """partition -> (start of the first stretch it failed on, why); empty once it was resumed."""
        ...

    def resume_meter(self, tenant: str, name: str) -> RegisteredMeter:
        """Lets a broken meter count again, from the next batch on; its gaps stay on record."""
        ...

    def gaps(self, meter_id: int) -> list[Gap]:
        """What is missing from its numbers because a version that shares them was broken; in the order of the log."""
        ...


class Lease(Protocol):
    """The right to play a role alone. A holder that is silent for the lease's time loses it to whoever asks next."""

    def take(self) -> bool:
        """Takes or renews it, without waiting; False while another process has it, and for ever once it was lost.

        From the first True on, whatever this store object writes in that role is fenced: it raises LeaseLost as soon
        as another process has taken over, also when this one was stopped in between and does not know.
        """
        ...

    def watch(self) -> None:
        """Looks whether the holder is silent, so that a `take` that comes later need not begin to wait for that."""
        ...

    def release(self) -> None:
        """Gives it back, so that the next one need not wait."""
        ...


class Heartbeats(Protocol):
    """Who is alive."""

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        """This role is alive and says so, with a few facts for `status`."""
        ...

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """role -> (when, facts)."""
        ...


class Deposits(Protocol):
    """What a task needs of the store."""

    def deposit(self, result: StretchResult) -> StretchResult:
        """Brings the deltas to the store, if it wants them from the task, and leaves a reference in the result.

        A deposit counts only once `Sink.apply` has named it, so one of a task that was given up changes nothing,
        however late it is written.
        """
        ...


class Sink(Protocol):
    """What the pipeline's driver needs."""

    def applied(self, log_identity: str) -> dict[int, int]:
        """The next offset to apply for each partition that has one; raises WrongLog for another log's positions."""
        ...

    def begin(self, log_identity: str, partition: int, offset: int) -> None:
        """Where the first stretch of a partition starts; needed when the log has lost its oldest records."""
        ...

    def apply(self, results: Sequence[StretchResult], *, now_ms: int) -> list[StretchResult]:
        """In one transaction: journal, ledger, dead letters, positions. Returns those that were new.

        A stretch that ends at or before the applied position is skipped, one that starts there is applied,
        anything else raises PositionConflict and changes nothing.
        """
        ...

    def buried(self, partition: int) -> list[int]:
        """Offsets of records that kill their task."""
        ...


class Snapshot(Protocol):
    """One moment of the store: points and the journal's tail together, so that no delta is missed or met twice."""

    def read(
        self, question: "Question", *, most_rows: int | None = None, most_bytes: int | None = None
    ) -> "pl.DataFrame":
        """Aggregates of the question's range, grouped by its labels and, if it has a step, by bucket.

        Columns: one text column a label in `by` (named by `model.label_column`),
        `bucket_s` (only with `step_s`; multiples of it since the epoch),
        those of `aggregates.columns`.
        Without `by` and `step_s` there is always one row. What was not asked for is null (`n_value` 0).
        Raises TooManyRows or TooManyBytes instead of a larger answer, as soon as it is one; so the memory is bounded.
        """
        ...

    @property
    def journal_end(self) -> int:
        """The last batch that this moment has: with the same one, every answer is the same."""
        ...

    def touched(self, *, after: int) -> Mapping[int, Set[int]] | None:
        """Set -> the buckets that batches after this one added to; None if some of these batches are gone."""
        ...

    def ledger(self) -> dict[int, Ledger]:
        """Per partition, over all tenants."""
        ...

    def tenant_ledgers(self) -> dict[str, Ledger]:
        """Per tenant, over all partitions."""
        ...

    def applied(self) -> dict[int, int]: ...

    def lag(self, *, since_ms: int) -> Lag | None: ...


class Snapshots(Protocol):
    """What questions are answered from."""

    def take(self) -> AbstractContextManager[Snapshot]: ...

    def journal_since(self, sequence: int) -> "list[tuple[int, pl.DataFrame]]":
        """Applied batches after `sequence` in order, as (sequence, deltas): what `live` follows."""
        ...

    def journal_end(self) -> int: ...


class Upkeep(Protocol):
    """What the keeper does. Every step may be broken off anywhere and done again, and never shows in an answer."""

    def marks(self) -> Marks: ...

    def fold(self, *, most_points: int) -> Folded:
        """Takes the journal's entries into the points, one slice of series of about this many points at a time."""
        ...

    def roll(self, *, now_ms: int, delay_s: int, slice_series: int) -> bool:
        """Rolls up one slice of a closed minute, hour or day; False when nothing is due."""
        ...

    def series(self) -> Mapping[int, int]:
        """Set -> how many series its points have; cheap enough for every heartbeat, and perhaps a minute old."""
        ...

    def prune(
        self,
        *,
        now_ms: int,
        journal_keep_ms: int,
        letter_bytes: int,
        keep_after: int | None = None,
    ) -> Pruned:
        """Entries of the journal after `keep_after` stay, however old they are."""
        ...

    def checkpoint(self) -> bool:
        """Makes all that was applied so far durable; True if that succeeded."""
        ...


class DeadLetters(Protocol):
    """What could not be counted: that of the pipeline's batches, and that of the log's stream `dead`."""

    def newest(self, *, limit: int = 100) -> list[tuple[int, DeadLetter]]: ...

    def search(
        self,
        *,
        tenant: str | None,
        hops: Collection[str] = (),
        reasons: Collection[str] = (),
        limit: int = 100,
    ) -> list[LetterSummary]:
        """Those that are kept, newest first, of these hops and reasons (none named: of all), of a tenant or of all.

        A store without an index of their kinds looks through the `MOST_LOOKED_AT` newest at most: a rare reason must
        not read all of them.
        """
        ...

    def get(self, letter_id: int) -> DeadLetter | None:
        """None if there was none of that number, or it was dropped to save room."""
        ...

    def counts(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        """(hop, reason) -> events, of a tenant or of all."""
        ...

    def counts_by_tenant(self) -> dict[str, dict[tuple[str, str], int]]:
        """Tenant -> (hop, reason) -> events, of every tenant that ever had dead letters: the registry lacks some."""
        ...

    def last_ms(self, *, tenant: str | None) -> dict[tuple[str, str], int]:
        """(hop, reason) -> when the last such letter was found."""
        ...

    def position(self, log_identity: str) -> int:
        """The next offset of the stream `dead` to take in."""
        ...

    def take_in(self, log_identity: str, stretch: Stretch, found: Sequence[DeadLetter]) -> bool:
        """Takes in the letters of a stretch of the stream `dead`, by the same rule as `Sink.apply`."""
        ...


class Documents(Protocol):
    """Small texts under a name that people write, by kind and tenant (see `store.documents`)."""

    def changes(self, kind: "Kind") -> int:
        """Rises with every change of a document of the kind; cheap enough to be asked every second."""
        ...

    def all(self, kind: "Kind") -> "list[Document]":
        """Of all tenants, by tenant and name."""
        ...

    def of_tenant(self, kind: "Kind", tenant: str) -> "list[Document]":
        """By name."""
        ...

    def get(self, kind: "Kind", tenant: str, name: str) -> "Document | None": ...

    def put(self, kind: "Kind", tenant: str, name: str, body: str, *, now_ms: int) -> "Document":
        """The same text again changes nothing. Raises StoreError if it is too large, or there are too many."""
        ...

    def swap(
        self, kind: "Kind", tenant: str, name: str, before: "Document | None", body: str, *, now_ms: int
    ) -> "Document | None":
        """As `put`, but only in place of `before`; None if something else is there, so that nothing was written.

        After an answer that was lost, None may also mean that it was written and somebody changed it since.
        """
        ...

    def delete(self, kind: "Kind", tenant: str, name: str) -> bool:
        """False if there was none."""
        ...


class Windows(Protocol):
    """What saved queries found in each of their windows (see `store.windows`)."""

    def lineages(self, share: int | None = None) -> "list[Lineage]":
        """Of a share or of all, by tenant and name; also those whose windows are being deleted."""
        ...

    def share(self, share: int) -> "Share":
        """For whoever evaluates it: nothing that is under way can change it any more."""
        ...

    def evaluated(self) -> int | None:
        """The last batch of the journal that every share has looked at; None without saved queries."""
        ...

    def write(self, changes: "Sequence[ShareChange]") -> None:
        """Windows and how far their queries are, together or in that order; again, it changes nothing.

        Raises LeaseLost if another process has taken over one of the shares since it was read.
        """
        ...

    def read(self, lineage: "Lineage", start_s: int, end_s: int) -> list[tuple[int, bytes]]:
        """The stored windows that start in the range, as (start, what they hold), in order."""
        ...

    def drop(self, lineage: "Lineage", *, most: int) -> int | None:
        """Deletes some windows, about this many, the oldest first: those before the answer; None if none is left."""
        ...


class TableParts(Protocol):
    """What tables are made of: pieces of bytes that never change. They count once a document names them."""

    def write(self, body: bytes, *, now_ms: int) -> str:
        """The name under which it lies: a fresh one each time. A crash leaves a part that nobody names."""
        ...

    def read(self, part: str) -> bytes | None:
        """None if it was deleted, or never written whole."""
        ...

    def delete(self, parts: Collection[str]) -> None:
        """In slices, so that nobody else waits long."""
        ...

    def written_before(self, at_ms: int) -> list[str]:
        """All that were begun before a moment and not deleted since."""
        ...


class Store(Protocol):
    """All its parts. A process opens one and may use it from several threads."""

    @property
    def registry(self) -> Registry: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def snapshots(self) -> Snapshots: ...

    @property
    def upkeep(self) -> Upkeep: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    @property
    def documents(self) -> Documents: ...

    @property
    def windows(self) -> Windows: ...

    @property
    def table_parts(self) -> TableParts: ...

    @property
    def heartbeats(self) -> Heartbeats: ...

    def lease(self, role: str, holder: str, *, lease_s: float) -> Lease:
        """The lease of `pipeline`, of `keeper`, or of a share of the saved queries, such as `share/3`.

        Where a file lock already makes a role alone, it is always had.
        """
        ...

    def close(self) -> None: ...
