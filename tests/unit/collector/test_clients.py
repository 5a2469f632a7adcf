"""What clients tell of themselves, and what the collector makes of it."""

import pytest

from tallymark.collector import clients as module
from tallymark.collector.clients import Clients

OUTCOMES = ("called", "delivered", "refused", "dropped", "spilled", "queued")


def header(number: int, seq: int, **counts: int) -> str:
    said = ";".join(f"{name}={counts.get(name, 0)}" for name in OUTCOMES)
    return f"instance={number:016x};seq={seq};{said}"


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clients(clock: ManualClock) -> Clients:
    return Clients(clock=clock)


def test_the_counts_are_those_of_the_highest_seq(clients: Clients) -> None:
    for seq, called in ((1, 10), (3, 30), (2, 20)):
        clients.note(header(1, seq, called=called))
    report = clients.report()
    (client,) = report["clients"]
    assert (client["called"], client["seq"], client["requests"], client["elsewhere"]) == (30, 3, 3, 0)
    assert report["totals"]["called"] == 30


def test_several_collectors_together_can_tell_what_reached_none() -> None:
    """Each sees gaps, because the client spreads its requests; here number 5 was lost."""
    here, there = Clients(), Clients()
    for seq in (1, 2, 3, 4, 6, 7, 8):
        (here if seq % 2 else there).note(header(1, seq))
    ((one,), (other,)) = here.report()["clients"], there.report()["clients"]
    assert (one["elsewhere"], other["elsewhere"]) == (4, 3)
    span = max(one["seq"], other["seq"]) - min(one["first_seq"], other["first_seq"]) + 1
    assert span - one["requests"] - other["requests"] == 1


def test_a_collector_that_starts_later_takes_nothing_before_it_for_lost(clients: Clients) -> None:
    for seq in (901, 900, 902):
        clients.note(header(1, seq))
    assert clients.report()["clients"][0]["elsewhere"] == 0


def test_sums_go_over_all_clients_and_the_list_begins_with_who_dropped_most(clients: Clients) -> None:
    for number in range(150):
        clients.note(header(number, 1, called=10, dropped=number % 7, delivered=3))
    report = clients.report()
    assert (report["known"], len(report["clients"])) == (150, 100)
    assert report["totals"] == {
        "called": 1500, "delivered": 450, "refused": 0, "dropped": sum(n % 7 for n in range(150)), "spilled": 0,
        "queued": 0,
    }  # fmt: skip
    dropped = [client["dropped"] for client in report["clients"]]
    assert dropped == sorted(dropped, reverse=True)
    assert dropped[0] == 6


def test_when_it_last_dropped_something_is_remembered(clients: Clients, clock: ManualClock) -> None:
    told = []
    for seq, dropped in ((1, 0), (2, 5), (3, 5), (4, 6)):
        clock.now += 10
        clients.note(header(1, seq, dropped=dropped))
        told.append(clients.report()["clients"][0]["dropped_ms"])
    assert told == [None, 1_000_020_000, 1_000_020_000, 1_000_040_000]


def test_fresh_drops_do_not_hide_behind_a_hundred_old_ones(clients: Clients, clock: ManualClock) -> None:
    for number in range(150):
        clients.note(header(number, 1, dropped=1_000))
    clock.now += 3_600
    for number in range(150):
        clients.note(header(number, 2, dropped=1_001 if number == 7 else 1_000))
    report = clients.report()
    assert report["dropping"] == {"clients": 1, "dropped": 1_001}
    assert report["clients"][0]["instance"] == f"{7:016x}"


def test_a_collector_that_starts_later_takes_no_old_drops_for_fresh_ones(clients: Clients) -> None:
    clients.note(header(1, 900, dropped=5))
    clients.note(header(2, 1, dropped=3))
    assert clients.report()["dropping"] == {"clients": 1, "dropped": 3}
    clients.note(header(1, 901, dropped=6))
    assert clients.report()["dropping"] == {"clients": 2, "dropped": 9}


