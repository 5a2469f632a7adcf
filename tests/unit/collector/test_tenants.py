"""Tenants at the door: whose events, names and dead letters these are."""

import http.client
import json
import socket
from typing import Any

import msgspec
import pytest

from tallymark.events.ids import hashes
from tallymark.events.tenants import MOST_TENANTS
from tallymark.store.model import DeadLetter
from tallymark.testing import MemoryLog


def tenants(collector: Any) -> dict[str, str]:
    return {row["id"]: row["tenant"] for row in collector.events()}


def test_an_event_belongs_to_the_tenant_of_its_request(collector: Any) -> None:
    assert collector.post({"event": "view", "id": "1"}).status == 202
    assert collector.post({"event": "view", "id": "2"}, tallymark_tenant="acme").status == 202
    assert collector.post({"event": "view", "id": "3"}, "/v1/events?tenant=globex").status == 202
    assert collector.post({"event": "view", "id": "4"}, "/v1/events?tenant=acme", tallymark_tenant="acme").status == 202
    assert tenants(collector) == {"1": "main", "2": "acme", "3": "globex", "4": "acme"}


def test_one_id_in_two_tenants_is_two_events(collector: Any) -> None:
    for tenant in ("main", "acme"):
        collector.post({"event": "view", "id": "1"}, tallymark_tenant=tenant)
    found = {row["tenant"]: (row["hash_high"], row["hash_low"]) for row in collector.events()}
    for tenant, (high, low) in found.items():
        wanted = hashes(tenant, ["view"], ["1"])
        assert (high, low) == (wanted[0][0], wanted[1][0])
    assert found["main"] != found["acme"]


def test_several_tenants_in_one_commit_keep_their_own(make: Any) -> None:
    collector = make(log=MemoryLog(2), commit_interval_ms=200)
    raws = []
    for number in range(6):
        body = json.dumps([{"event": "view", "id": f"{number}-{each}"} for each in range(3)]).encode()
        head = f"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ntallymark-tenant: t{number % 3}\r\n"
        raws.append(head.encode() + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
    sockets = [collector.connect() for _ in raws]
    for each, raw in zip(sockets, raws, strict=True):
        each.sendall(raw)
    for each in sockets:
        assert b" 202 " in whole(each)
    records = sum(positions.end for positions in collector.log.positions().values())
    assert records < len(raws), "some requests shared a commit"
    assert tenants(collector) == {f"{n}-{each}": f"t{n % 3}" for n in range(6) for each in range(3)}
    for row in collector.events():
        assert row["hash_high"] == hashes(row["tenant"], ["view"], [row["id"]])[0][0]


def whole(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/events?tenant=Acme", {}),
        ("/v1/events?tenant=", {}),
        ("/v1/events", {"tallymark_tenant": "a b"}),
        ("/v1/events", {"tallymark_tenant": "\xe4"}),
        ("/v1/events?tenant=acme", {"tallymark_tenant": "globex"}),
    ],
)
def test_a_bad_tenant_refuses_the_request_and_nothing_is_kept(
    collector: Any, path: str, headers: dict[str, str]
) -> None:
    reply = collector.post({"event": "view"}, path, **headers)
    assert (reply.status, reply.json["code"]) == (400, "bad_tenant")
    assert collector.events() == []
    assert collector.metric("tallymark_collector_tenants") == 1


def test_the_parameter_is_one_of_the_known_ones(collector: Any) -> None:
    reply = collector.post({"event": "view"}, "/v1/events?tenannt=acme")
    assert (reply.status, reply.json["code"]) == (400, "unknown_parameter")
    assert "tenant" in reply.json["detail"]


def test_a_dead_letter_belongs_to_the_tenant_of_its_request(collector: Any) -> None:
    collector.post([{"event": "view"}, {"event": ""}], tallymark_tenant="acme")
    collector.post([{"event": "view", "time": "noon"}])
    # Beyond what is kept of one request: only counted, but counted for its tenant.
    collector.post([{"event": "", "props": {"a": "x" * 900}}] * 1_500, "/v1/events?tenant=globex")
    found = {(letter.tenant, letter.reason, bool(letter.raw)) for letter in collector.letters()}
    assert found == {
        ("acme", "bad_event", True),
        ("main", "bad_time", True),
        ("globex", "bad_event", True),
        ("globex", "bad_event", False),
    }


def test_a_letter_of_a_version_without_tenants_is_mains() -> None:
    older = {"hop": "collector", "reason": "bad_time", "detail": "…", "events": 1, "raw": b"{}", "at_ms": 7}
    (letter,) = msgspec.msgpack.decode(msgspec.msgpack.encode([older]), type=list[DeadLetter])
    assert letter == DeadLetter("collector", "bad_time", "…", 1, b"{}", 7, tenant="main")


