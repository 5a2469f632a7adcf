"""A store in Cassandra as JSON: its tables, and every cell with the time at which it was written.

Cells keep their timestamps, since those of points are the number of the change that wrote them, and of letters the
epoch: put back as written now, nothing that the store writes later would win against them.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra.concurrent import execute_concurrent

Rows = list[dict[str, Any]]
Dump = dict[str, dict[str, Any]]
"""table -> how it was made, its columns, its rows"""

# More at once, and a busy machine's Cassandra answers that it had no time.
IN_FLIGHT = 32
KEYS = ("partition_key", "clustering")
_COLUMNS = (
    "SELECT column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name=%s AND table_name=%s"
)
_OPTIONS = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name=%s AND table_name=%s"


def dump(session: Any, keyspace: str) -> Dump:
    """All tables of a keyspace, over a session of the driver."""
    names = session.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (keyspace,))
    return {name: _table(session, keyspace, name) for (name,) in sorted(map(tuple, names))}


def restore(session: Any, keyspace: str, dumped: Dump) -> None:
    """Makes the keyspace with the tables of that time, and their rows."""
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    for name, table in dumped.items():
        session.execute(table["create"].replace("{table}", f"{keyspace}.{name}"))
    prepared: dict[str, Any] = {}
    statements = []
    for name, table in dumped.items():
        for cql, values in _inserts(f"{keyspace}.{name}", table):
            if cql not in prepared:
                prepared[cql] = session.prepare(cql)
            statements.append((prepared[cql], values))
    execute_concurrent(session, statements, concurrency=IN_FLIGHT)


def cells(table: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, tuple[Any, int, int | None]], bool]]:
    """(key, column -> (value, timestamp, TTL), whether they are static columns) of each row."""
    columns = table["columns"]
    place = [name for name, (kind, _) in columns.items() if kind == "partition_key"]
    met: set[tuple[Any, ...]] = set()
    for row in table["rows"]:
        key = {name: row[name] for name in columns if columns[name][0] in KEYS and row[name] is not None}
        found: dict[str, dict[str, tuple[Any, int, int | None]]] = {"static": {}, "regular": {}}
        for name, (kind, type_) in columns.items():
            if kind not in KEYS and row[name] is not None:
                value, timestamp, ttl = row[name]
                found[kind][name] = (_value(value, type_), timestamp, ttl)
        partition = {name: key[name] for name in place}
        if found["static"] and tuple(partition.values()) not in met:
            met.add(tuple(partition.values()))
            yield partition, found["static"], True
        if len(key) == sum(kind in KEYS for kind, _ in columns.values()):
            yield key, found["regular"], False


def _table(session: Any, keyspace: str, name: str) -> dict[str, Any]:
    found = [tuple(row) for row in session.execute(_COLUMNS, (keyspace, name))]
    ranks = {kind: rank for rank, kind in enumerate((*KEYS, "static", "regular"))}
    found.sort(key=lambda column: (ranks[column[1]], column[2], column[0]))
    columns = {column: (kind, type_) for column, kind, _, type_ in found}
    values = [column for column, (kind, _) in columns.items() if kind not in KEYS]
    more = "".join(f", WRITETIME({column}), TTL({column})" for column in values)
    rows: Rows = []
    for row in session.execute(f"SELECT {', '.join(columns)}{more} FROM {keyspace}.{name}"):
        said = iter(row[len(columns) :])
        whole: dict[str, Any] = {}
        for column, value in zip(columns, row, strict=False):
            whole[column] = value if column not in values else _cell(value, next(said), next(said))
        rows.append(whole)
    (grace,) = session.execute(_OPTIONS, (keyspace, name)).one()
    return {"create": _create(columns, grace), "columns": columns, "rows": rows}


def _cell(value: Any, timestamp: int, ttl: int | None) -> list[Any] | None:
    if value is None:
        return None
    return [base64.b64encode(value).decode() if isinstance(value, bytes) else value, timestamp, ttl]


def _value(value: Any, type_: str) -> Any:
    return base64.b64decode(value) if type_ == "blob" else value


def _create(columns: dict[str, tuple[str, str]], grace: int) -> str:
    place, order = ([name for name, (kind, _) in columns.items() if kind == wanted] for wanted in KEYS)
    key = ", ".join([f"({', '.join(place)})", *order])
    each = [f"{name} {type_}{' static' * (kind == 'static')}" for name, (kind, type_) in columns.items()]
    return f"CREATE TABLE {{table}} ({', '.join(each)}, PRIMARY KEY ({key})) WITH gc_grace_seconds = {grace}"


def _inserts(name: str, table: dict[str, Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    for key, found, _ in cells(table):
        written = sorted({(timestamp, ttl) for _, timestamp, ttl in found.values()}, key=str) or [(1, None)]
        for timestamp, ttl in written:
            chosen = key | {column: cell[0] for column, cell in found.items() if cell[1:] == (timestamp, ttl)}
            marks = ", ".join("?" * len(chosen))
            using, more = ("TIMESTAMP ? AND TTL ?", [timestamp, ttl]) if ttl else ("TIMESTAMP ?", [timestamp])
            cql = f"INSERT INTO {name} ({', '.join(chosen)}) VALUES ({marks}) USING {using}"
            yield cql, [*chosen.values(), *more]
