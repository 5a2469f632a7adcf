"""Migrations: a store that an older version wrote becomes one of the present format, step by step.

Each step is one transaction that also moves the version, so one that is killed is done again from where it was. They
run while no other process has the file open; a newer file is refused before anything in it is touched.
"""

import fcntl
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tallymark.store.format import VERSION, newer
from tallymark.store.protocol import StoreError
from tallymark.store.sqlite.connection import Connect, writing_durably

WAIT_S = 10.0
"""for processes that are about to close the file"""
OLDEST = 2

_MAGIC = b"SQLite format 3\0"
# Where SQLite keeps `user_version` in a file, as four bytes.
_VERSION_PLACE = 60

logger = logging.getLogger(__name__)


def upgrade(path: Path, connect: Connect, *, wait_s: float = WAIT_S) -> None:
    """Brings a file that is there to the present format, unless it has it."""
    found = _version_in_file(path)
    if found > VERSION:
        raise StoreError(newer(f"the store {path.name}", found))
    if found == VERSION or not path.exists():
        return
    # What the file says may be older than what its write-ahead log says.
    found = _version_read_only(path)
    if found > VERSION:
        raise StoreError(newer(f"the store {path.name}", found))
    if found in (0, VERSION):
        return
    # One process migrates; the others wait, with the file closed, so that it can be alone.
    with _alone_among_new(path), closing(connect(path)) as connection:
        found = read_version(connection)
        if found >= VERSION:
            return  # another process was faster
        if found < OLDEST:
            raise StoreError(f"the store {path.name} has format {found}, which was never released")
        _leave_wal(connection, path, wait_s)
        for version in range(found + 1, VERSION + 1):
            logger.info("migrating the store %s from format %d to %d", path.name, version - 1, version)
            with writing_durably(connection):
                _step(connection, version)
                connection.execute(f"PRAGMA user_version = {version}")


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _step(connection: sqlite3.Connection, version: int) -> None:
    """Within a transaction. The statements of a step stay as they were when its version was released."""
    _add_columns(connection, version)
    if version in _STEPS:
        _STEPS[version](connection)


def _add_columns(connection: sqlite3.Connection, version: int) -> None:
    """The aggregates that are new in this version. Null in all rows that there are; SQLite writes none of them."""
    from tallymark.aggregates.columns import COLUMNS  # here, not above: see `schema`

    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'points_*'")
    for (table,) in tables.fetchall():
        for column in COLUMNS:
            if column.since == version:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column.name} {column.sql_type}")


def _to_3(connection: sqlite3.Connection) -> None:
    # Two things that were added to format 2 without a new number.
    connection.execute(
        "CREATE TABLE IF NOT EXISTS gaps (meter_id INTEGER, partition INTEGER, start INTEGER, end INTEGER NOT NULL,"
        " missed INTEGER NOT NULL, PRIMARY KEY (meter_id, partition, start)) WITHOUT ROWID"
    )
    connection.execute("CREATE INDEX IF NOT EXISTS letters_by_kind ON letters (hop, reason)")
    connection.execute("CREATE TABLE rolled (grain_s INTEGER PRIMARY KEY, through_s INTEGER NOT NULL)")
    for grain_s, mark in ((3600, "hours_through"), (86400, "days_through")):
        connection.execute("INSERT INTO rolled SELECT ?, value FROM marks WHERE name = ?", (grain_s, mark))
        connection.execute("DELETE FROM marks WHERE name = ?", (mark,))
    for grain_s in (1, 10):
        connection.execute(
            f"CREATE TABLE points_{grain_s} (series_id INTEGER, bucket_s INTEGER, n INTEGER NOT NULL,"
            " n_value INTEGER NOT NULL, sum REAL, exact_high INTEGER, exact_low INTEGER, min REAL, max REAL,"
            " sketch BLOB, PRIMARY KEY (series_id, bucket_s)) WITHOUT ROWID"
        )


def _to_5(connection: sqlite3.Connection) -> None:
    terms = "accepted, counted, duplicate, dead, aside, unmatched, late"
    terms_kept = terms.replace(",", " INTEGER NOT NULL,") + " INTEGER NOT NULL"
    _rebuild(
        connection,
        "meters",
        "meter_id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
        " set_id INTEGER NOT NULL, definition TEXT NOT NULL, created_ms INTEGER NOT NULL, deleted_ms INTEGER,"
        " UNIQUE (tenant, name, version)",
        "meter_id, 'main', name, version, meter_id, definition, created_ms, deleted_ms",
    )
    _rebuild(
        connection,
        "ledger",
        f"tenant TEXT, partition INTEGER, {terms_kept}, PRIMARY KEY (tenant, partition)",
        f"'main', partition, {terms}",
        options="WITHOUT ROWID",
    )
    _rebuild(
        connection,
        "letter_counts",
        "tenant TEXT, hop TEXT, reason TEXT, events INTEGER NOT NULL, last_ms INTEGER NOT NULL,"
        " PRIMARY KEY (tenant, hop, reason)",
        "'main', hop, reason, events, last_ms",
        options="WITHOUT ROWID",
    )
    connection.execute("ALTER TABLE letters ADD COLUMN tenant TEXT NOT NULL DEFAULT 'main'")
    connection.execute("DROP INDEX letters_by_kind")
    connection.execute("CREATE INDEX letters_by_kind ON letters (tenant, hop, reason)")
    connection.executemany("INSERT INTO rolled VALUES (?, ?)", [(grain_s, -86_400 * 10**9) for grain_s in (10, 60)])
    connection.execute("ALTER TABLE series RENAME COLUMN meter_id TO set_id")
    connection.execute("ALTER TABLE series_labels RENAME COLUMN meter_id TO set_id")


