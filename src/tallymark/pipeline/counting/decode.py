"""Records of the log -> one table of events, with just the columns that the live meters use."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from tallymark.events import frame
from tallymark.events.tenants import MAIN
from tallymark.log.protocol import Record
from tallymark.pipeline.counting.claims import Ids, Times
from tallymark.pipeline.counting.needs import Needs
from tallymark.pipeline.counting.properties import property_columns
from tallymark.store.model import DeadLetter

Column = Any  # a pyarrow array, in one piece or several, of whatever type

BASE_COLUMNS = ("event", "time", "received", "value")
ID_COLUMNS = ("hash_high", "hash_low")
RESENT = "resent"
TENANT = "tenant"

# Counting takes about 250 bytes for each named number, so this is about 125 MB at a time.
MOST_VALUES = 500_000


@dataclass(frozen=True)
class Resend:
    """A record with events whose client had tried before and does not know what became of that."""

    record: Record
    first_row: int
    """of the record's events, in the decoded table"""
    rows: npt.NDArray[np.int64]
    """in the decoded table, of those that were tried before"""
    since_ms: Times
    """when each of them was first tried"""
    received_ms: Times
    """when this copy of each was received"""


@dataclass(frozen=True)
class Decoded:
    """The events of a stretch in log order, and what could not be read.

    `table` has the columns `event`, `time`, `received`, `value` and, for each asked property, those of
    `properties.text_column` and `properties.number_column`. `values` are the named numbers, with their event's `row`.
    """

    table: pl.DataFrame
    values: pl.DataFrame
    ids: Ids
    dead: tuple[DeadLetter, ...]
    accepted: int
    names: frozenset[str] = frozenset()
    """of the events; may hold some that do not occur"""
    resends: tuple[Resend, ...] = ()
    tenants: tuple[str, ...] = (MAIN,)
    """whose events these are; `main` if there are none"""
    owner: npt.NDArray[np.int32] | None = None
    """of each decoded event, the index of its tenant in `tenants`; None if there is only one"""


def decode(records: Iterable[Record], *, needs: Needs) -> Decoded:
    """All events of these records; one that does not decode becomes a dead letter, one that is too new raises."""
    reading = _Reading(needs)
    for record in records:
        reading.add(record)
    return reading.decoded()


def slices(records: Iterable[Record], *, needs: Needs) -> Iterator[Decoded]:
    """The same in slices of whole records with about MOST_VALUES named numbers, one after the other; at least one.

    Batches are bounded by events and bytes, but one event may hold 4,096 named numbers that compress to little.
    """
    reading, is_first = _Reading(needs), True
    for record in records:
        reading.add(record)
        if reading.values >= MOST_VALUES:
            # Nothing here may hold on to a slice while the next one is read.
            full, reading, is_first = [reading], _Reading(needs), False
            yield full.pop().decoded()
    if reading.accepted or is_first:
        yield reading.decoded()


