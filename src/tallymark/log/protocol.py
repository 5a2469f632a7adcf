"""The log as its users see it. A record is one frame; an offset is the number of a record within its partition."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

SLEW_PER_MILLE = 5
"""by which append time of a local log may pass faster or slower than real time, to find back to a wall clock that was
set: a horizon of 600 s is one of 597 to 603 s then, and an hour is made up in nine days"""


class LogError(Exception):
    """Something about the log that a person must know.

    LogError
    ├── LogDamaged        a record that was durable no longer reads: never skipped silently
    ├── LogLost           the asked offsets are gone (retention, or another log)
    ├── LogBusy           another process holds the writer's lock
    ├── LogUnreachable    whoever keeps the log does not answer now: nothing is lost, try again
    └── LayoutChanged     the settings ask for another layout than the log has
    """


class LogDamaged(LogError):
    """A record below the synced mark fails its checksum or is missing."""


class LogLost(LogError):
    """The asked offsets are no longer, or not yet, in this log."""


class LogBusy(LogError):
    """Another process writes this log."""


class LogUnreachable(LogError):
    """The log's servers do not answer; what was durable still is."""


class LayoutChanged(LogError):
    """Partitions or strategy differ from those the log was made with."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A frame on its way into one partition."""

    partition: int
    payload: bytes
    events: int


@dataclass(frozen=True, slots=True)
class Appended:
    """A frame that is durable at this place."""

    partition: int
    offset: int
    append_ms: int


@dataclass(frozen=True, slots=True)
class NotAppended:
    """A frame that is not known to be durable, and may be sent again: a copy that came through is found by its ids."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """A frame as a reader gets it, with the header it was stored under."""

    partition: int
    offset: int
    append_ms: int
    events: int
    instance: int
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a partition stands. `end` counts what was written, `synced` what readers may see."""

    first: int
    synced: int
    end: int
    events: int | None
    """events appended up to `synced` since the log was made; None if the log cannot tell without reading it"""
    clock_ahead_ms: int = 0
    """how far append times were ahead of the wall clock of whoever stamps them, at the last append; see `to_wall_ms`"""

    def to_wall_ms(self, append_ms: int) -> int:
        """What the wall clock shows or showed at this append time, if it was not set since the last append."""
        return append_ms - self.clock_ahead_ms


class LogWriter(Protocol):
    """Appends to a stream: the one process that may where the log is local, one of many on Kafka."""

    @property
    def identity(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        """One outcome a frame, in order; what is `Appended` is durable when this returns."""
        ...

    def positions(self) -> Mapping[int, Positions]: ...

    def sealed(self) -> Mapping[int, str]:
        """Partitions that take nothing more before the log is opened again, and why."""
        ...

    def close(self) -> None: ...


class LogReader(Protocol):
    """Any process that reads a stream. It sees nothing beyond the synced mark."""

    @property
    def identity(self) -> str:
        """Of this log; positions taken from another log must not be used here."""
        ...

    @property
    def partitions(self) -> int: ...

    @property
    def slack_ms(self) -> int:
        """How far append times may go back from one record to a later one, because several clocks stamp them."""
        ...

    @property
    def has_wall_times(self) -> bool:
        """Whether append times are what a wall clock showed; else they keep the pace of real time when that is set."""
        ...

    def positions(self) -> Mapping[int, Positions]: ...

    def read(self, partition: int, start: int, end: int) -> Iterator[Record]:
        """Records start <= offset < end; raises LogLost or LogDamaged rather than leave one out."""
        ...

    def glance(self, partition: int, start: int, end: int, *, max_events: int, max_bytes: int) -> list[Record]:
        """Some of these records, in order from `start`: until a limit is reached, or one can no longer be read.

        For a look here and there, so little is fetched ahead. The last record may exceed the limits.
        """
        ...

    def bounded_end(self, partition: int, start: int, *, max_events: int, max_bytes: int) -> int:
        """Where a stretch from `start` ends that stays within both limits (but has a record if there is one)."""
        ...

    def events_in(self, partition: int, start: int, end: int) -> int:
        """How many events these records hold, also where a record itself can no longer be read."""
        ...

    def append_ms(self, partition: int, offset: int) -> int:
        """When the record at `offset` was appended; told of records beyond the synced mark too, up to `end`."""
        ...

    def offset_at(self, partition: int, append_ms: int) -> int:
        """The first offset appended at or after this time (the synced end if none)."""
        ...

    def close(self) -> None: ...