def _to_6(connection: sqlite3.Connection) -> None:
    # Nothing was finer than a minute so far, and a mark is never beyond that of the finer grain.
    connection.execute(
        "UPDATE rolled SET through_s = (SELECT through_s FROM rolled WHERE grain_s = 3600) WHERE grain_s = 60"
    )
    connection.execute("DELETE FROM rolled WHERE grain_s = 10")


def _to_7(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE documents (kind TEXT, tenant TEXT, name TEXT, body TEXT NOT NULL, revision INTEGER NOT NULL,"
        " created_ms INTEGER NOT NULL, changed_ms INTEGER NOT NULL, PRIMARY KEY (kind, tenant, name)) WITHOUT ROWID"
    )
    connection.execute("CREATE TABLE document_changes (kind TEXT PRIMARY KEY, changes INTEGER NOT NULL) WITHOUT ROWID")
    connection.execute("CREATE TABLE shares (share INTEGER PRIMARY KEY, sequence INTEGER NOT NULL)")
    connection.execute(
        "CREATE TABLE lineages (share INTEGER, lineage_id INTEGER, tenant TEXT NOT NULL, name TEXT NOT NULL,"
        " digest TEXT NOT NULL, group_s INTEGER NOT NULL, from_s INTEGER NOT NULL, next_s INTEGER NOT NULL,"
        " due_s INTEGER NOT NULL, through_s INTEGER NOT NULL, windows INTEGER NOT NULL, stale_s INTEGER NOT NULL,"
        " stale_until_s INTEGER NOT NULL, problem TEXT NOT NULL, dropped INTEGER NOT NULL,"
        " PRIMARY KEY (share, lineage_id)) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE TABLE windows (lineage_id INTEGER, start_s INTEGER, body BLOB NOT NULL,"
        " PRIMARY KEY (lineage_id, start_s)) WITHOUT ROWID"
    )
    connection.execute("ALTER TABLE meters ADD COLUMN selection TEXT")
    connection.execute(
        "CREATE TABLE table_parts (part TEXT, chunk INTEGER, body BLOB NOT NULL, PRIMARY KEY (part, chunk))"
    )
    connection.execute(
        "CREATE TABLE table_part_names (part TEXT PRIMARY KEY, written_ms INTEGER NOT NULL) WITHOUT ROWID"
    )


def _rebuild(connection: sqlite3.Connection, table: str, columns: str, content: str, *, options: str = "") -> None:
    """A table with another key: SQLite can only make a new one."""
    connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    connection.execute(f"CREATE TABLE {table} ({columns}) {options}")
    connection.execute(f"INSERT INTO {table} SELECT {content} FROM old_{table}")
    connection.execute(f"DROP TABLE old_{table}")


_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {3: _to_3, 5: _to_5, 6: _to_6, 7: _to_7}


def _version_in_file(path: Path) -> int:
    """As the file says, without opening it as a database; 0 if it is not there."""
    try:
        with path.open("rb") as file:
            head = file.read(_VERSION_PLACE + 4)
    except FileNotFoundError:
        return 0
    # What is no database is refused as such when it is opened.
    return int.from_bytes(head[_VERSION_PLACE:], "big") if head.startswith(_MAGIC) else 0


def _version_read_only(path: Path) -> int:
    """As the database says, without changing a byte: a connection that may write would end its write-ahead log."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return read_version(connection)
    except sqlite3.OperationalError:
        return OLDEST  # not to be read so; whoever may write looks again


@contextmanager
def _alone_among_new(path: Path) -> Iterator[None]:
    with path.with_name(f"{path.name}.upgrade").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _leave_wal(connection: sqlite3.Connection, path: Path, wait_s: float) -> None:
    """Only a connection that is alone may do so; that is what proves that nobody else has the file open."""
    give_up = time.monotonic() + wait_s
    # From here on to the end of the connection: nobody opens it between the steps.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    while True:
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            if time.monotonic() > give_up:
                raise StoreError(
                    f"the store {path.name} must be migrated to format {VERSION}, but another process has it open;"
                    " stop every Tallymark that uses this data folder, then start again"
                ) from None
            time.sleep(0.05)