class _Reading:
    """Records as they are read, until they become one table."""

    def __init__(self, needs: Needs) -> None:
        self._needs = needs
        self._wanted = _columns(needs.of_all(), bool(needs.values)) | {RESENT, TENANT}
        self._batches: list[pa.RecordBatch] = []
        self._times: list[int] = []
        self._dead: list[DeadLetter] = []
        self._resends: list[Resend] = []
        self._rows = 0
        self.accepted = 0
        self.values = 0

    def add(self, record: Record) -> None:
        self.accepted += record.events
        try:
            batch = frame.decode(record.payload, only=self._wanted)
            if batch.num_rows != record.events:
                raise frame.FrameDamaged(f"{batch.num_rows} events in a frame stored as {record.events}")
        except frame.UnknownFrameVersion as error:
            raise _too_new(record, error) from None
        except frame.FrameError as error:
            if isinstance(error.__cause__, MemoryError):
                raise error.__cause__ from None  # the record's checksum was right: it is the machine that is short
            self._dead.append(_dead(record, error))
            return
        if RESENT in batch.schema.names:
            if batch.column(RESENT).null_count < batch.num_rows:
                self._resends.append(_resend(record, self._rows, batch))
            batch = batch.drop_columns([RESENT])
        if "values" in batch.schema.names:
            named_numbers: Column = batch.column("values")
            self.values += len(named_numbers.items)
        self._batches.append(batch)
        self._times.append(record.append_ms)
        self._rows += batch.num_rows

    def decoded(self) -> Decoded:
        batches = _all_or_none_with("rest", self._batches, _no_rest)
        batches = _all_or_none_with(TENANT, batches, _of_main, before="event")
        groups = [pa.Table.from_batches(group) for group in _alike(batches)]
        names = frozenset().union(*(_names(table) for table in groups))
        tenants, owner = _tenants(groups)
        properties, values = self._needs.of(tenants, names), self._needs.values_of(tenants, names)
        # Putting chunks together is a copy: only of what the events that are there need.
        unused = self._wanted - _columns(properties, values)
        groups = [table.drop_columns([*unused.intersection(table.column_names)]).combine_chunks() for table in groups]
        sizes = np.array([batch.num_rows for batch in self._batches], np.int64)
        return Decoded(
            table=_concat([_events(table, properties) for table in groups]),
            values=_concat_values(groups) if values else NO_VALUES,
            ids=_ids(groups, np.repeat(np.array(self._times, np.int64), sizes)),
            dead=tuple(self._dead),
            accepted=self.accepted,
            names=names,
            resends=tuple(self._resends),
            tenants=tenants,
            owner=owner,
        )


def _columns(properties: Collection[str], values: bool) -> set[str]:
    wanted = {*ID_COLUMNS, *BASE_COLUMNS, *(frame.PROP + name for name in properties)}
    wanted |= {"values"} if values else set()
    return wanted | ({"rest"} if properties else set())


def ids_of(records: Iterable[Record]) -> Iterator[Ids]:
    """Only the ids of the events, record by record: what claims read to catch up."""
    for record in records:
        try:
            batch = frame.decode(record.payload, only=set(ID_COLUMNS))
        except frame.UnknownFrameVersion as error:
            raise _too_new(record, error) from None  # it claimed ids: without them its copies would count again
        except frame.FrameError:
            continue
        if batch.num_rows == record.events:
            table = pa.Table.from_batches([batch])
            yield _ids([table], np.full(batch.num_rows, record.append_ms, np.int64))


def _too_new(record: Record, error: frame.UnknownFrameVersion) -> frame.UnknownFrameVersion:
    return frame.UnknownFrameVersion(f"partition {record.partition}, offset {record.offset}: {error}")


def _dead(record: Record, error: frame.FrameError) -> DeadLetter:
    return DeadLetter(
        hop="pipeline",
        reason="undecodable",
        detail=str(error)[:500],
        events=record.events,
        raw=record.payload,
        at_ms=record.append_ms,
        partition=record.partition,
        offset=record.offset,
    )


def _resend(record: Record, first_row: int, batch: pa.RecordBatch) -> Resend:
    resent: Column = batch.column(RESENT)
    rows = np.flatnonzero(resent.is_valid().to_numpy(zero_copy_only=False))
    received: Column = batch.column("received")
    return Resend(record, first_row, rows + first_row, resent.drop_null().to_numpy(), received.to_numpy()[rows])


def _names(table: pa.Table) -> set[str]:
    """From the dictionaries, which are short; a frame that was cut from a larger one may have names to spare."""
    column: Column = table["event"]
    return {name for chunk in column.chunks for name in chunk.dictionary.to_pylist()}


def _tenants(tables: list[pa.Table]) -> tuple[tuple[str, ...], npt.NDArray[np.int32] | None]:
    """`Decoded.tenants` and `Decoded.owner`. With one tenant only the dictionaries are looked at, not the rows.

    An event that names no tenant is `main`'s: no collector writes one, but it must not stop its partition.
    """
    if not any(TENANT in table.column_names for table in tables):
        return (MAIN,), None
    chunks: list[Column] = [chunk for table in tables for chunk in table[TENANT].chunks]
    dictionaries = [chunk.dictionary.to_pylist() for chunk in chunks]
    named = set().union(*dictionaries)
    if len(named) == 1 and all(named) and not any(chunk.null_count for chunk in chunks):
        return (named.pop(),), None
    names = sorted({MAIN, *named} - {None})
    place = {name: number for number, name in enumerate(names)}
    owners = [np.zeros(0, np.int32)]
    for chunk, dictionary in zip(chunks, dictionaries, strict=True):
        places = np.array([place[name or MAIN] for name in (*dictionary, None)], np.int32)
        owners.append(places[chunk.indices.fill_null(len(dictionary)).to_numpy()])
    return _only_used(names, np.concatenate(owners))


