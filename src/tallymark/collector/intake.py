"""`POST /v1/events`: from a request to the answer that its events are durable."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from tallymark import telemetry
from tallymark.collector import body
from tallymark.collector.applied import Follower
from tallymark.collector.commit import Committer, Outcome
from tallymark.collector.pressure import Budget, Holding, Rate
from tallymark.events import clocks
from tallymark.events.bodies import BadBody, Delivery, TooManyEvents
from tallymark.events.clocks import Clocks, RawTime
from tallymark.events.ids import MAX_IDEMPOTENCY_KEY_CHARS
from tallymark.events.names import Names
from tallymark.events.tenant_names import TenantNames, TooManyTenants
from tallymark.events.validation import Accepted, Refusal, in_bulk, one_by_one, validate
from tallymark.http import Problem, Scope
from tallymark.suggest import suggest
from tallymark.tenants import PARAMETER, tenant_of

JSON_TYPES = {"application/json", "text/json", "text/plain", "application/x-www-form-urlencoded", ""}
"""`text/plain` is what a browser's sendBeacon sends, the form's type is what `curl -d` says unless told otherwise"""
LINE_TYPES = {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
PARAMETERS = ("wait", "timeout", PARAMETER)
QUICKLY_JUDGED_BYTES = 16_384
# 1 MB is 10 ms of decoding and checking.
QUICKLY_TAKEN_BYTES = 1_000_000
# A place comes free when a tenant has been silent for a day, so there is no hurry; clients keep the events meanwhile.
NO_ROOM_RETRY_S = 60
DEFAULT_WAIT_S, MAX_WAIT_S = 10.0, 60.0
# Under one key, an event of the second part that equals one of the first would be taken for a retry of it.
SPLIT_KEYS = "; give each part its own Idempotency-Key, and reuse it for retries"


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits a request is held to."""

    max_events: int
    clocks: Clocks
    names: TenantNames


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class _Error(msgspec.Struct, gc=False, omit_defaults=True):
    index: int
    code: str
    detail: str
    retryable: bool
    id: str | None = None


