"""What needs a look, as sentences for people."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tallymark.events.tenants import MAIN
from tallymark.fidelity.freshness import Freshness
from tallymark.fidelity.queries import queries_problems
from tallymark.fidelity.roles import full_name
from tallymark.ledger import Ledger
from tallymark.log.protocol import SLEW_PER_MILLE
from tallymark.store.model import MAYBE_DUPLICATE, RegisteredMeter
from tallymark.store.windows import Lineage

LATE_MS = 10_000
# More than clocks that are kept by NTP differ. Beyond it, somebody has set one.
CLOCKS_APART_MS = 5_000


@dataclass(frozen=True, slots=True)
class Findings:
    """What the sentences are about."""

    roles: Sequence[Mapping[str, Any]]
    ledger: Ledger
    fresh: Freshness
    meters: Sequence[RegisteredMeter]
    recent_dead_letters: Set[str]
    """reasons for which the pipeline wrote dead letters within the last hour"""
    log_ahead_ms: int
    """how far the log's clock is ahead of this machine's"""
    slack_ms: int
    """how far apart the clocks of the log's brokers may be; 0 if this machine stamps the records"""
    queries: Sequence[Lineage] = ()
    """how far each saved query is evaluated"""


def problems(found: Findings) -> list[str]:
    """One sentence each; empty if all is well."""
    return [
        *(f"{full_name(each)} is {each['state']}" for each in found.roles if each["state"] != "running"),
        *_blocked(found),
        *_lost(found),
        *_late(found),
        *_not_counted(found),
        # A meter that counts again is no longer a problem: what it missed stays in `meters` and in the loss of answers.
        *(_broken(each) for each in found.meters if each.broken),
        *queries_problems(found.queries, found.fresh.complete_through_ms),
    ]


def _blocked(found: Findings) -> list[str]:
    """Partitions that wait for a newer version, as the pipeline tells of them."""
    running = [each["facts"] for each in found.roles if each["state"] == "running"]
    return [str(sentence) for facts in running for sentence in facts.get("blocked", ())]


def _lost(found: Findings) -> list[str]:
    sentences = []
    if found.ledger.missing:
        sentences.append(
            f"{found.ledger.missing:,} accepted events are unaccounted for: they are in no term of the ledger"
        )
    if found.fresh.loss is None:
        sentences.append(
            "log retention deleted records before they were counted (see the dead letters);"
            " the counts lack their events"
        )
    return sentences


def _late(found: Findings) -> list[str]:
    sentences = []
    lag_ms, ahead_ms = found.fresh.lag_ms, found.log_ahead_ms
    if abs(ahead_ms) > CLOCKS_APART_MS + found.slack_ms:
        sentences.append(_clocks_apart(ahead_ms, of_brokers=found.slack_ms > 0))
    if lag_ms is None and ahead_ms <= 0:
        sentences.append("the log cannot be read, so it is unknown how fresh the counts are")
    elif lag_ms is not None and lag_ms > LATE_MS:
        sentences.append(f"counts are {lag_ms / 1000:,.1f} s behind")
    return sentences


def _clocks_apart(ahead_ms: int, *, of_brokers: bool) -> str:
    seconds = f"{abs(ahead_ms) / 1000:,.0f} s"
    if of_brokers:
        return (
            f"the log's newest record is {seconds} ahead of this machine's clock, so this clock or a broker's is wrong;"
            " duplicates are found by the brokers' clocks, and freshness is unknown while records wait"
        )
    where, direction = (f"{seconds} ahead of", "back") if ahead_ms > 0 else (f"{seconds} behind", "forward")
    return (
        f"the log's clock is {where} this machine's, which was set {direction}; it keeps the pace of real time, so that"
        f" duplicates are found and counts are right, and closes the gap by {3600 * SLEW_PER_MILLE // 1000} s an hour"
    )


def _not_counted(found: Findings) -> list[str]:
    sentences = []
    if MAYBE_DUPLICATE in found.recent_dead_letters:
        sentences.append(
            "within the last hour, events were resent too late to tell whether they were counted:"
            f" {found.ledger.aside:,} in total are set aside"
        )
    if found.recent_dead_letters - {MAYBE_DUPLICATE}:
        sentences.append(
            "within the last hour, accepted events could not be counted:"
            f" {found.ledger.dead:,} in total are dead letters"
        )
    return sentences


def _broken(registered: RegisteredMeter) -> str:
    missed = f"; it has missed {registered.missed:,} events" if registered.missed else ""
    whose = "" if registered.tenant == MAIN else f" of the tenant {registered.tenant}"
    return f"meter {registered.meter.name}{whose} is broken: {registered.broken}{missed}"