def test_the_limit_on_names_is_each_tenants_own(make: Any) -> None:
    collector = make(max_event_names=2)
    assert collector.post([{"event": "a"}, {"event": "b"}], tallymark_tenant="acme").status == 202
    assert collector.post({"event": "c"}, tallymark_tenant="acme").status == 422
    assert collector.post([{"event": "c"}, {"event": "d"}]).status == 202
    assert collector.metric("tallymark_collector_event_names") == 4
    collector.stop()
    again = make(max_event_names=2)
    assert again.post({"event": "c"}, tallymark_tenant="acme").status == 422
    assert again.post([{"event": "c"}, {"event": "d"}]).status == 202


def test_one_tenant_too_many_is_refused_clearly_and_the_others_go_on(make: Any) -> None:
    collector = make()
    before = collector.metric("tallymark_collector_tenants_refused_total")
    for number in range(MOST_TENANTS - 1):
        assert collector.post({"event": "view"}, tallymark_tenant=f"t{number}").status == 202
    reply = collector.post({"event": "view"}, tallymark_tenant="one-more")
    assert (reply.status, reply.json["code"]) == (429, "too_many_tenants")
    assert int(reply.headers["retry-after"]) > 0, "so that clients keep the events and try again"
    assert "'one-more' would be one more than the 100" in reply.json["detail"]
    assert collector.metric("tallymark_collector_tenants_refused_total") == before + 1
    assert collector.metric("tallymark_collector_tenants") == MOST_TENANTS
    assert collector.post({"event": "view"}, tallymark_tenant="t7").status == 202
    assert collector.post({"event": "view"}).status == 202, "main always has its place"
    assert "one-more" not in tenants(collector).values()
    collector.stop()
    assert make().post({"event": "view"}, tallymark_tenant="one-more").json["code"] == "too_many_tenants"


def test_requests_that_are_all_wrong_take_no_tenants_place(make: Any) -> None:
    collector = make()
    for number in range(MOST_TENANTS + 5):
        assert collector.post({"event": ""}, tallymark_tenant=f"bad{number}").status == 422
        assert collector.post(b"{", tallymark_tenant=f"bad{number}").status == 400
    assert collector.metric("tallymark_collector_tenants") == 1
    assert collector.post([{"event": ""}, {"event": "view"}], tallymark_tenant="acme").status == 202
    assert collector.metric("tallymark_collector_tenants") == 2
    assert len({letter.tenant for letter in collector.letters()}) == MOST_TENANTS + 6, "what was refused is kept"


def test_first_requests_of_a_tenant_at_the_same_time_share_its_limit_on_names(make: Any) -> None:
    collector = make(max_event_names=3)
    # Large enough to be judged in threads of their own, several at once.
    bodies = [json.dumps([{"event": f"e{n}", "props": {"a": "x" * 900}}] * 1_200).encode() for n in range(6)]
    sockets = [collector.connect() for _ in bodies]
    for each, body in zip(sockets, bodies, strict=True):
        head = b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ntallymark-tenant: acme\r\n"
        each.sendall(head + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
    statuses = sorted(int(whole(each).split()[1]) for each in sockets)
    assert statuses == [202] * 3 + [422] * 3
    assert len({row["event"] for row in collector.events()}) == 3
    assert collector.metric("tallymark_collector_event_names") == 3


def test_no_metric_is_labelled_with_a_tenant(collector: Any) -> None:
    collector.post([{"event": "view"}, {"event": ""}], tallymark_tenant="acme-of-the-metrics")
    assert "acme-of-the-metrics" not in collector.get("/metrics").body.decode()


def test_a_page_may_name_the_tenant_from_another_origin(make: Any) -> None:
    collector = make(cors_origins=["https://a.example"])
    preflight = collector.request("OPTIONS", "/v1/events", origin="https://a.example")
    assert "tallymark-tenant" in preflight.headers["access-control-allow-headers"].split(", ")


def test_a_question_whose_tenant_cannot_be_read_is_not_asked_for_main(collector: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", collector.port, timeout=20)
    connection.request("GET", "/v1/total", headers={"tallymark-tenant": "\xe4"})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (400, "bad_tenant")
    connection.close()


def test_a_header_that_cannot_be_read_is_not_passed_over_for_a_second_one(collector: Any) -> None:
    body = b'{"event": "view"}'
    head = "POST /v1/events HTTP/1.1\r\nhost: localhost\r\ntallymark-tenant: démo\r\ntallymark-tenant: main\r\n"
    connection = collector.connect()
    connection.sendall(head.encode() + b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
    answer = whole(connection)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert b"may contain only printable ASCII" in answer
    assert collector.events() == []