def test_who_is_silent_for_an_hour_is_forgotten(clients: Clients, clock: ManualClock) -> None:
    clients.note(header(1, 1))
    clock.now += 1_800
    clients.note(header(2, 1))
    clock.now += 1_801
    assert [client["instance"] for client in clients.report()["clients"]] == [f"{2:016x}"]
    clients.note(header(2, 2))
    clock.now += 3_600
    assert clients.report()["known"] == 1
    clock.now += 1
    assert clients.report() == {
        "known": 0,
        "totals": dict.fromkeys(OUTCOMES, 0),
        "dropping": {"clients": 0, "dropped": 0},
        "clients": [],
    }


def test_too_many_push_out_who_was_silent_longest(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 3)
    for number in (1, 2, 3, 1, 4):
        clients.note(header(number, 1))
    assert {int(client["instance"], 16) for client in clients.report()["clients"]} == {1, 3, 4}


BAD = [
    "",
    "instance=1;seq=1",
    header(1, 1).replace("seq=1", "seq=-1"),
    header(1, 1).replace("seq=1", "seq=1e3"),
    header(1, 1).replace("seq=1", "seq=" + "9" * 19),
    header(1, 1).replace("seq=1", "seq=١"),
    header(1, 1).upper(),
    header(1, 1) + ";" + "x" * 5_000,
    " " + header(1, 1),
]


@pytest.mark.parametrize("said", BAD)
def test_what_cannot_be_read_is_counted_and_the_events_are_taken(collector, said) -> None:
    before = collector.metric("tallymark_collector_bad_client_headers_total")
    if said.isascii():
        assert collector.post({"event": "view", "id": "1"}, tallymark_client=said.strip(" ") or "?").status == 202
    else:
        Clients().note(said)
    assert collector.metric("tallymark_collector_bad_client_headers_total") - before == (said[:1] != " ")
    assert collector.get("/v1/clients").json["known"] == (said[:1] == " ")  # HTTP takes blanks around a value away


def test_a_newer_client_may_say_more(clients: Clients) -> None:
    clients.note(header(1, 1, called=7) + ";retried=3")
    assert clients.report()["totals"]["called"] == 7


def test_over_http(collector) -> None:
    said = header(0xAB, 4, called=20, delivered=12, dropped=3, queued=5)
    assert collector.post({"event": "view", "id": "1"}, tallymark_client=said).status == 202
    # A request whose events are refused has come here, too.
    later = header(0xAB, 5, called=21, delivered=13, dropped=3, queued=5)
    assert collector.post(b"nonsense", tallymark_client=later).status == 400
    answer = collector.get("/v1/clients")
    (client,) = answer.json["clients"]
    assert answer.status == 200
    assert (client["instance"], client["called"], client["requests"]) == ("00000000000000ab", 21, 2)
    assert collector.metric("tallymark_clients") == 1
    assert collector.metric("tallymark_client_events", outcome="dropped") == 3
    assert collector.metric("tallymark_client_events", outcome="spilled") == 0
    assert collector.post({}, path="/v1/clients").status == 405


def test_pages_may_send_the_header(make) -> None:
    collector = make(cors_origins=["https://page.example"])
    allowed = collector.request("OPTIONS", "/v1/events", origin="https://page.example").headers
    assert "tallymark-client" in allowed["access-control-allow-headers"].split(", ")


def test_the_script_is_served_to_any_page_and_cached(collector) -> None:
    script = collector.get("/tallymark.js", origin="https://page.example")
    assert (script.status, script.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert script.headers["access-control-allow-origin"] == "*"
    assert b"window.tallymark = " in script.body
    again = collector.get("/tallymark.js", if_none_match=script.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert collector.request("HEAD", "/tallymark.js").status == 200
    assert collector.get("/tallymark.js", if_none_match='"another"').status == 200
    assert collector.post({}, path="/tallymark.js").status == 405
