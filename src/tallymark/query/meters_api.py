"""Meters over HTTP: what is counted, and changing it."""

from typing import Any

import msgspec

from tallymark.evaluation.values import since
from tallymark.events.moments import rfc3339_ms, rfc3339_s
from tallymark.events.tenants import DEMO, MAIN
from tallymark.fidelity.meters import beside, series_counts, series_of
from tallymark.fidelity.roles import roles
from tallymark.http import Problem
from tallymark.meters import BUILT_IN, MeterError, from_mapping, to_mapping
from tallymark.meters.model import QUERIED, Meter
from tallymark.query.parameters import LABEL
from tallymark.query.retrying import of_a_moment
from tallymark.query.routes import MOST_BODY_BYTES
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_room, require_tenant
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Registry, UnknownMeter
from tallymark.store.queried import select_queried, selections
from tallymark.store.selections import Kept, Selection
from tallymark.suggest import suggest
from tallymark.tenants import PARAMETER as TENANT


def known_meter(registry: Registry, tenant: str, name: str) -> RegisteredMeter:
    """The newest version; 404 with the nearest name in the tenant if there is none."""
    try:
        return registry.meter(tenant, name)
    except UnknownMeter:
        raise _unknown(registry, tenant, name) from None


def list_meters(sources: Sources, tenant: str) -> dict[str, Any]:
    meters = sources.store.registry.meters(tenant)
    if not meters:
        require_tenant(sources.store.registry, tenant)
    return {"meters": [to_json(meter) for meter in meters]}


