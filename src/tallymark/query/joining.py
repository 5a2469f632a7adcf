"""Columns of tables in questions: `by=videos.channel`, `videos.channel=music`, `with=videos.title`.

The store knows labels only. So it is asked by the label that a table joins, each label is replaced by what the table
says of it, and rows that become one are merged before any function is computed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from tallymark.http import Problem
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.suggest import suggest
from tallymark.tables import Table
from tallymark.tables.kept import Named
from tallymark.tables.model import Type, Value
from tallymark.tables.table import View


class Lookup(Protocol):
    """Finds tables; `tallymark.tables.Tables` is one."""

    def names(self, tenant: str) -> list[Named]: ...

    def get(self, tenant: str, name: str) -> Table | None: ...


@dataclass(frozen=True, slots=True)
class Joined:
    """A column of a table, as it is at one moment."""

    name: str
    """`videos.channel`"""
    label: str
    """of the meter, called like the table's key"""
    column: str
    type: Type
    view: View
    token: str
    """another one when the table has changed"""

    def texts(self, labels: pl.Series) -> pl.Series:
        return self.view.texts(labels, self.column)

    def labels_with(self, texts: Collection[str]) -> list[str]:
        return self.view.keys_with(self.column, texts)

    def values(self, labels: Sequence[str]) -> list[Value]:
        return self.view.values(labels, self.column)


class Columns:
    """What one question names of tables, looked up once."""

    def __init__(self, meter: RegisteredMeter, tables: Lookup | None) -> None:
        self._meter, self._tables = meter, tables
        self._found: dict[str, Table | None] = {}

    def is_known(self, name: str) -> bool:
        """Whether it names a column of a table, right or wrong: a label of that very name wins."""
        table, dot, _ = name.partition(".")
        return bool(dot) and name not in self._meter.labels and self._table(table) is not None

    def check(self, name: str, parameter: str) -> None:
        """Raises 400 with the nearest unless there is such a table, with that column, and the meter has its key."""
        word, _, column = name.partition(".")
        table, meter = self._table(word), self._meter
        if table is None:
            known = [] if self._tables is None else [each.name for each in self._tables.names(meter.tenant)]
            near = suggest(word, known, otherwise="") or suggest(name, meter.labels, what="its keys are")
            detail = f"meter {meter.meter.name} has no key {name[:80]!r}, and there is no table {word[:80]!r}{near}"
            raise Problem(400, "unknown_key", detail, parameter=parameter, key=name[:128])
        definition = table.definition
        if column not in definition.columns:
            near = suggest(column, definition.columns, what="it has")
            detail = f"the table {word} has no column {column[:80]!r}{near}"
            raise Problem(400, "unknown_column", detail, parameter=parameter, key=name[:128])
        if definition.key not in meter.labels:
            keys = f"its keys are {', '.join(meter.labels)}" if meter.labels else "it has no keys"
            detail = (
                f"the table {word} joins by the key {definition.key!r}, which meter {meter.meter.name} lacks; {keys}"
            )
            raise Problem(400, "cannot_join", detail, parameter=parameter, key=name[:128])

    def joined(self, name: str, *, at_ms: int) -> Joined:
        """Of a name that was checked."""
        word, _, column = name.partition(".")
        table = self._table(word)
        assert table is not None
        definition = table.definition
        return Joined(name, definition.key, column, definition.columns[column], table.at(at_ms), table.token)

    def _table(self, name: str) -> Table | None:
        if name not in self._found:
            self._found[name] = None if self._tables is None else self._tables.get(self._meter.tenant, name)
        return self._found[name]


@dataclass(frozen=True, slots=True)
class Read:
    """What the store is asked instead of a question that names columns of tables."""

    by: tuple[str, ...]
    where: Mapping[str, Sequence[str]]
    left: tuple[tuple[str, Sequence[str]], ...]
    """(label, values it may have), for those that are too many to be asked for"""
    is_merged: bool
    """several of its rows may become one"""


def planned(
    by: Sequence[str], where: Mapping[str, Sequence[str]], joined: Mapping[str, Joined], *, most_named: int
) -> Read:
    wanted: dict[str, Sequence[str]] = {}
    for name, values in where.items():
        label = joined[name].label if name in joined else name
        allowed = joined[name].labels_with(values) if name in joined else values
        known = set(wanted.get(label, allowed))
        wanted[label] = [each for each in allowed if each in known]
    few = {label: values for label, values in wanted.items() if len(values) <= most_named or label in where}
    left = tuple((label, values) for label, values in wanted.items() if label not in few)
    shown = [joined[name].label if name in joined else name for name in by]
    labels = tuple(dict.fromkeys([*shown, *(label for label, _ in left)]))
    return Read(labels, few, left, is_merged=not set(labels) <= set(by))


def translated(rows: pl.DataFrame, read: Read, by: Sequence[str], joined: Mapping[str, Joined]) -> pl.DataFrame:
    """Rows of the store with the columns of tables that are grouped by; the labels that led to them stay."""
    for label, values in read.left:
        rows = rows.filter(pl.col(label_column(label)).is_in(pl.Series(values, dtype=pl.String).implode()))
    for name in by:
        if name in joined:
            rows = _with_column(rows, label_column(joined[name].label), joined[name])
    return rows


def _with_column(rows: pl.DataFrame, label: str, column: Joined) -> pl.DataFrame:
    # Each label is looked up once, however many buckets it has.
    keys = rows[label].unique(maintain_order=True)
    found = pl.DataFrame({label: keys, label_column(column.name): column.texts(keys)})
    if keys.len() == rows.height:
        return rows.with_columns(found[label_column(column.name)])
    return rows.join(found, on=label, how="left", maintain_order="left")


def added(
    columns: Sequence[Joined], by: Sequence[str], where: Mapping[str, Sequence[str]], lines: Sequence[tuple[str, ...]]
) -> list[dict[str, Any]]:
    """`{"with": {"videos.title": …}}` for each line; nothing if no columns are wanted."""
    if not columns:
        return [{} for _ in lines]
    by_line: list[list[Value]] = []
    for column in columns:
        if column.label in by:
            place = by.index(column.label)
            by_line.append(column.values([labels[place] for labels in lines]))
        else:
            by_line.append(column.values([where[column.label][0]]) * len(lines))
    names = [column.name for column in columns]
    return [{"with": dict(zip(names, values, strict=True))} for values in zip(*by_line, strict=True)]
