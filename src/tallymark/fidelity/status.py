"""`/v1/status`: is anything late or lost? One document for `tallymark status` and the dashboard."""

from collections.abc import Mapping
from typing import Any

from tallymark import __version__
from tallymark.events.tenants import MAIN, main_first
from tallymark.fidelity.account import SUMMANDS, account
from tallymark.fidelity.evidence import Evidence
from tallymark.fidelity.freshness import ahead_ms, freshness
from tallymark.fidelity.lag import events_per_second, recent_lag
from tallymark.fidelity.lost import are_lost
from tallymark.fidelity.meters import beside, series_counts, series_of, warnings
from tallymark.fidelity.problems import Findings, problems
from tallymark.fidelity.queries import queries_status
from tallymark.fidelity.rates import Rates
from tallymark.fidelity.roles import roles
from tallymark.ledger import OUTCOMES, Ledger
from tallymark.log.protocol import Positions
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Store

RECENT_MS = 3_600_000


def status(evidence: Evidence, rates: Rates) -> dict[str, Any]:
    """Every term of `received = accepted + refused` and `accepted = counted + … + in flight`."""
    store, settings = evidence.store, evidence.settings
    dead_letters = store.dead_letters.counts_by_tenant()
    with store.snapshots.take() as snapshot:
        fresh = freshness(
            snapshot,
            evidence.events,
            clock_ms=evidence.clock_ms,
            accept_past_s=settings.events.accept_past_s,
            records_lost=any(map(are_lost, dead_letters.values())),
        )
        now_ms = fresh.now_ms
        ledgers = snapshot.tenant_ledgers()
        ledger = sum(ledgers.values(), Ledger())
        lag, rate = recent_lag(snapshot, now_ms=now_ms), events_per_second(snapshot, now_ms=now_ms)
        meters = store.registry.all_meters()
        uncounted = {each.meter_id: beside(snapshot, each) for each in meters}
    # The log is read after the snapshot, so what is counted is never more than what was accepted.
    positions = evidence.events.positions() or {}
    alive = roles(settings.run_folder, store.heartbeats.beats(), now_ms=now_ms)
    series = series_counts(alive)
    tenants = sorted({MAIN, *ledgers, *dead_letters, *(each.tenant for each in meters)}, key=main_first)
    several = len(tenants) > 1
    document = {
        "now_ms": now_ms,
        "tallymark": __version__,
        **account(ledger, fresh.applied, evidence),
        "terms": SUMMANDS,
        "lag_ms": lag,
        "events_per_second": rate,
        "recent": rates.recent(),
        "roles": alive,
        "meters": [{**_meter(each), **uncounted[each.meter_id], **series_of(each, series)} for each in meters],
        **({"tenants": [{"name": name, **_terms(ledgers.get(name, Ledger()))} for name in tenants]} if several else {}),
        "dead_letters": [
            {"hop": hop, "reason": reason, "events": events, **({"tenant": tenant} if several else {})}
            for tenant in tenants
            for (hop, reason), events in dead_letters.get(tenant, {}).items()
        ],
        "positions": _positions(positions, fresh.applied),
        "freshness": fresh.to_json(),
    }
    lineages = [each for each in store.windows.lineages() if not each.dropped]
    if lineages:
        document["queries"] = queries_status(lineages, fresh.complete_through_ms)
    found = problems(
        Findings(
            alive,
            ledger,
            fresh,
            meters,
            recent_dead_letters=_recent_dead_letters(store, now_ms=now_ms),
            log_ahead_ms=ahead_ms(positions, evidence.events, now_ms=now_ms),
            slack_ms=evidence.events.slack_ms,
            queries=lineages,
        )
    )
    return {"healthy": not found, "problems": found, "warnings": warnings(meters, series), **document}


def _meter(registered: RegisteredMeter) -> dict[str, Any]:
    return {
        "name": registered.meter.name,
        "tenant": registered.tenant,
        "version": registered.version,
        "labels": list(registered.labels),
        "compute": list(registered.meter.compute),
        "broken": registered.broken,
        "missed": registered.missed,
    }


def _terms(ledger: Ledger) -> dict[str, int]:
    terms = {term.name: getattr(ledger, term.name) for term in OUTCOMES}
    return {"accepted": ledger.accepted, **terms, "missing": ledger.missing}


def _positions(positions: Mapping[int, Positions], applied: Mapping[int, int]) -> list[dict[str, Any]]:
    """Offsets count records (frames), `events` what they hold; `end` is written, `synced` durable."""
    return [
        {
            "partition": partition,
            "first": standing.first,
            "end": standing.end,
            "synced": standing.synced,
            "applied": applied.get(partition, 0),
            "behind": max(0, standing.synced - applied.get(partition, 0)),
            "events": standing.events,
        }
        for partition, standing in sorted(positions.items())
    ]


def _recent_dead_letters(store: Store, *, now_ms: int) -> set[str]:
    """Reasons for which the pipeline wrote dead letters within the last hour."""
    last_ms = store.dead_letters.last_ms(tenant=None).items()
    return {reason for (hop, reason), at_ms in last_ms if hop == "pipeline" and at_ms > now_ms - RECENT_MS}