def _only_used(names: list[str], owner: npt.NDArray[np.int32]) -> tuple[tuple[str, ...], npt.NDArray[np.int32] | None]:
    """Without the names that no row has: a frame that was cut from a larger one may have names to spare."""
    used = np.bincount(owner, minlength=len(names)) > 0
    tenants = tuple(name for name, is_used in zip(names, used, strict=True) if is_used) or (MAIN,)
    if len(tenants) == 1:
        return tenants, None
    return tenants, (np.cumsum(used, dtype=np.int32) - 1)[owner]


def _all_or_none_with(
    column: str, batches: list[pa.RecordBatch], filler: Callable[[int], Column], *, before: str | None = None
) -> list[pa.RecordBatch]:
    """A frame leaves out a column that says nothing; that alone must not make its schema another."""
    having = [column in batch.schema.names for batch in batches]
    if all(having) or not any(having):
        return batches
    return [
        batch if has else batch.add_column(_place(batch, before), column, filler(batch.num_rows))
        for batch, has in zip(batches, having, strict=True)
    ]


def _place(batch: pa.RecordBatch, before: str | None) -> int:
    return batch.num_columns if before is None else batch.schema.get_field_index(before)


def _no_rest(rows: int) -> Column:
    return pa.nulls(rows, pa.string())


def _of_main(rows: int) -> Column:
    places: Column = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(places, pa.array([MAIN]))


def _alike(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Runs of neighbours with one schema: neighbours only, so that the order of the log is kept."""
    run: list[pa.RecordBatch] = []
    for batch in batches:
        if run and not batch.schema.equals(run[-1].schema):
            yield run
            run = []
        run.append(batch)
    if run:
        yield run


def _events(table: pa.Table, properties: Collection[str]) -> pl.DataFrame:
    base = pl.DataFrame(
        {
            "event": pl.from_arrow(_plain(table["event"])),
            "time": pl.from_arrow(table["time"]),
            "received": pl.from_arrow(table["received"]),
            "value": pl.from_arrow(table["value"]),
        }
    )
    return base.with_columns(property_columns(table, properties))


def _plain(column: Column) -> Column:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


_EMPTY = pl.DataFrame(schema={"event": pl.String, "time": pl.Int64, "received": pl.Int64, "value": pl.Float64})
NO_VALUES = pl.DataFrame(schema={"row": pl.Int64, "metric": pl.String, "number": pl.Float64})


def _concat(tables: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tables, rechunk=True) if tables else _EMPTY


def _concat_values(tables: list[pa.Table]) -> pl.DataFrame:
    """The maps of all events, flattened to one row a named number."""
    parts, before = [], 0
    for table in tables:
        if "values" in table.column_names:
            parts.append(_flat(table["values"].combine_chunks(), before))
        before += table.num_rows
    return pl.concat(parts) if parts else NO_VALUES


def _flat(maps: Column, before: int) -> pl.DataFrame:
    if isinstance(maps, pa.ChunkedArray):
        maps = pa.concat_arrays(maps.chunks)
    offsets = maps.offsets.to_numpy()
    rows = np.repeat(np.arange(before, before + len(maps), dtype=np.int64), np.diff(offsets))
    first, last = int(offsets[0]), int(offsets[-1])
    return pl.DataFrame(
        {
            "row": rows,
            "metric": pl.from_arrow(_plain(maps.keys.slice(first, last - first))),
            "number": pl.from_arrow(maps.items.slice(first, last - first)),
        }
    )


def _ids(tables: list[pa.Table], append_ms: np.ndarray) -> Ids:
    if not tables:
        return Ids(np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.int64))
    high = np.concatenate([table["hash_high"].to_numpy() for table in tables])
    low = np.concatenate([table["hash_low"].to_numpy() for table in tables])
    return Ids(high, low, append_ms)
