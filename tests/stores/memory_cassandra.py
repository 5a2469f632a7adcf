"""A Cassandra in memory, for exactly the statements of `tallymark.store.cassandra`.

Cells with timestamps of which the later wins, static columns, conditional batches. One copy: nothing is ever behind.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cassandra.query import BatchStatement, BoundStatement

from tallymark.store.cassandra import schema

Key = tuple[Any, ...]
Cells = dict[str, tuple[int, Any]]
"""column -> (timestamp, value)"""

_FROM = re.compile(
    r" FROM (?P<table>\w+)(?: USING TIMESTAMP (?P<stamp>\d+))? WHERE (?P<where>.*?)"
    r"(?: ORDER BY [\w, ]+?)?(?P<descending> DESC)?(?: LIMIT (?P<limit>\?|\d+))?$"
)
_INSERT = re.compile(r"INSERT INTO (?P<table>\w+) \((?P<columns>.*?)\)")
_UPDATE = re.compile(r"UPDATE book SET (?P<sets>.*?) WHERE store = \? AND book = \?(?: IF (?P<condition>.*))?$")
_CONDITION = re.compile(r"(\(.*?\)|\w+) (=|IN|<=|>=|<|>) \?$")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "IN": lambda value, several: value in several,
}
# Marks of a row in its cells: that it was inserted, and up to when it was deleted.
_INSERTED, _DELETED = "*", "!"


@dataclass(frozen=True)
class _Table:
    partition_key: tuple[str, ...]
    clustering: tuple[str, ...]
    static: frozenset[str]


def _table(definition: str) -> _Table:
    key = definition.split("PRIMARY KEY (", 1)[1].split(" WITH ")[0].strip().removesuffix("))")
    first, _, rest = key.removeprefix("(").partition(")" if key.startswith("(") else ",")
    return _Table(
        tuple(re.findall(r"\w+", first)),
        tuple(re.findall(r"\w+", rest)),
        frozenset(re.findall(r"(\w+) \w+ static", definition)),
    )


_TABLES = {name: _table(definition) for name, definition in schema._TABLES.items()}


class Result:
    """Rows, page by page."""

    def __init__(self, rows: Sequence[Key] = (), *, page_rows: int = 5000) -> None:
        self._rows = list(rows)
        self._pages = [self._rows[start : start + page_rows] for start in range(0, len(self._rows), page_rows)]
        self.fetch_next_page()

    @property
    def has_more_pages(self) -> bool:
        return bool(self._pages)

    def fetch_next_page(self) -> None:
        self.current_rows = self._pages.pop(0) if self._pages else []

    def __iter__(self) -> Any:
        return iter(self._rows)

    def one(self) -> Key | None:
        return self._rows[0] if self._rows else None


class Answer:
    """Of a request that was sent, and is answered already."""

    def __init__(self, result: Result | None, error: Exception | None = None) -> None:
        self._result, self._error = result, error

    def result(self) -> Result:
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result


@dataclass
class _Prepared:
    query_string: str
    routing_key_indexes: None = None

    @property
    def query_id(self) -> str:
        return self.query_string

    def bind(self, values: Sequence[Any]) -> "_Bound":
        return _Bound(self, values)


class _Bound(BoundStatement):  # type: ignore[misc]
    """One of the driver's own class, so that its batches take it; the values stay what they are in Python."""

    def __init__(self, prepared: _Prepared, values: Sequence[Any]) -> None:
        self.prepared_statement = prepared
        self.values = list(values)
        self.keyspace = None


def statements(request: Any) -> list[tuple[str, list[Any]]]:
    """What a request asks for: one statement, or those of a batch."""
    if isinstance(request, BatchStatement):
        return [(cql, list(values)) for _, cql, values in request._statements_and_parameters]
    return [(request.prepared_statement.query_string, list(request.values))]


def is_read(request: Any) -> bool:
    return statements(request)[0][0].startswith("SELECT")