def get_meter(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    found = known_meter(sources.store.registry, tenant, name)
    gaps = [
        {"partition": gap.partition, "start": gap.start, "end": gap.end, "missed": gap.missed}
        for gap in sources.store.registry.gaps(found.meter_id)
    ]
    alive = roles(sources.settings.run_folder, sources.store.heartbeats.beats(), now_ms=sources.clock_ms())
    uncounted = of_a_moment(lambda: _beside(sources, found)) if found.meter.late or found.kept else {}
    return {**to_json(found), **series_of(found, series_counts(alive)), **uncounted, "gaps": gaps}


def _beside(sources: Sources, registered: RegisteredMeter) -> dict[str, Any]:
    with sources.store.snapshots.take() as snapshot:
        return beside(snapshot, registered)


def put_meter(sources: Sources, tenant: str, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """(status, answer): 201 for a new meter, 200 for a new version or no change. A new tenant begins with it."""
    meter = _definition(name, body)
    before = {known.meter.name: known for known in sources.store.registry.meters(tenant)}.get(name)
    if before is not None and before.built_in and not meter.differs_in_keep_alone(before.meter):
        raise _built_in(name, "redefined")
    is_new_tenant = require_room(sources.store.registry, tenant)
    if is_new_tenant and name in BUILT_IN and not (meter.keep and meter.differs_in_keep_alone(BUILT_IN[name])):
        raise _built_in(name, "redefined")
    after = sources.store.registry.put_meter(
        tenant, meter, now_ms=sources.clock_ms(), selection=_selection(sources, tenant, meter)
    )
    # Another meter of that name may be what a saved query of the tenant meant.
    select_queried(sources.store, now_ms=sources.clock_ms(), tenant=tenant)
    # A typing error in a tenant's name would otherwise go unnoticed.
    note = _note(before, after) + (f"; {tenant} is a new tenant" if is_new_tenant else "")
    return (201 if before is None else 200), {**to_json(after), "note": note}


def _selection(sources: Sources, tenant: str, meter: Meter) -> Selection | None:
    """What saved queries select of it, so that it drops nothing of that from its first moment on."""
    if meter.keep != QUERIED:
        return None
    others = [known.meter for known in sources.store.registry.meters(tenant) if known.meter.name != meter.name]
    return selections(sources.store, tenant, [*others, meter])[meter.name]


def delete_meter(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    gone = known_meter(sources.store.registry, tenant, name)
    if gone.built_in:
        raise _built_in(name, "deleted")
    sources.store.registry.delete_meter(tenant, name, now_ms=sources.clock_ms())
    return {"deleted": name, "version": gone.version, "note": f"{name} stops counting from the next batch on"}


def resume_meter(sources: Sources, tenant: str, name: str) -> dict[str, Any]:
    before = known_meter(sources.store.registry, tenant, name)
    after = sources.store.registry.resume_meter(tenant, name)
    select_queried(sources.store, now_ms=sources.clock_ms(), tenant=tenant)
    return {**to_json(after), "note": _resumed(before, after)}


def to_json(registered: RegisteredMeter) -> dict[str, Any]:
    """The definition as users write it, with its version and state."""
    return {
        **to_mapping(registered.meter),
        "labels": list(registered.labels),
        "version": registered.version,
        "created": rfc3339_ms(registered.created_ms) if registered.created_ms else None,
        "built_in": registered.built_in,
        "broken": registered.broken,
        "missed": registered.missed,
        **since(registered, registered.meter.compute),
        **({} if registered.kept is None else _kept(registered.kept)),
    }


def _kept(kept: Kept) -> dict[str, Any]:
    """The metrics that are stored, each with since when, and since when all are; null is from the beginning."""
    moments = {name: rfc3339_ms(at_ms) if at_ms else None for name, at_ms in sorted(kept.since_ms.items())}
    every_ms = kept.every_since_ms
    every = {} if every_ms is None else {"every_metric_since": rfc3339_ms(every_ms) if every_ms else None}
    return {"kept": moments, **every}


def _unknown(registry: Registry, tenant: str, name: str) -> Problem:
    require_tenant(registry, tenant, otherwise=_as_label(registry, tenant, name))
    if tenant == MAIN and any(known.meter.name == name for known in registry.meters(DEMO)):
        where = f"; the demo's traffic has one: add ?tenant={DEMO}, or --tenant {DEMO} to a command"
        return Problem(404, "unknown_meter", f"you have no meter {name[:80]!r}{where}", meter=name[:80])
    near = suggest(name, sorted(known.meter.name for known in registry.meters(tenant)), what="there are")
    whose = "" if tenant == MAIN else f" in the tenant {tenant}"
    return Problem(404, "unknown_meter", f"there is no meter {name[:80]!r}{whose}{near}", meter=name[:80])


def _as_label(registry: Registry, tenant: str, name: str) -> str:
    """For whoever took `?tenant=` for a filter, because the meter has a label of that name."""
    labels = next((known.labels for known in registry.meters(MAIN) if known.meter.name == name), ())
    return f"; to filter by the label {TENANT}, write {LABEL}{TENANT}={tenant}" if TENANT in labels else ""


def read_definition(body: bytes) -> Any:
    """The JSON of a definition, whatever it defines."""
    if len(body) > MOST_BODY_BYTES:
        detail = f"a definition of {len(body):,} bytes exceeds {MOST_BODY_BYTES:,}"
        raise Problem(413, "too_large", detail, limit=MOST_BODY_BYTES, actual=len(body))
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", f"the definition is not JSON: {error}") from None


def _definition(name: str, body: bytes) -> Meter:
    try:
        return from_mapping(read_definition(body), name=name)
    except MeterError as error:
        if error.code == "built_in":
            raise _built_in(name, "redefined") from None
        raise ill_defined(error) from None


def ill_defined(error: MeterError) -> Problem:
    flaws = [{"code": flaw.code, "detail": flaw.detail, "path": flaw.path} for flaw in error.flaws]
    return Problem(400, error.code, str(error), errors=flaws)


def _note(before: RegisteredMeter | None, after: RegisteredMeter) -> str:
    name = after.meter.name
    if before is None:
        return f"{name} counts from now on; counting past events (`meters backfill {name}`) will come with the archive"
    if before.version == after.version:
        return "nothing changed"
    if before.set_id == after.set_id:
        new = [
            function
            for function in after.meter.compute
            if (added := after.added_for(function)) is not None and added.version == after.version
        ]
        note = f"version {after.version} goes on with the numbers of version {before.version}"
        if not new:
            return note
        # The minute of the change holds events of both versions, so the next one is the first to have an answer.
        whole = rfc3339_s((after.created_ms // 60_000 + 1) * 60)
        return f"{note}; {' and '.join(new)} can be asked for what is counted from now on: add from={whole}"
    return (
        f"version {after.version} counts from now on, and answers cover only this version; "
        f"recounting past events (`meters recount {name}`) will come with the archive"
    )


def _resumed(before: RegisteredMeter, after: RegisteredMeter) -> str:
    name = after.meter.name
    if before.broken is None:
        return f"{name} is not broken; nothing changed"
    return (
        f"{name} counts again from the next batch on; the {after.missed:,} events that it missed stay on record as"
        " gaps until the archive can fill them"
    )


def _built_in(name: str, what: str) -> Problem:
    detail = f"the meter {name!r} is built in and cannot be {what}; choose another name"
    return Problem(409, "built_in", detail, meter=name)
