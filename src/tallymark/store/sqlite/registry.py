"""The registry: definitions of meters, their versions, since where they count and since where they are broken."""

import sqlite3

import msgspec

from tallymark.aggregates.functions import columns_for
from tallymark.meters.model import Meter
from tallymark.store.model import Gap, LiveMeters, RegisteredMeter
from tallymark.store.registered import check_definable, check_deletable, due_built_ins, find, live_of
from tallymark.store.sqlite.connection import Connections, reading, writing_durably
from tallymark.store.sqlite.marks import add_to_mark, read_mark
from tallymark.store.sqlite.positions import EVENTS

# The newest version of every meter that is not deleted. A version is broken as a whole, whichever partition it was.
_NEWEST = """
    SELECT meter_id, version, definition, created_ms,
           (SELECT reason FROM broken WHERE broken.meter_id = meters.meter_id ORDER BY partition LIMIT 1),
           (SELECT COALESCE(SUM(missed), 0) FROM gaps WHERE gaps.meter_id = meters.meter_id)
      FROM meters
     WHERE deleted_ms IS NULL
       AND version = (SELECT MAX(version) FROM meters AS versions WHERE versions.name = meters.name)
     ORDER BY name
"""


class SqliteRegistry:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._live: LiveMeters | None = None

    def live_meters(self) -> LiveMeters:
        """Asked before every batch: reads one number unless something changed."""
        connection = self._connections.mine()
        live = self._live
        if live is None or live.revision != read_mark(connection, "revision"):
            with reading(connection):
                revision = read_mark(connection, "revision")
                live = live_of(revision, _newest(connection))
            self._live = live
        return live

    def meters(self) -> list[RegisteredMeter]:
        return _newest(self._connections.mine())

    def meter(self, name: str) -> RegisteredMeter:
        return find(self.meters(), name)

    def put_meter(self, meter: Meter, *, now_ms: int) -> RegisteredMeter:
        connection = self._connections.mine()
        with writing_durably(connection):
            known = {registered.meter.name: registered for registered in _newest(connection)}.get(meter.name)
            if known is not None and known.meter == meter:
                return known
            check_definable(meter, known)
            return add_version(connection, meter, created_ms=now_ms)

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        """Its points stay; defined again, it is a new version that counts from zero."""
        connection = self._connections.mine()
        with writing_durably(connection):
            check_deletable(find(_newest(connection), name))
            connection.execute("UPDATE meters SET deleted_ms = ? WHERE name = ? AND deleted_ms IS NULL", (now_ms, name))
            add_to_mark(connection, "revision", 1)

    def live_from(self, meter_id: int) -> dict[int, int]:
        """partition -> first offset that this version of a meter counted."""
        rows = self._connections.mine().execute(
            "SELECT partition, offset FROM live_from WHERE meter_id = ? ORDER BY partition", (meter_id,)
        )
        return dict(rows.fetchall())

    def broken_since(self, meter_id: int) -> dict[int, tuple[int, str]]:
        """partition -> (start of the first stretch it failed on, why)."""
        rows = self._connections.mine().execute(
            "SELECT partition, offset, reason FROM broken WHERE meter_id = ? ORDER BY partition", (meter_id,)
        )
        return {partition: (offset, reason) for partition, offset, reason in rows}

    def resume_meter(self, name: str) -> RegisteredMeter:
        connection = self._connections.mine()
        with writing_durably(connection):
            meter_id = find(_newest(connection), name).meter_id
            # The gap of a break that a version without gaps noted begins there; what it missed nobody counted. A break
            # that followed a resume at once lies in the gap of the one before.
            connection.execute(
                "INSERT OR IGNORE INTO gaps SELECT meter_id, partition, offset, COALESCE((SELECT next FROM positions"
                " WHERE stream = ? AND positions.partition = broken.partition), offset), 0"
                " FROM broken WHERE meter_id = ? AND NOT EXISTS (SELECT 1 FROM gaps"
                " WHERE gaps.meter_id = broken.meter_id AND gaps.partition = broken.partition"
                " AND gaps.end > broken.offset)",
                (EVENTS, meter_id),
            )
            if connection.execute("DELETE FROM broken WHERE meter_id = ?", (meter_id,)).rowcount > 0:
                add_to_mark(connection, "revision", 1)
            return find(_newest(connection), name)

    def gaps(self, meter_id: int) -> list[Gap]:
        rows = self._connections.mine().execute(
            "SELECT partition, start, end, missed FROM gaps WHERE meter_id = ? ORDER BY partition, start", (meter_id,)
        )
        return [Gap(*row) for row in rows]


def add_version(connection: sqlite3.Connection, meter: Meter, *, created_ms: int) -> RegisteredMeter:
    """Within a transaction."""
    version = 1 + int(
        connection.execute("SELECT COALESCE(MAX(version), 0) FROM meters WHERE name = ?", (meter.name,)).fetchone()[0]
    )
    inserted = connection.execute(
        "INSERT INTO meters (name, version, definition, created_ms) VALUES (?, ?, ?, ?)",
        (meter.name, version, msgspec.json.encode(meter).decode(), created_ms),
    )
    add_to_mark(connection, "revision", 1)
    meter_id = inserted.lastrowid
    assert meter_id is not None
    return RegisteredMeter(meter_id, version, meter, created_ms)


def due(connection: sqlite3.Connection) -> list[Meter]:
    """The built-in meters that this store does not have, or has as another version of Tallymark defined them."""
    return due_built_ins(_newest(connection))


def add_due(connection: sqlite3.Connection) -> None:
    """Within a transaction."""
    for meter in due(connection):
        add_version(connection, meter, created_ms=0)


def used_columns(connection: sqlite3.Connection) -> frozenset[str]:
    """Those that any meter there ever was keeps."""
    found: set[str] = set()
    for (definition,) in connection.execute("SELECT definition FROM meters"):
        meter = msgspec.json.decode(definition, type=Meter)
        found |= columns_for(("count", *meter.compute), decimals=meter.decimals)
    return frozenset(found)


def _newest(connection: sqlite3.Connection) -> list[RegisteredMeter]:
    return [
        RegisteredMeter(meter_id, version, msgspec.json.decode(definition, type=Meter), created_ms, broken, missed)
        for meter_id, version, definition, created_ms, broken, missed in connection.execute(_NEWEST).fetchall()
    ]
