"""Tenants over HTTP: which there are, and whether a request names one of them."""

from collections import Counter
from typing import Any

from tallymark.events.tenants import MAIN, MOST_TENANTS, main_first
from tallymark.http import Problem
from tallymark.ledger import Ledger
from tallymark.query.sources import Sources
from tallymark.store.protocol import Registry
from tallymark.suggest import suggest


def list_tenants(sources: Sources) -> dict[str, Any]:
    """All of them, `main` first, with their accepted events and their meters, the built-in ones included.

    One whose every event was refused has neither, but it has dead letters, which whoever looks for them must find.
    """
    with sources.store.snapshots.take() as snapshot:
        ledgers = snapshot.tenant_ledgers()
    meters = Counter(each.tenant for each in sources.store.registry.all_meters())
    refused = sources.store.dead_letters.counts_by_tenant()
    names = sorted({MAIN, *meters, *ledgers, *refused}, key=main_first)
    return {
        "tenants": [
            {"name": name, "events": ledgers.get(name, Ledger()).accepted, "meters": meters[name]} for name in names
        ]
    }


def require_tenant(registry: Registry, tenant: str, *, otherwise: str = "") -> None:
    """Raises 404 with the nearest name if there is no such tenant; `main` always exists.

    `otherwise` is what the request may have meant instead.
    """
    if tenant == MAIN:
        return
    known = registry.tenants()
    if tenant not in known:
        near = suggest(tenant, known, what="there are")
        raise Problem(404, "unknown_tenant", f"there is no tenant {tenant!r}{near}{otherwise}", tenant=tenant)


def require_room(registry: Registry, tenant: str) -> bool:
    """Whether this would be a new tenant; raises 400 if it would be one too many."""
    if tenant == MAIN:
        return False
    known = registry.tenants()
    if tenant in known:
        return False
    if len(known) >= MOST_TENANTS:
        detail = f"{tenant!r} would be tenant {len(known) + 1}; there can be {MOST_TENANTS}"
        raise Problem(400, "too_many_tenants", detail, limit=MOST_TENANTS)
    return True
