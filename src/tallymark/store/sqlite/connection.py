"""Connections to the store's file, and the two kinds of transaction it knows."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUSY_TIMEOUT_MS = 20_000
# Pages of 4 kB. The keeper checkpoints long before; this bounds the log when it is away.
AUTOCHECKPOINT_PAGES = 32_000
WAL_LIMIT_BYTES = 64_000_000

Connect = Callable[[Path], sqlite3.Connection]


def connect(path: Path, *, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """One connection in autocommit, so that every transaction in this package is begun by name.

    A commit does not wait for the disk (synchronous = NORMAL): after a power cut the store may be some batches
    younger, never torn, and its positions say where in the log to go on.
    """
    connection = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=factory,
    )
    for pragma in (
        "synchronous = NORMAL",
        "cache_size = -32768",
        "mmap_size = 1073741824",
        "temp_store = MEMORY",
        f"wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}",
        f"journal_size_limit = {WAL_LIMIT_BYTES}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that owns the right to write from its first statement on, so that what it reads stays true."""
    with _transaction(connection, "BEGIN IMMEDIATE"):
        yield


@contextmanager
def writing_durably(connection: sqlite3.Connection) -> Iterator[None]:
    """As `writing`, and on disk when it ends: for what nobody could apply again from the log."""
    connection.execute("PRAGMA synchronous = FULL")
    try:
        with writing(connection):
            yield
    finally:
        connection.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that sees one moment of the store, however long it looks."""
    with _transaction(connection, "BEGIN"):
        yield


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        # The first error is the one to report; SQLite itself undoes what an unfinished transaction wrote.
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


class Connections:
    """A connection for each thread, and spare ones for snapshots, which may overlap within a thread."""

    def __init__(self, path: Path, connect: Connect) -> None:
        self._path = path
        self._connect = connect
        self._lock = threading.Lock()
        self._by_thread: dict[threading.Thread, sqlite3.Connection] = {}
        self._spare: list[sqlite3.Connection] = []
        self._closed = False

    def mine(self) -> sqlite3.Connection:
        thread = threading.current_thread()
        connection = self._by_thread.get(thread)
        if connection is None:
            connection = self._open()
            with self._lock:
                self._by_thread[thread] = connection
                self._forget_ended_threads()
        return connection

    @contextmanager
    def spare(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._spare.pop() if self._spare else None
        connection = connection or self._open()
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed and not connection.in_transaction
                if keep:
                    self._spare.append(connection)
            if not keep:
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections = [*self._by_thread.values(), *self._spare]
            self._by_thread.clear()
            self._spare.clear()
        for connection in connections:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError(f"the store {self._path} is closed")
        return self._connect(self._path)

    def _forget_ended_threads(self) -> None:
        for thread in [thread for thread in self._by_thread if not thread.is_alive()]:
            self._by_thread.pop(thread).close()
