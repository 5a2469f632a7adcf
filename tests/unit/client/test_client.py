"""The client step by step: what is sent, when, where to, and what becomes of each event."""

import pytest

from tallymark.client.engine import Engine
from tallymark.client.options import Options
from tallymark.client.transport import Answer, NoAnswer, NotConnected, TimedOut
from tallymark.testing import DrivenClient, ManualClock, ScriptedTransport
from tallymark.testing.transport import taken_but


@pytest.fixture
def clock():
    return ManualClock()


def videos(transport: ScriptedTransport) -> list[str]:
    """What each request carried, one letter an event."""
    return ["".join(event["props"]["video"] for event in events) for events in transport.events]


def count(client: DrivenClient, letters: str) -> None:
    for letter in letters:
        client.count("view", video=letter)


def test_a_batch_goes_when_it_is_full_or_its_oldest_event_has_lingered(clock):
    transport = ScriptedTransport()
    client = DrivenClient(transport, clock, batch_events=3, linger_s=0.1)
    count(client, "ABCD")
    client.step()
    assert client.step() == pytest.approx(clock.now() + 0.1)
    clock.advance(0.1)
    client.step()
    assert videos(transport) == ["ABC", "D"]


def test_a_request_says_when_it_was_sent_and_what_became_of_the_events_so_far(clock):
    transport = ScriptedTransport([503, 202])
    client = DrivenClient(transport, clock, batch_events=2)
    count(client, "AB")
    client.settle()
    first, second = (request.headers for request in transport.requests)
    assert int(first["tallymark-sent-at"]) < int(second["tallymark-sent-at"]) == clock.wall_ms()
    fields = dict(field.split("=") for field in second["tallymark-client"].split(";"))
    assert len(fields.pop("instance")) == 16
    assert fields == {
        "seq": "2", "called": "2", "delivered": "0", "refused": "0", "dropped": "0", "spilled": "0", "queued": "2",
    }  # fmt: skip


def test_every_request_names_the_tenant_that_was_given_and_none_otherwise(clock):
    transport = ScriptedTransport([413, 503])
    client = DrivenClient(transport, clock, batch_events=4, tenant="acme")
    count(client, "ABCD")
    client.settle()
    assert [request.headers["tallymark-tenant"] for request in transport.requests] == ["acme"] * 4, "halved, retried"
    transport = ScriptedTransport()
    client = DrivenClient(transport, clock, batch_events=1)
    count(client, "A")
    client.settle()
    assert "tallymark-tenant" not in transport.requests[0].headers


def test_retry_after_is_a_floor(clock):
    transport = ScriptedTransport([Answer(429, {"retry-after": "3"}, b"")])
    client = DrivenClient(transport, clock, batch_events=1)
    count(client, "A")
    client.step()
    count(client, "B")
    at = client.step()
    assert at == clock.now() + 3, "nor is anything else sent to who asked for rest"
    client.settle()
    assert sorted(videos(transport)) == ["A", "A", "B"]


def test_a_batch_that_is_too_large_is_halved_until_it_fits_and_one_event_is_refused(clock):
    refused = []
    transport = ScriptedTransport([413, 413, 413])
    client = DrivenClient(transport, clock, batch_events=4, on_refused=refused.extend)
    count(client, "ABCD")
    client.settle()
    assert videos(transport) == ["ABCD", "AB", "A", "CD", "B"]
    assert [event.code for event in refused] == ["too_large"]
    stats = client.stats()
    assert (stats.delivered, stats.refused, stats.retried) == (3, 1, 0)


def test_a_wrong_key_is_reported_and_not_tried_again(clock):
    refused = []
    transport = ScriptedTransport([Answer(401, {}, b'{"code": "no_key", "detail": "give a key"}')])
    client = DrivenClient(transport, clock, batch_events=2, on_refused=refused.extend)
    first = client.count("view", video="A")
    client.count("view", video="B")
    client.settle()
    assert [(event.code, event.detail) for event in refused] == [("no_key", "give a key")] * 2
    assert refused[0].id == first
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("failure", "is_resent"),
    [
        (NoAnswer("hung up"), True),
        (TimedOut("late"), True),
        (500, True),
        (503, True),
        (NotConnected("away"), False),
        (429, False),
    ],
)
def test_a_resend_says_when_it_may_first_have_arrived(clock, failure, is_resent):
    transport = ScriptedTransport([failure, failure])
    client = DrivenClient(transport, clock, batch_events=1)
    count(client, "A")
    first_ms = clock.wall_ms()
    client.settle()
    assert [events[0].get("resent") for events in transport.events] == [None, *([first_ms if is_resent else None] * 2)]


def test_without_budget_retries_wait_and_first_attempts_go_on(clock):
    def take_all_but_the_last(events):
        return taken_but(1, code="busy", retryable=True)(events) if len(events) == 2 else Answer(429, {}, b"")

    transport = ScriptedTransport([take_all_but_the_last] * 200)
    client = DrivenClient(transport, clock, batch_events=2, first_pause_s=0.0, max_events=1000)
    for _ in range(100):
        count(client, "AB")
    begun = clock.now()
    while not isinstance(client.step(), float):
        pass
    stats = client.stats()
    assert clock.now() == begun
    assert 20 <= stats.retried <= 20 + 0.2 * 100


