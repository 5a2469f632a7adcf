"""The store: what was applied, the journal, the points, the meters."""

from pathlib import Path
from typing import TYPE_CHECKING

from tallymark.settings import Settings

if TYPE_CHECKING:
    from tallymark.store.sqlite.connection import Connections
    from tallymark.store.sqlite.registry import SqliteRegistry
    from tallymark.store.sqlite.sink import SqliteSink
    from tallymark.store.sqlite.store import SqliteStore

__all__ = ["open_file", "open_registry", "open_sink", "open_store"]


def open_store(settings: Settings) -> "SqliteStore":
    """The store that these settings name; makes its file if there is none."""
    return open_file(settings.store_file)


def open_file(path: Path) -> "SqliteStore":
    """The store in this file: for processes that were handed a path and no settings."""
    # Here, not above: the collector needs `store.model` and has no Polars.
    from tallymark.store.sqlite.store import SqliteStore

    return SqliteStore(path)


def open_sink(path: Path) -> "SqliteSink":
    """Only the applied positions and what moves them, without Polars."""
    from tallymark.store.sqlite.sink import SqliteSink

    return SqliteSink(_connections(path))


def open_registry(path: Path) -> "SqliteRegistry":
    """Only the meters, without Polars."""
    from tallymark.store.sqlite.registry import SqliteRegistry

    return SqliteRegistry(_connections(path))


def _connections(path: Path) -> "Connections":
    from tallymark.store.sqlite import connection, schema

    path.parent.mkdir(parents=True, exist_ok=True)
    connections = connection.Connections(path, connection.connect)
    schema.prepare(connections.mine())
    return connections
