"""Batches to `POST /v1/events`, retried with the same ids until every event has an outcome."""

import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from tallymark.client.transport import Answer, NoAnswer, Request, Transport
from tallymark.commands.command import CommandFailed
from tallymark.commands.service import refusal, unreachable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class Refused(msgspec.Struct, frozen=True):
    """An event that was refused for good; `place` is its line in a file, 0 for none."""

    place: int
    code: str
    detail: str


@dataclass
class Batch:
    """Events as JSON objects, each with its line in the file."""

    events: list[bytes] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


@dataclass
class Outcome:
    """What became of a batch."""

    accepted: int = 0
    refused: list[Refused] = field(default_factory=list)
    applied: bool = True


class Delivery:
    """One connection's worth of sending."""

    def __init__(self, transport: Transport, *, wait: bool, timeout_s: float) -> None:
        self._transport, self._timeout_s = transport, timeout_s
        self._path = f"/v1/events?wait=applied&timeout={timeout_s:g}" if wait else "/v1/events"

    def send(self, batch: Batch) -> Outcome:
        """Every event accepted or refused; raises CommandFailed if the time is over before that."""
        outcome = Outcome()
        deadline = time.monotonic() + self._timeout_s
        pause_s = FIRST_PAUSE_S
        # Ids the server makes come from this key and the event, so a retry, also of just some, makes the same ones.
        key = uuid.uuid4().hex
        while batch.events:
            answer = self._try(batch, key, deadline)
            if answer is not None and not answer.worth_a_retry:
                batch = self._settle(answer, batch, outcome)
            if batch.events:
                time.sleep(max(pause_s, (answer.retry_after_s or 0.0) if answer else 0.0))
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        return outcome

    def _try(self, batch: Batch, key: str, deadline: float) -> Answer | None:
        headers = {
            "content-type": "application/x-ndjson",
            "idempotency-key": key,
            "tallymark-sent-at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        request = Request("POST", self._path, b"\n".join(batch.events), headers)
        try:
            answer = self._transport.exchange(request, timeout_s=self._timeout_s + 5)
        except NoAnswer as error:
            if time.monotonic() > deadline or isinstance(error.__cause__, ConnectionRefusedError):
                raise unreachable(error) from error
            return None
        if answer.worth_a_retry and time.monotonic() > deadline:
            raise CommandFailed(f"not accepted within {self._timeout_s:g} s: {refusal(answer)}; try again later")
        return answer

    def _settle(self, answer: Answer, batch: Batch, outcome: Outcome) -> Batch:
        """Note what the answer decides; returns what it asks for again."""
        told = answer.json()
        if not isinstance(told, dict) or "accepted" not in told:
            raise CommandFailed(refusal(answer))
        again = Batch()
        outcome.accepted += int(told["accepted"])
        outcome.applied &= answer.status == 200 or not told["accepted"]
        for error in told.get("errors", []):
            if error.get("retryable"):
                again.events.append(batch.events[error["index"]])
                again.places.append(batch.places[error["index"]])
            else:
                outcome.refused.append(Refused(batch.places[error["index"]], error["code"], error["detail"]))
        return again