def test_two_addresses_one_hanging_the_other_carries_the_load(clock):
    good, bad = ScriptedTransport(), ScriptedTransport([TimedOut("hangs")] * 1000)
    client = DrivenClient(
        lambda url: good if url == "http://good" else bad, clock, urls=["http://bad", "http://good"], batch_events=1
    )
    count(client, "ABCDEFGHIJ" * 5)
    client.settle()
    stats = client.stats()
    assert stats.delivered == 50
    assert stats.breakers == {"http://bad": "open", "http://good": "closed"}
    assert stats.retried == 3, "three time-outs open the breaker, and each was sent to the other address"


def test_when_all_breakers_are_open_the_first_to_have_rested_is_probed(clock):
    transport = ScriptedTransport([500] * 10)
    client = DrivenClient(transport, clock, urls=["http://a", "http://b"], batch_events=1, max_pause_s=0.01)
    count(client, "A")
    while set(client.stats().breakers.values()) != {"open"}:
        step = client.step()
        if isinstance(step, float):
            clock.advance_to(step)
    before = clock.now()
    client.settle()
    assert 0.9 < clock.now() - before <= 1.1
    assert client.stats().delivered == 1


def test_a_full_buffer_drops_and_says_so(clock):
    dropped = []
    client = DrivenClient(ScriptedTransport(), clock, max_events=2, when_full="drop", on_dropped=dropped.extend)
    count(client, "ABC")
    assert [(event.reason, b'"C"' in event.event) for event in dropped] == [("full", True)]
    assert (client.stats().called, client.stats().queued, client.stats().dropped) == (3, 2, 1)


def test_what_is_left_at_the_end_is_reported(clock):
    dropped = []
    client = DrivenClient(ScriptedTransport(), clock, on_dropped=dropped.extend)
    count(client, "AB")
    client.close(timeout=0)
    client.close(timeout=0)
    count(client, "C")
    assert [event.reason for event in dropped] == ["closed"] * 3


def test_a_wrong_call_is_not_counted(clock):
    client = DrivenClient(ScriptedTransport(), clock)
    with pytest.raises(ValueError, match="must match"):
        client.count("9lives")
    with pytest.raises(TypeError, match="string, a number"):
        client.count("view", video=object())
    assert client.stats().called == 0


def test_a_callback_that_fails_stops_nothing(clock, caplog):
    transport = ScriptedTransport([400])
    client = DrivenClient(transport, clock, batch_events=1, on_refused=lambda events: 1 / 0)
    count(client, "AB")
    client.settle()
    assert (client.stats().refused, client.stats().delivered) == (1, 1)
    assert "the callback" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"urls": []}, "urls is empty"),
        ({"urls": "ftp://x"}, "not the address"),
        ({"urls": ["http://a", "http://a"]}, "twice"),
        ({"when_full": "explode"}, "block, spill, drop"),
        ({"when_full": "spill"}, "needs a spill_folder"),
        ({"spill_folder": "/tmp/x"}, "has no effect"),
        ({"balance": "luck"}, "round_robin"),
        ({"compress": "rar"}, "gzip"),
        ({"batch_events": 0}, "at least 1"),
        ({"linger_s": -1}, "0 or more"),
        ({"min_timeout_s": 11.0}, "exceeds"),
        ({"connect_timeout_s": 0}, "more than 0"),
        ({"tenant": "Acme Inc"}, "'Acme Inc' cannot name a tenant"),
        ({"tenant": ""}, "cannot name a tenant"),
        ({"tenant": 5}, "5 cannot name a tenant: it is not a str but of type int"),
        ({"tenant": b"acme"}, "b'acme' cannot name a tenant: it is not a str but of type bytes"),
    ],
)
def test_wrong_options_are_refused_with_their_value(clock, wrong, says):
    with pytest.raises(ValueError, match=says):
        DrivenClient(ScriptedTransport(), clock, **wrong)


def test_addresses_come_from_the_environment(clock, monkeypatch):
    monkeypatch.setenv("TALLYMARK_URL", "http://a:1, http://b:2/")
    assert list(DrivenClient(ScriptedTransport(), clock).stats().breakers) == ["http://a:1", "http://b:2"]


def test_a_flush_waits_for_every_piece_of_a_batch_that_was_split(clock):
    engine = Engine(Options(urls=("http://a",), batch_events=4), clock, instance="0" * 16, chance=None)
    for number in range(4):
        engine.offer(b'{"event":"view","id":"%d"}' % number)
    number = engine.flush()
    send = engine.next()
    engine.answered(send, Answer(413, {}, b""))
    for _ in range(2):
        assert engine.holds(number)
        half = engine.next()
        engine.answered(half, Answer(202, {}, b'{"accepted":2,"rejected":0,"errors":[]}'))
    assert not engine.holds(number)
    assert engine.stats().delivered == 4
