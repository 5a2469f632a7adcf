"""The demo's traffic is what its meters count."""

import json
import os
import threading
from collections import Counter

import pytest

from tallymark.client.transport import Answer, NoAnswer, Request
from tallymark.load.demo import METERS, Audience, Refusals, connect, deliver, run
from tallymark.meters import from_mapping
from tallymark.testing import until


class Scripted:
    """Answers as told, then 202; ends the demo after a number of requests."""

    def __init__(
        self, stop: threading.Event, *, fates: list[int | None], requests: int, body: dict[str, object] | None = None
    ) -> None:
        self.stop, self.fates, self.left = stop, fates, requests
        self.body = json.dumps(body or {}).encode()
        self.seen: list[Request] = []

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        self.seen.append(request)
        self.left -= 1
        if self.left <= 0:
            self.stop.set()
        fate = self.fates.pop(0) if self.fates else 202
        if fate is None:
            raise NoAnswer("gone")
        return Answer(fate, {"retry-after": "0.01"}, self.body if request.method == "POST" else b"{}")

    def close(self) -> None: ...


def test_every_event_is_of_a_kind_some_meter_counts_and_has_its_labels():
    meters = {meter.events[0]: meter for meter in map(from_mapping, METERS)}
    events = Audience(seed=1).events(2000, now_ms=1_763_208_000_000)
    assert all(event["event"].startswith("demo_") for event in events)
    assert all(set(meters[event["event"]].by) <= set(event["props"]) for event in events)
    assert len({event["id"] for event in events}) == 2000
    kinds = Counter(event["event"] for event in events)
    assert set(kinds) == set(meters)
    assert kinds.most_common(1)[0][0] == "demo_view"


def test_meters_first_then_events():
    stop = threading.Event()
    transport = Scripted(stop, fates=[], requests=len(METERS) + 2)
    run(transport, stop, rate=50)
    assert [request.method for request in transport.seen] == ["PUT"] * len(METERS) + ["POST"] * 2


def test_events_and_meters_are_those_of_the_tenant_demo(fake_service):
    stop = threading.Event()
    transport = connect(os.environ["TALLYMARK_URL"])
    running = threading.Thread(target=run, args=(transport, stop))
    running.start()
    until(lambda: len(fake_service.requests) > len(METERS), "meters and events were sent")
    stop.set()
    running.join()
    transport.close()
    assert {headers.get("tallymark-tenant") for _, _, headers, _ in fake_service.requests} == {"demo"}


def test_a_batch_without_an_answer_is_sent_again_as_it_was():
    stop = threading.Event()
    transport = Scripted(stop, fates=[503, 429, 202], requests=10)
    deliver(transport, Request("POST", "/v1/events", b"[1]"), stop, Refusals())
    assert [request.body for request in transport.seen] == [b"[1]"] * 3


EVENT_ERRORS = [{"index": 0, "code": "too_many_names", "detail": "a new name"}] * 9


@pytest.mark.parametrize(
    ("fates", "body", "logged"),
    [
        ([400, 400], {"code": "bad_tenant", "detail": "no such name"}, ["no such name (HTTP 400, bad_tenant)"]),
        ([429, 429, 202], {"code": "too_many_tenants", "detail": "no room"}, ["no room (HTTP 429, too_many_tenants)"]),
        ([422, 422], {"accepted": 0, "errors": EVENT_ERRORS}, ["a new name (HTTP 422, too_many_names)"]),
        ([202, 202], {"accepted": 1, "errors": EVENT_ERRORS}, ["a new name (HTTP 202, too_many_names)"]),
        ([404, 403, 403], {}, ["refused (HTTP 404, http_404)", "refused (HTTP 403, http_403)"]),
        ([503, None, 202], {}, []),
    ],
)
def test_what_is_refused_is_logged_once_for_each_code(caplog, fates, body, logged):
    stop = threading.Event()
    transport = Scripted(stop, fates=[201] * len(METERS) + fates, requests=len(METERS) + len(fates), body=body)
    run(transport, stop, rate=50)
    assert [record.message for record in caplog.records] == [f"POST /v1/events: {line}" for line in logged]
    assert all(record.levelname == "WARNING" for record in caplog.records)


def test_a_meter_that_is_refused_is_logged_too(caplog):
    stop = threading.Event()
    run(Scripted(stop, fates=[400], requests=len(METERS)), stop)
    assert [record.message for record in caplog.records] == ["PUT /v1/meters/demo_views: refused (HTTP 400, http_400)"]
