"""`/v1/meters/check`: what a definition would do if it were saved, and everything that is wrong with it."""

from typing import Any

from tallymark.http import Problem
from tallymark.meters import BUILT_IN, Change, Flaw, Meter, MeterError, from_mapping, to_mapping
from tallymark.query.meters_api import read_definition
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_room


def check(sources: Sources, tenant: str, body: bytes) -> dict[str, Any]:
    """The meter as it would be kept and what would change; or every mistake, each with its field."""
    try:
        meter = from_mapping(read_definition(body))
    except MeterError as error:
        return _wrong(*error.flaws)
    except Problem as problem:
        if problem.code != "bad_json":
            raise
        return _wrong(Flaw(problem.code, problem.detail))
    known = {each.meter.name: each for each in sources.store.registry.meters(tenant)}.get(meter.name)
    is_new_tenant = require_room(sources.store.registry, tenant)
    if known.built_in if known else is_new_tenant and meter.name in BUILT_IN:
        before = known.meter if known else BUILT_IN[meter.name]
        if meter != before:
            return _wrong(Flaw("built_in", f"the meter {meter.name!r} is built in; choose another name", "name"))
    return {"ok": True, "meter": to_mapping(meter), **_changes(known.meter if known else None, meter)}


def _changes(before: Meter | None, after: Meter) -> dict[str, Any]:
    """Null for a meter that is new."""
    if before is None:
        return {"changes": None, "keeps_numbers": None}
    change = Change(before, after)
    differences = [{"key": each.key, "before": each.before, "after": each.after} for each in change.differences]
    return {"changes": differences, "keeps_numbers": change.keeps_numbers}


def _wrong(*flaws: Flaw) -> dict[str, Any]:
    return {
        "ok": False,
        "errors": [
            {
                "code": flaw.code,
                "detail": flaw.detail,
                "field": flaw.path,
                **({} if flaw.offset is None else {"position": flaw.offset}),
            }
            for flaw in flaws
        ],
    }
