"""Meters over HTTP: what is counted, and changing it."""

from typing import Any

import msgspec

from tallymark.events.moments import rfc3339_ms
from tallymark.events.tenants import MAIN
from tallymark.http import Problem
from tallymark.meters import MeterError, from_mapping, to_mapping
from tallymark.query.sources import Sources
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Registry, UnknownMeter
from tallymark.suggest import suggest

MOST_BODY_BYTES = 64_000


def known_meter(registry: Registry, name: str) -> RegisteredMeter:
    """The newest version; 404 with the nearest name if there is none."""
    try:
        return registry.meter(MAIN, name)
    except UnknownMeter:
        near = suggest(name, sorted(known.meter.name for known in registry.meters(MAIN)), what="there are")
        raise Problem(404, "unknown_meter", f"there is no meter {name[:80]!r}{near}", meter=name[:80]) from None


def list_meters(sources: Sources) -> dict[str, Any]:
    return {"meters": [to_json(meter) for meter in sources.store.registry.meters(MAIN)]}


def get_meter(sources: Sources, name: str) -> dict[str, Any]:
    found = known_meter(sources.store.registry, name)
    gaps = [
        {"partition": gap.partition, "start": gap.start, "end": gap.end, "missed": gap.missed}
        for gap in sources.store.registry.gaps(found.meter_id)
    ]
    return {**to_json(found), "gaps": gaps}


def put_meter(sources: Sources, name: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """(status, answer): 201 for a new meter, 200 for a new version or no change."""
    meter = _definition(name, body)
    before = {known.meter.name: known for known in sources.store.registry.meters(MAIN)}.get(name)
    if before is not None and before.built_in:
        if meter == before.meter:
            return 200, {**to_json(before), "note": "nothing changed"}
        raise _built_in(name, "redefined")
    after = sources.store.registry.put_meter(MAIN, meter, now_ms=sources.clock_ms())
    return (201 if before is None else 200), {**to_json(after), "note": _note(before, after)}


def delete_meter(sources: Sources, name: str) -> dict[str, Any]:
    gone = known_meter(sources.store.registry, name)
    if gone.built_in:
        raise _built_in(name, "deleted")
    sources.store.registry.delete_meter(MAIN, name, now_ms=sources.clock_ms())
    return {"deleted": name, "version": gone.version, "note": f"{name} stops counting from the next batch on"}


def resume_meter(sources: Sources, name: str) -> dict[str, Any]:
    before = known_meter(sources.store.registry, name)
    after = sources.store.registry.resume_meter(MAIN, name)
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
    }


def _definition(name: str, body: bytes) -> Any:
    if len(body) > MOST_BODY_BYTES:
        detail = f"a definition of {len(body):,} bytes exceeds {MOST_BODY_BYTES:,}"
        raise Problem(413, "too_large", detail, limit=MOST_BODY_BYTES, actual=len(body))
    try:
        mapping = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", f"the definition is not JSON: {error}") from None
    try:
        return from_mapping(mapping, name=name)
    except MeterError as error:
        if error.code == "built_in":
            raise _built_in(name, "redefined") from None
        flaws = [{"code": flaw.code, "detail": flaw.detail, "path": flaw.path} for flaw in error.flaws]
        raise Problem(400, error.code, str(error), errors=flaws) from None


def _note(before: RegisteredMeter | None, after: RegisteredMeter) -> str:
    name = after.meter.name
    if before is None:
        return f"{name} counts from now on; counting past events (`meters backfill {name}`) will come with the archive"
    if before.version == after.version:
        return "nothing changed"
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
