"""The registry: definitions of meters, their versions, since where they count and since where they are broken."""

import sqlite3

import msgspec

from tallymark.aggregates.functions import VERSION_COLUMN, columns_for
from tallymark.events.tenants import MAIN
from tallymark.meters.model import Meter
from tallymark.store.model import Gap, LiveMeters, RegisteredMeter
from tallymark.store.registered import (
    Version,
    check_definable,
    check_deletable,
    due_built_ins,
    find,
    following,
    is_behind,
    is_changed,
    live_of,
    newest_of,
)
from tallymark.store.selections import Selection, Step
from tallymark.store.sqlite.connection import Connections, reading, writing_durably
from tallymark.store.sqlite.marks import add_to_mark, read_mark
from tallymark.store.sqlite.positions import EVENTS

_VERSIONS = "SELECT meter_id, tenant, version, set_id, definition, created_ms, deleted_ms, selection FROM meters"


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

    def tenants(self) -> list[str]:
        rows = self._connections.mine().execute("SELECT DISTINCT tenant FROM meters ORDER BY tenant")
        return [tenant for (tenant,) in rows]

    def add_tenant(self, tenant: str) -> None:
        connection = self._connections.mine()
        with writing_durably(connection):
            _begin_tenant(connection, tenant)

    def all_meters(self) -> list[RegisteredMeter]:
        return _newest(self._connections.mine())

    def meters(self, tenant: str) -> list[RegisteredMeter]:
        return _newest_of(self._connections.mine(), tenant)

    def meter(self, tenant: str, name: str) -> RegisteredMeter:
        found = _newest(self._connections.mine(), "WHERE tenant = ? AND name = ?", tenant, name)
        return found[0] if found else find(self.meters(tenant), name)

    def put_meter(
        self, tenant: str, meter: Meter, *, now_ms: int, selection: Selection | None = None
    ) -> RegisteredMeter:
        connection = self._connections.mine()
        with writing_durably(connection):
            _begin_tenant(connection, tenant)
            known = {registered.meter.name: registered for registered in _newest_of(connection, tenant)}.get(meter.name)
            if known is not None and not is_changed(known, meter, selection):
                return known
            check_definable(meter, known)
            _add_version(connection, tenant, meter, created_ms=now_ms, selection=selection)
            return find(_newest_of(connection, tenant), meter.name)

    def select(self, tenant: str, name: str, selection: Selection, *, now_ms: int) -> bool:
        connection = self._connections.mine()
        with writing_durably(connection):
            found = _newest(connection, "WHERE tenant = ? AND name = ?", tenant, name)
            if not found:
                return False
            (known,) = found
            if is_changed(known, known.meter, selection):
                _add_version(connection, tenant, known.meter, created_ms=now_ms, selection=selection)
                return True
            if is_behind(known, selection):
                connection.execute(
                    "UPDATE meters SET selection = json_set(selection, '$.as_of', ?) WHERE meter_id = ?",
                    (selection.as_of, known.meter_id),
                )
            return False

    def delete_meter(self, tenant: str, name: str, *, now_ms: int) -> None:
        """Its points stay; defined again, it is a new version that counts from zero."""
        connection = self._connections.mine()
        with writing_durably(connection):
            check_deletable(find(_newest_of(connection, tenant), name))
            connection.execute(
                "UPDATE meters SET deleted_ms = ? WHERE tenant = ? AND name = ? AND deleted_ms IS NULL",
                (now_ms, tenant, name),
            )
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

    def resume_meter(self, tenant: str, name: str) -> RegisteredMeter:
        connection = self._connections.mine()
        with writing_durably(connection):
            meter_id = find(_newest_of(connection, tenant), name).meter_id
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
            return find(_newest_of(connection, tenant), name)

    def gaps(self, meter_id: int) -> list[Gap]:
        rows = self._connections.mine().execute(
            "SELECT partition, start, end, missed FROM gaps WHERE meter_id IN"
            " (SELECT meter_id FROM meters WHERE set_id = (SELECT set_id FROM meters WHERE meter_id = ?))"
            " ORDER BY partition, start",
            (meter_id,),
        )
        return [Gap(*row) for row in rows]


