"""Compares what is served with what must be served, to the unit."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from tallymark.client.transport import NoAnswer, Request, Transport
from tallymark.load.expected import DAY_MS, Expected, Tallies, Tally, distinct_sources, expected
from tallymark.load.journal import Outcomes
from tallymark.load.plan import Plan

MOST_KEYS = 10_000
"""the largest k the query service answers by default"""
SAMPLE = 20
ASK_TIMEOUT_S = 60.0


class CannotCheck(Exception):
    """The service did not answer a question that the check needs."""


@dataclass(frozen=True)
class Difference:
    """One wrong number."""

    where: str
    what: str
    expected: str
    served: str


def await_applied(transport: Transport, plan: Plan, *, since_ms: int, deadline_s: float) -> bool:
    """Wait until everything acknowledged before `since_ms` is in the counts; False if the deadline passes first."""
    end = time.monotonic() + deadline_s
    while True:
        try:
            answer = transport.exchange(Request("GET", _path(plan, "total", {})), timeout_s=10.0)
            freshness = (answer.json() or {}).get("freshness") or {}
            through = to_ms(freshness.get("complete_through"))
            if answer.status == 200 and through is not None and through > since_ms:
                return True
        except NoAnswer:
            pass  # it may be restarting
        if time.monotonic() > end:
            return False
        time.sleep(0.1)


def check(transport: Transport, outcomes: Outcomes) -> tuple[list[Difference], int]:
    """Every difference, and the number of figures compared."""
    plan = outcomes.plan
    sure = distinct_sources(plan, outcomes.acknowledged)
    maybe = sure | distinct_sources(plan, outcomes.unknown) if outcomes.unknown else sure
    low = expected(plan, sure)
    high = expected(plan, maybe) if outcomes.unknown else low
    compared = 0
    differences: list[Difference] = []
    for where, least, most, served in _questions(transport, plan, low, high):
        compared += 1
        differences.extend(compare(where, least, most, served))
    return differences, compared


Question = tuple[str, Tally, Tally, dict[str, Any]]


def _questions(transport: Transport, plan: Plan, low: Expected, high: Expected) -> Iterator[Question]:
    """(name, least, most, served) for every figure that exists on either side."""
    yield "total", low.total, high.total, _ask(transport, plan, "total", {})["value"]
    if not high.minutes:
        return
    start = min(high.days)
    end = max(high.minutes) // DAY_MS * DAY_MS + DAY_MS
    span = {"from": start, "to": end}
    for step, least, most in (
        ("1m", low.minutes, high.minutes),
        ("1h", low.hours, high.hours),
        ("1d", low.days, high.days),
    ):
        series = _ask(transport, plan, "series", {**span, "step": step})["series"]
        points = {to_ms(point["time"]): point for part in series for point in part["points"]}
        yield from _cells(f"series {step} at ", least, most, points, _shown_time)
    yield from _top(transport, plan, span, plan.key_label, plan.key_name, low.keys, high.keys)
    if plan.servers:
        yield from _top(transport, plan, span, "metric", lambda metric: f"m{metric}", low.metrics, high.metrics)
    for key in list(low.keys)[:: max(1, len(low.keys) // SAMPLE)]:
        served = _ask(transport, plan, "total", {plan.key_label: plan.key_name(key)})["value"]
        yield f"total of {plan.key_name(key)}", low.keys[key], high.keys[key], served


def _top(  # noqa: PLR0917
    transport: Transport,
    plan: Plan,
    span: dict[str, int],
    label: str,
    name: Callable[[int], str],
    low: Tallies,
    high: Tallies,
) -> Iterator[Question]:
    items = _ask(transport, plan, "top", {**span, "by": label, "k": MOST_KEYS})["items"]
    numbers = {name(number): number for number in high}
    served = {numbers.get(item["labels"][label], item["labels"][label]): item["value"] for item in items}
    if len(high) > MOST_KEYS:  # what is not among the first k is checked by the totals alone
        low = {number: tally for number, tally in low.items() if number in served}
        high = {number: tally for number, tally in high.items() if number in served}
    yield from _cells(
        f"top {label} ", low, high, served, lambda number: name(number) if number in high else str(number)
    )


def _cells(
    what: str, low: Tallies, high: Tallies, served: dict[Any, dict[str, Any]], name: Callable[[Any], str]
) -> Iterator[Question]:
    for cell in sorted({*high, *served}, key=str):
        yield what + name(cell), low.get(cell, Tally()), high.get(cell, Tally()), served.get(cell, {})


def compare(where: str, least: Tally, most: Tally, served: dict[str, Any]) -> Iterator[Difference]:
    """Nothing if every figure lies between what was surely and what was possibly accepted (mostly the same)."""
    for what in ("count", "sum", "min", "max"):
        low, high = getattr(least, what), getattr(most, what)
        value = served.get(what)
        if what in ("count", "sum"):
            right = low <= (value or 0) <= high
        elif low is None or high is None:
            right = value is None or (high is not None and least is not most)
        else:
            right = value is not None and min(low, high) <= value <= max(low, high)
        if not right:
            yield Difference(where, what, str(low) if low == high else f"{low} to {high}", str(value))


def _ask(transport: Transport, plan: Plan, question: str, parameters: dict[str, Any]) -> dict[str, Any]:
    path = _path(plan, question, parameters)
    try:
        answer = transport.exchange(Request("GET", path), timeout_s=ASK_TIMEOUT_S)
    except NoAnswer as error:
        raise CannotCheck(str(error)) from error
    body = answer.json()
    if answer.status != 200 or not isinstance(body, dict):
        detail = body.get("detail", "") if isinstance(body, dict) else answer.body[:200].decode(errors="replace")
        raise CannotCheck(f"GET {path} returned {answer.status} {detail}")
    return body


def _path(plan: Plan, question: str, parameters: dict[str, Any]) -> str:
    """Bypasses the cache: an exact comparison needs an answer from after the last event."""
    return f"/v1/meters/{plan.meter}/{question}?{urlencode({**parameters, 'consistency': 'fresh'})}"


def to_ms(moment: object) -> int | None:
    """A time from an answer, RFC 3339 or epoch milliseconds, as epoch milliseconds."""
    if isinstance(moment, int | float):
        return int(moment)
    if not isinstance(moment, str):
        return None
    then = datetime.fromisoformat(moment)
    return round((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000)


def _shown_time(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
