"""The store: what was applied, the journal, the points, the meters."""

from pathlib import Path
from typing import TYPE_CHECKING

from tallymark.settings import Settings

if TYPE_CHECKING:
    from tallymark.store.sqlite.sink import SqliteSink
    from tallymark.store.sqlite.store import SqliteStore

__all__ = ["open_file", "open_sink", "open_store"]


def open_store(settings: Settings) -> "SqliteStore":
    """The store that these settings name; makes its file if there is none."""
    return open_file(settings.store_file)


def open_file(path: Path) -> "SqliteStore":
    """The store in this file: for processes that were handed a path and no settings."""
    # Here, not above: the collector needs `store.model` and has no Polars.
    from tallymark.store.sqlite.store import SqliteStore

    return SqliteStore(path)


def open_sink(settings: Settings) -> "SqliteSink":
    """Only the applied positions and what moves them: for a collector, which has no Polars."""
    from tallymark.store.sqlite import connection, schema
    from tallymark.store.sqlite.sink import SqliteSink

    settings.store_file.parent.mkdir(parents=True, exist_ok=True)
    connections = connection.Connections(settings.store_file, connection.connect)
    schema.prepare(connections.mine())
    return SqliteSink(connections)