@dataclass
class Server:
    """All rows; copied deeply, it is another server in the same state."""

    rows: dict[tuple[str, Key], dict[Key, Cells]] = field(default_factory=dict)
    static: dict[Key, Cells] = field(default_factory=dict)
    now: int = 10**15
    page_rows: int = 5000

    def execute(self, request: Any) -> Result:
        self.now += 1
        asked = statements(request)
        conditional = _UPDATE.match(asked[0][0])
        if conditional and conditional["condition"]:
            if not self._holds(conditional, asked[0][1]):
                return Result([(False,)])
            for cql, values in asked:
                self._one(cql, values)
            return Result([(True,)])
        (result, *_) = [self._one(cql, values) for cql, values in asked]
        return result

    def _one(self, cql: str, values: list[Any]) -> Result:
        if cql.startswith("INSERT"):
            return self._insert(cql, values)
        if cql.startswith("UPDATE"):
            return self._update(cql, values)
        return self._select_or_delete(cql, values)

    def _holds(self, update: re.Match[str], values: list[Any]) -> bool:
        given = update["sets"].count("?")
        found = self.static.get(tuple(values[given : given + 2]), {})
        wanted = iter(values[given + 2 :])
        for each in update["condition"].split(" AND "):
            column, _, value = each.split(" ")
            if found.get(column, (0, None))[1] != (None if value == "null" else next(wanted)):
                return False
        return True

    def _insert(self, cql: str, values: list[Any]) -> Result:
        found = _INSERT.match(cql)
        assert found is not None, cql
        table = _TABLES[found["table"]]
        columns = found["columns"].split(", ")
        row = dict(zip(columns, values, strict=False))
        stamp = values[len(columns)] if "USING TIMESTAMP ?" in cql else self.now
        partition = self.rows.setdefault((found["table"], tuple(row[name] for name in table.partition_key)), {})
        cells = partition.setdefault(tuple(row[name] for name in table.clustering), {})
        if cells.get(_DELETED, (-1, None))[0] < stamp:
            _put(cells, _INSERTED, stamp, True)
            for name in columns:
                if name not in table.partition_key and name not in table.clustering:
                    _put(cells, name, stamp, row[name])
        return Result()

    def _update(self, cql: str, values: list[Any]) -> Result:
        found = _UPDATE.match(cql)
        assert found is not None, cql
        left = iter(values)
        literals = {"''": "", "0": 0}
        new = {}
        for each in found["sets"].split(", "):
            name, _, value = each.split(" ")
            new[name] = next(left) if value == "?" else literals[value]
        cells = self.static.setdefault((next(left), next(left)), {})
        for name, value in new.items():
            _put(cells, name, self.now, value)
        return Result()

    def _select_or_delete(self, cql: str, values: list[Any]) -> Result:
        found = _FROM.search(cql)
        assert found is not None, cql
        name, table = found["table"], _TABLES[found["table"]]
        left = iter(values)
        conditions = []
        for each in found["where"].split(" AND "):
            condition = _CONDITION.match(each)
            assert condition is not None, cql
            conditions.append((condition[1], condition[2], next(left)))
        key = {column: value for column, order, value in conditions if order == "="}
        place = tuple(key[column] for column in table.partition_key)
        partition = self.rows.get((name, place), {})
        of_rows = [each for each in conditions if each[0] not in table.partition_key]
        hits = sorted(row for row, cells in partition.items() if _INSERTED in cells and _meets(table, row, of_rows))
        if cql.startswith("DELETE"):
            for row in hits:
                partition[row] = {_DELETED: (int(found["stamp"] or self.now), None)}
            return Result()
        if found["descending"]:
            hits.reverse()
        if found["limit"]:
            del hits[next(left) if found["limit"] == "?" else int(found["limit"]) :]
        static = self.static.get(place, {}) if table.static else {}

        def cell(column: str, row: Key) -> Any:
            if column in table.partition_key:
                return key[column]
            if column in table.clustering:
                return row[table.clustering.index(column)]
            return (static if column in table.static else partition[row]).get(column, (0, None))[1]

        columns = cql.split(" FROM ")[0].removeprefix("SELECT ").removeprefix("DISTINCT ").split(", ")
        if columns == ["COUNT(*)"]:
            return Result([(len(hits),)])
        if "DISTINCT" in cql:
            return Result([tuple(cell(column, ()) for column in columns)] if static or hits else [])
        return Result([tuple(cell(column, row) for column in columns) for row in hits], page_rows=self.page_rows)


def _put(cells: Cells, name: str, stamp: int, value: Any) -> None:
    known = cells.get(name)
    # Of two at one time the larger bytes win, as on a real one.
    if known is None or stamp > known[0] or (stamp == known[0] and not (isinstance(value, bytes) and value < known[1])):
        cells[name] = (stamp, value)


def _meets(table: _Table, row: Key, conditions: Sequence[tuple[str, str, Any]]) -> bool:
    found = dict(zip(table.clustering, row, strict=True))
    return all(
        _ORDERS[order](
            tuple(found[each] for each in re.findall(r"\w+", column)) if column[0] == "(" else found[column], value
        )
        for column, order, value in conditions
    )


class Session:
    """See `connection.Session`. `before` may look at a request or raise in its place."""

    def __init__(self, server: Server, before: Callable[[Any], None] = lambda request: None) -> None:
        self._server, self._before = server, before

    def prepare(self, cql: str) -> _Prepared:
        return _Prepared(cql)

    def execute(self, request: Any) -> Result:
        self._before(request)
        return self._server.execute(request)

    def execute_async(self, request: Any) -> Answer:
        return Answer(self.execute(request))

    def close(self) -> None:
        pass
