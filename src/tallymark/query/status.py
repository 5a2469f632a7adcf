"""`/v1/status`: is anything late or lost? One document for `tallymark status` and the dashboard."""

from collections.abc import Mapping, Set
from typing import Any

from tallymark import __version__
from tallymark.log.protocol import SLEW_PER_MILLE, Positions
from tallymark.query.account import intake, refused
from tallymark.query.freshness import Freshness, ahead_ms, freshness
from tallymark.query.lost import are_lost
from tallymark.query.pulse import Pulse
from tallymark.query.roles import roles, spoken
from tallymark.query.sources import Sources
from tallymark.store.model import MAYBE_DUPLICATE, Lag, Ledger

LAG_WINDOW_MS = 60_000
RATE_WINDOW_MS = 5_000
LATE_MS = 10_000
RECENT_MS = 3_600_000
# More than clocks that are kept by NTP differ. Beyond it, somebody has set one.
CLOCKS_APART_MS = 5_000


def status(sources: Sources, pulse: Pulse) -> dict[str, Any]:
    """Every term of `received = accepted + refused` and `accepted = counted + … + in flight`."""
    store, settings = sources.store, sources.settings
    letters = store.dead_letter_counts()
    with store.snapshot() as snapshot:
        accept_past_s = settings.events.accept_past_s
        fresh = freshness(
            snapshot,
            sources.events,
            clock_ms=sources.clock_ms,
            accept_past_s=accept_past_s,
            records_lost=are_lost(letters),
        )
        now_ms = fresh.now_ms
        ledgers, applied = snapshot.ledger(), snapshot.applied()
        lag = snapshot.lag(since_ms=now_ms - LAG_WINDOW_MS)
        recent = snapshot.lag(since_ms=now_ms - RATE_WINDOW_MS)
    # The log is read after the snapshot, so what is counted is never more than what was accepted.
    positions = sources.events.positions() or {}
    ledger = sum(ledgers.values(), Ledger())
    alive = roles(settings.run_folder, store.beats(), now_ms=now_ms)
    meters = [
        {
            "name": each.meter.name,
            "version": each.version,
            "labels": list(each.labels),
            "compute": list(each.meter.compute),
            "broken": each.broken,
            "missed": each.missed,
        }
        for each in store.meters()
    ]
    answer = {
        "now_ms": now_ms,
        "tallymark": __version__,
        **_account(ledger, applied, sources),
        "lag_ms": _spoken_lag(lag),
        "events_per_second": round((recent.events if recent else 0) * 1000 / RATE_WINDOW_MS, 1),
        "recent": pulse.recent(),
        "roles": alive,
        "meters": meters,
        "dead_letters": [{"hop": hop, "reason": reason, "events": events} for (hop, reason), events in letters.items()],
        "positions": _positions(positions, applied),
        "freshness": fresh.spoken(),
    }
    log_ahead_ms = ahead_ms(positions, sources.events, now_ms=now_ms)
    recent_letters = {
        reason
        for (hop, reason), last_ms in store.last_dead_letters_ms().items()
        if hop == "pipeline" and last_ms > now_ms - RECENT_MS
    }
    problems = _problems(
        answer, fresh, log_ahead_ms=log_ahead_ms, slack_ms=sources.events.slack_ms, recent_letters=recent_letters
    )
    return {"healthy": not problems, "problems": problems, **answer}


def _account(ledger: Ledger, applied: Mapping[int, int], sources: Sources) -> dict[str, Any]:
    taken = intake(ledger, applied, sources.events)
    turned_away = refused(sources.store, sources.refused)
    return {
        "received": None if turned_away is None or taken.accepted is None else taken.accepted + turned_away,
        "accepted": taken.accepted,
        "refused": turned_away,
        "counted": ledger.counted,
        "duplicate": ledger.duplicate,
        "dead": ledger.dead,
        "aside": ledger.aside,
        "unmatched": ledger.unmatched,
        "in_flight": taken.in_flight,
        "missing": ledger.missing,
        "late": ledger.late,
    }


def _spoken_lag(lag: Lag | None) -> dict[str, Any] | None:
    if lag is None:
        return None
    return {
        "p50": lag.p50,
        "p95": lag.p95,
        "p99": lag.p99,
        "highest": lag.highest,
        "events": lag.events,
        "window_s": LAG_WINDOW_MS // 1000,
    }


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


def _problems(
    answer: Mapping[str, Any], fresh: Freshness, *, log_ahead_ms: int, slack_ms: int, recent_letters: Set[str]
) -> list[str]:
    """What a person should look at, in sentences; empty when all is well."""
    found = [f"{spoken(each)} is {each['state']}" for each in answer["roles"] if each["state"] != "running"]
    if answer["missing"]:
        found.append(f"{answer['missing']:,} accepted events are in no column of the ledger")
    if fresh.loss is None:
        found.append(
            "records were deleted by the log's retention before they were counted (see the dead letters):"
            " counts miss what they held"
        )
    if abs(log_ahead_ms) > CLOCKS_APART_MS + slack_ms:
        found.append(_clocks_apart(log_ahead_ms, of_brokers=slack_ms > 0))
    if fresh.lag_ms is None and log_ahead_ms <= 0:
        found.append("the log cannot be read, so nobody knows how fresh the counts are")
    elif fresh.lag_ms is not None and fresh.lag_ms > LATE_MS:
        found.append(f"counts are {fresh.lag_ms / 1000:,.1f} s behind")
    if MAYBE_DUPLICATE in recent_letters:
        found.append(
            "events came again within the last hour, too late to tell whether they were counted:"
            f" {answer['aside']:,} in all are set aside"
        )
    if recent_letters - {MAYBE_DUPLICATE}:
        found.append(
            f"accepted events could not be counted within the last hour: {answer['dead']:,} in all are dead letters"
        )
    # One that counts again is no problem any more: what it missed stays in `meters` and in the loss of its answers.
    found.extend(_broken(each) for each in answer["meters"] if each["broken"])
    return found


def _clocks_apart(ahead_ms: int, *, of_brokers: bool) -> str:
    seconds = f"{abs(ahead_ms) / 1000:,.0f} s"
    if of_brokers:
        return (
            f"the log's newest record is {seconds} ahead of this machine's clock: that or a broker's is wrong;"
            " duplicates are found by the brokers' clocks, and freshness is unknown while something waits"
        )
    where, done = (f"{seconds} ahead of", "back") if ahead_ms > 0 else (f"{seconds} behind", "forward")
    return (
        f"the log's clock is {where} this machine's, which was set {done}; it keeps the pace of real time, so that"
        f" duplicates are found and counts are right, and comes back by {3600 * SLEW_PER_MILLE // 1000} s an hour"
    )


def _broken(meter: Mapping[str, Any]) -> str:
    lost = f"; it has missed {meter['missed']:,} events" if meter["missed"] else ""
    return f"meter {meter['name']} is broken: {meter['broken']}{lost}"