def _add_version(
    connection: sqlite3.Connection, tenant: str, meter: Meter, *, created_ms: int, selection: Selection | None = None
) -> None:
    """Within a transaction."""
    known = _versions(connection, "WHERE tenant = ? AND name = ?", tenant, meter.name)
    version, set_id, change = following(known, meter, selection)
    meter_id = 1 + int(connection.execute("SELECT COALESCE(MAX(meter_id), 0) FROM meters").fetchone()[0])
    connection.execute(
        "INSERT INTO meters (meter_id, tenant, name, version, set_id, definition, created_ms, selection)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            meter_id,
            tenant,
            meter.name,
            version,
            set_id or meter_id,
            msgspec.json.encode(meter).decode(),
            created_ms,
            None if change is None else msgspec.json.encode(change).decode(),
        ),
    )
    add_to_mark(connection, "revision", 1)


def lacks_built_ins(connection: sqlite3.Connection) -> bool:
    """Whether the store is new, or some tenant has built-in meters as another version of Tallymark defined them."""
    return any(due_built_ins(known) for known in _by_tenant(connection).values())


def add_all_built_ins(connection: sqlite3.Connection) -> None:
    """Within a transaction: to every tenant."""
    for tenant, known in _by_tenant(connection).items():
        for meter in due_built_ins(known):
            _add_version(connection, tenant, meter, created_ms=0)


def _begin_tenant(connection: sqlite3.Connection, tenant: str) -> None:
    """Within a transaction. Only of one without any: a user may have had a meter before there was one built in."""
    if not connection.execute("SELECT 1 FROM meters WHERE tenant = ? LIMIT 1", (tenant,)).fetchall():
        for meter in due_built_ins([]):
            _add_version(connection, tenant, meter, created_ms=0)


def _by_tenant(connection: sqlite3.Connection) -> dict[str, list[RegisteredMeter]]:
    found: dict[str, list[RegisteredMeter]] = {MAIN: []}
    for (tenant,) in connection.execute("SELECT DISTINCT tenant FROM meters"):
        found[tenant] = []
    for registered in _newest(connection):
        found[registered.tenant].append(registered)
    return found


def any_share_points(connection: sqlite3.Connection) -> bool:
    """Whether any meter has versions that share their points."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM meters WHERE set_id <> meter_id)").fetchone()[0])


def all_sets(connection: sqlite3.Connection) -> list[tuple[int, Meter]]:
    """Every set of points there ever was, with a definition that has it: those of deleted meters are kept."""
    rows = connection.execute("SELECT set_id, definition FROM meters WHERE set_id = meter_id")
    return [(set_id, msgspec.json.decode(definition, type=Meter)) for set_id, definition in rows]


def used_columns(connection: sqlite3.Connection) -> frozenset[str]:
    """Those that any meter there ever was keeps."""
    found: set[str] = set()
    for meter_id, set_id, definition in connection.execute("SELECT meter_id, set_id, definition FROM meters"):
        meter = msgspec.json.decode(definition, type=Meter)
        found |= columns_for(("count", *meter.compute), decimals=meter.decimals)
        if meter_id != set_id:
            found.add(VERSION_COLUMN)
    return frozenset(found)


def _newest_of(connection: sqlite3.Connection, tenant: str) -> list[RegisteredMeter]:
    return _newest(connection, "WHERE tenant = ?", tenant)


def _newest(connection: sqlite3.Connection, condition: str = "", *parameters: str) -> list[RegisteredMeter]:
    """Of those that the condition picks: all versions of a meter, or none."""
    versions = _versions(connection, condition, *parameters)
    broken: dict[int, str] = {}
    for meter_id, reason in connection.execute("SELECT meter_id, reason FROM broken ORDER BY meter_id, partition"):
        broken.setdefault(meter_id, reason)
    missed = dict(connection.execute("SELECT meter_id, SUM(missed) FROM gaps GROUP BY meter_id").fetchall())
    return newest_of(versions, broken=broken, missed=missed)


def _versions(connection: sqlite3.Connection, condition: str = "", *parameters: str) -> list[Version]:
    return [
        Version(
            meter_id,
            tenant,
            version,
            set_id,
            msgspec.json.decode(definition, type=Meter),
            created_ms,
            deleted_ms,
            None if selection is None else msgspec.json.decode(selection, type=Step),
        )
        for meter_id, tenant, version, set_id, definition, created_ms, deleted_ms, selection in connection.execute(
            f"{_VERSIONS} {condition}", parameters
        ).fetchall()
    ]