class Intake:
    """Takes requests with events, one call a request; refusals of a whole request are raised as Problem."""

    def __init__(
        self,
        rules: Rules,
        reader: body.Reader,
        committer: Committer,
        follower: Follower,
        *,
        budget: Budget,
        rate: Rate,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._rules, self._reader, self._committer, self._follower = rules, reader, committer, follower
        self._budget, self._rate, self._now_ms = budget, rate, now_ms

    async def answer(self, scope: Scope, proto: Any) -> Answer:
        wait_s = _wait_s(scope.query_string) if scope.query_string else None
        tenant = tenant_of(scope)
        lines = _is_lines(scope.headers.get("content-type"))
        self._rate.check()
        with Holding(self._budget) as held:
            try:
                request = await self._receive(scope, proto, lines, held, tenant)
            except Problem as problem:
                if problem.status == 413 and scope.headers.get("idempotency-key") is not None:
                    problem.detail += SPLIT_KEYS
                raise
            outcome = await self._committer.commit(request)
        applied = wait_s is not None and outcome.accepted > 0 and await self._follower.wait(outcome.offsets, wait_s)
        return _answer(request, outcome, applied=applied)

    async def _receive(self, scope: Scope, proto: Any, lines: bool, held: Holding, tenant: str) -> Accepted:
        headers = scope.headers
        sent = await self._reader.read(proto, headers.get("content-length"), held)
        encoding = headers.get("content-encoding")
        if encoding is not None:
            sent = await body.inflate(sent, encoding, self._reader.limits, held)
        if not sent:
            raise Problem(400, "no_events", "the body is empty; send an event, an array of events, or NDJSON")
        delivery = Delivery(
            sent,
            self._now_ms(),
            lines,
            _sent_at(_header(headers, "Tallymark-Sent-At", "bad_time")),
            _idempotency_key(_header(headers, "Idempotency-Key", "bad_idempotency_key")),
        )
        request = await self._judge_for(tenant, delivery)
        self._rate.spend(len(request.events) + len(request.refusals))
        return request

    async def _judge_for(self, tenant: str, delivery: Delivery) -> Accepted:
        names = self._rules.names
        while True:
            judged_by = names.of(tenant)
            request = await self._judge(delivery, judged_by)
            # Refusals alone take no place: a hundred malformed requests would shut out every new tenant for a day.
            if not request.events or self._adopt(tenant, judged_by):
                request.tenant = tenant
                return request

    def _adopt(self, tenant: str, names: Names) -> bool:
        try:
            return self._rules.names.adopt(tenant, names)
        except TooManyTenants as error:
            telemetry.COLLECTOR_TENANTS_REFUSED.inc()
            headers = {"retry-after": str(NO_ROOM_RETRY_S)}
            raise Problem(429, "too_many_tenants", str(error), headers=headers) from None

    async def _judge(self, delivery: Delivery, names: Names) -> Accepted:
        clocks_, max_events = self._rules.clocks, self._rules.max_events
        try:
            # In a thread, what is large or has flaws (10,000 bad events take some 200 ms) does not hold up the others.
            if len(delivery.body) > QUICKLY_TAKEN_BYTES:
                return await asyncio.to_thread(validate, delivery, clocks_, max_events=max_events, names=names)
            if (accepted := in_bulk(delivery, clocks_, max_events=max_events, names=names)) is not None:
                return accepted
            if len(delivery.body) <= QUICKLY_JUDGED_BYTES:
                return one_by_one(delivery, clocks_, max_events=max_events, names=names)
            return await asyncio.to_thread(one_by_one, delivery, clocks_, max_events=max_events, names=names)
        except BadBody as error:
            raise Problem(400, error.code, error.detail) from None
        except TooManyEvents as error:
            raise Problem(413, "too_many_events", f"{error} (collector.max_request_events)") from None


def _answer(request: Accepted, outcome: Outcome, *, applied: bool) -> Answer:
    if outcome.accepted and not outcome.refusals and not request.random_ids:
        return Answer(200 if applied else 202, b'{"accepted":%d,"rejected":0,"errors":[]}' % outcome.accepted)
    result: dict[str, Any] = {
        "accepted": outcome.accepted,
        "rejected": len(outcome.refusals),
        "errors": [_error(refusal) for refusal in outcome.refusals],
    }
    if request.random_ids:
        result["ids"] = "made"
    if outcome.accepted:
        return Answer(200 if applied else 202, msgspec.json.encode(result))
    if any(refusal.retryable for refusal in outcome.refusals):
        raise Problem(
            503,
            "not_durable",
            next(refusal.detail for refusal in outcome.refusals if refusal.retryable),
            headers={"retry-after": "1"},
            **result,
        )
    return Answer(422, msgspec.json.encode(result))


def _error(refusal: Refusal) -> _Error:
    return _Error(refusal.index, refusal.code, refusal.detail, refusal.retryable, refusal.id)


def _is_lines(content_type: str | None) -> bool:
    kind, _, parameters = (content_type or "").partition(";")
    kind = kind.strip().lower()
    charset = parameters.lower().partition("charset=")[2].strip(' "')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise Problem(415, "unknown_type", f"charset {charset[:40]!r}; only utf-8 is read")
    if kind in LINE_TYPES:
        return True
    if kind not in JSON_TYPES:
        raise Problem(415, "unknown_type", f"content-type {kind[:80]!r}; send application/json or application/x-ndjson")
    return False


def _header(headers: Any, name: str, code: str) -> str | None:
    """A header that must not be ignored: the server hands out one that is not printable ASCII as if it were absent."""
    value: str | None = headers.get(name.lower())
    if value is None and name.lower() in headers:
        raise Problem(400, code, f"header {name} may contain only printable ASCII")
    return value


def _sent_at(header: str | None) -> RawTime:
    if header is None:
        return None
    text = header.strip()
    try:
        return clocks.milliseconds(int(text) if text.lstrip("-").isdecimal() and len(text) < 20 else text)
    except clocks.BadTime as error:
        raise Problem(400, "bad_time", f"header Tallymark-Sent-At: {error}") from None


def _idempotency_key(header: str | None) -> str | None:
    if header is None:
        return None
    if not 1 <= len(header) <= MAX_IDEMPOTENCY_KEY_CHARS:
        raise Problem(
            400,
            "bad_idempotency_key",
            f"header Idempotency-Key has {len(header):,} characters; 1 to {MAX_IDEMPOTENCY_KEY_CHARS} are allowed",
        )
    return header


def _wait_s(query: str) -> float | None:
    """How long to wait for the counts, None if that was not asked for."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in PARAMETERS:
            raise Problem(400, "unknown_parameter", f"unknown parameter {name[:40]!r}{suggest(name, PARAMETERS)}")
    if (wait := given.get("wait")) not in (None, "applied"):
        raise Problem(400, "bad_parameter", f"wait={wait[:40] if wait else ''}; it can only be `applied`")
    try:
        timeout_s = float(given.get("timeout", DEFAULT_WAIT_S))
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s <= MAX_WAIT_S:
        raise Problem(400, "bad_parameter", f"timeout={given['timeout'][:40]}; it must be 0 to {MAX_WAIT_S:g} seconds")
    return timeout_s if wait else None
