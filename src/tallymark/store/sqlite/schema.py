"""The tables of the store's file."""

import sqlite3
import time
from pathlib import Path

from tallymark.store.format import VERSION, newer
from tallymark.store.grains import EARLIEST_S, GRAINS, LATEST_S, ROLLED
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite import documents, ledger, table_parts, windows
from tallymark.store.sqlite.connection import Connect, Connections, writing
from tallymark.store.sqlite.migrations import read_version, upgrade
from tallymark.store.sqlite.registry import add_all_built_ins, lacks_built_ins

_TABLES = (
    # Single numbers: those of `store.model.Marks`, and the raw bytes of all letters kept.
    "CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    # What is counted.
    "CREATE TABLE meters (meter_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,"
    " version INTEGER NOT NULL, set_id INTEGER NOT NULL, definition TEXT NOT NULL, created_ms INTEGER NOT NULL,"
    " deleted_ms INTEGER, selection TEXT, UNIQUE (tenant, name, version))",
    "CREATE TABLE live_from (meter_id INTEGER, partition INTEGER, offset INTEGER NOT NULL,"
    " PRIMARY KEY (meter_id, partition)) WITHOUT ROWID",
    "CREATE TABLE broken (meter_id INTEGER, partition INTEGER, offset INTEGER NOT NULL, reason TEXT NOT NULL,"
    " PRIMARY KEY (meter_id, partition)) WITHOUT ROWID",
    # What a meter did not count while it was broken.
    "CREATE TABLE gaps (meter_id INTEGER, partition INTEGER, start INTEGER, end INTEGER NOT NULL,"
    " missed INTEGER NOT NULL, PRIMARY KEY (meter_id, partition, start)) WITHOUT ROWID",
    # What was applied.
    "CREATE TABLE logs (stream TEXT PRIMARY KEY, identity TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE positions (stream TEXT, partition INTEGER, next INTEGER NOT NULL,"
    " PRIMARY KEY (stream, partition)) WITHOUT ROWID",
    "CREATE TABLE journal (partition INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,"
    " sequence INTEGER NOT NULL, applied_ms INTEGER NOT NULL, deltas BLOB NOT NULL, UNIQUE (partition, start))",
    "CREATE INDEX journal_in_order ON journal (sequence)",
    ledger.TABLE,
    "CREATE TABLE lags (sequence INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, events INTEGER NOT NULL,"
    " p50 REAL NOT NULL, p95 REAL NOT NULL, p99 REAL NOT NULL, highest REAL NOT NULL)",
    "CREATE INDEX lags_by_time ON lags (at_ms)",
    # What could not be counted; the counts stay when old letters go.
    "CREATE TABLE letters (letter_id INTEGER PRIMARY KEY AUTOINCREMENT, hop TEXT NOT NULL, reason TEXT NOT NULL,"
    " detail TEXT NOT NULL, events INTEGER NOT NULL, raw BLOB NOT NULL, at_ms INTEGER NOT NULL,"
    " partition INTEGER NOT NULL, offset INTEGER NOT NULL, tenant TEXT NOT NULL DEFAULT 'main')",
    "CREATE TABLE letter_counts (tenant TEXT, hop TEXT, reason TEXT, events INTEGER NOT NULL,"
    " last_ms INTEGER NOT NULL, PRIMARY KEY (tenant, hop, reason)) WITHOUT ROWID",
    "CREATE TABLE buried (partition INTEGER, offset INTEGER, PRIMARY KEY (partition, offset)) WITHOUT ROWID",
    "CREATE INDEX letters_by_kind ON letters (tenant, hop, reason)",
    # Series of a set of points: labels are a JSON array in the meter's order; '' is the sum of all its series.
    "CREATE TABLE series (series_id INTEGER PRIMARY KEY, set_id INTEGER NOT NULL, labels TEXT NOT NULL,"
    " UNIQUE (set_id, labels))",
    "CREATE INDEX series_of_meter ON series (set_id)",
    "CREATE TABLE series_labels (set_id INTEGER, key INTEGER, value TEXT, series_id INTEGER,"
    " PRIMARY KEY (set_id, key, value, series_id)) WITHOUT ROWID",
    # How far each grain that is made from a finer one has come.
    "CREATE TABLE rolled (grain_s INTEGER PRIMARY KEY, through_s INTEGER NOT NULL)",
    # Coarse buckets that hold finer points not yet rolled, and how far the one in progress is.
    "CREATE TABLE unrolled (grain_s INTEGER, bucket_s INTEGER, PRIMARY KEY (grain_s, bucket_s)) WITHOUT ROWID",
    # At most one row: the fold under way.
    "CREATE TABLE folding (through INTEGER NOT NULL, meter INTEGER NOT NULL, series TEXT NOT NULL)",
    "CREATE TABLE rolling (grain_s INTEGER PRIMARY KEY, bucket_s INTEGER NOT NULL, through_series INTEGER NOT NULL)",
    *documents.TABLES,
    *windows.TABLES,
    *table_parts.TABLES,
    "CREATE TABLE beats (role TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID",
    # A table a grain: an upsert takes 4-16 % less CPU than with the grain in the key (four runs of each). The columns
    # are those of `aggregates.columns`, spelled out because the collector makes stores too and has no Polars.
    *(
        f"CREATE TABLE points_{grain_s} (series_id INTEGER, bucket_s INTEGER, n INTEGER NOT NULL,"
        " n_value INTEGER NOT NULL, sum REAL, exact_high INTEGER, exact_low INTEGER, min REAL, max REAL, sketch BLOB,"
        " last_ms INTEGER, last REAL, version INTEGER,"
        " PRIMARY KEY (series_id, bucket_s)) WITHOUT ROWID"
        for grain_s in GRAINS
    ),
)

_MARKS = {
    "revision": 1,
    "journal_end": 0,
    "folded": 0,
    "first_s": LATEST_S,
    "last_s": EARLIEST_S,
    "letter_bytes": 0,
}


def open_connections(path: Path, connect: Connect) -> Connections:
    """To a store of the present format: makes it if there is none, migrates an older one, refuses a newer one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    upgrade(path, connect)
    connections = Connections(path, connect)
    _prepare(connections.mine())
    return connections


def _prepare(connection: sqlite3.Connection) -> None:
    """Makes the tables of a new file; several processes may do so at once."""
    _enter_wal(connection)
    if read_version(connection) == 0:
        with writing(connection):
            if read_version(connection) == 0:
                _create(connection)
    found = read_version(connection)
    if found != VERSION:  # known only to the write-ahead log
        raise StoreError(newer("the store", found))
    if lacks_built_ins(connection):  # another version made the store
        with writing(connection):
            add_all_built_ins(connection)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)
    connection.executemany("INSERT INTO marks VALUES (?, ?)", _MARKS.items())
    connection.executemany("INSERT INTO rolled VALUES (?, ?)", [(grain_s, EARLIEST_S) for grain_s in ROLLED])
    add_all_built_ins(connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _enter_wal(connection: sqlite3.Connection, *, deadline_s: float = 10.0) -> None:
    # The switch needs the file for itself and does not wait for it, whatever the busy timeout is.
    give_up = time.monotonic() + deadline_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
