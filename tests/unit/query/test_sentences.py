"""The query language over HTTP: answered like a series, refused with the position."""

from urllib.parse import quote

import msgspec
import pytest

from tallymark.meters.model import METRICS, Meter
from tallymark.store.protocol import StoreUnreachable

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = "2026-11-15"


@pytest.fixture
def servers(desk):
    meter = Meter("rpc", ("rpc",), by=("server", "zone"), compute=("count", "min", "max", "avg", "p99"))
    desk.store.registry.put_meter("main", meter, now_ms=0)
    for number, server in enumerate(("web-1", "web-2", "web-3")):
        values = [float(10 * number + value) for value in range(1, 5)]
        desk.store.count("rpc", ((server, "eu"), NOON, values), ((server, "us"), NOON + 60, values[:2]))
    desk.store.count("metrics", (("web-1", "cpu"), NOON, [0.5]), (("web-1", "mem"), NOON, [7.0]))
    return desk


def target(text: str, **parameters: str) -> str:
    rest = "".join(f"&{name}={value}" for name, value in parameters.items())
    return f"/v1/query?q={quote(text)}{rest}"


SINCE = f"SINCE {DAY}T12:00:00Z UNTIL {DAY}T12:02:00Z"


def test_the_sentence_that_defines_the_product(servers):
    answer = servers.ask(target(f"FROM web-1, web-2 SELECT rpc WINDOW 1m COMPUTE avg, percentile(99) {SINCE}"))
    (line,) = answer["series"]
    assert [(point["time"], point["avg"]) for point in line["points"]] == [
        (f"{DAY}T12:00:00Z", 7.5),
        (f"{DAY}T12:01:00Z", 6.5),
    ]
    assert line["points"][0]["p99"] == pytest.approx(14, rel=0.011)
    assert answer["where"] == {"server": ["web-1", "web-2"]}
    assert answer["query"] == f"FROM web-1, web-2 SELECT rpc WINDOW 1m COMPUTE avg, p99 {SINCE}"
    assert answer["freshness"]["error"] == {"p99": 0.0109}


def test_it_is_answered_like_the_series(servers):
    asked = servers.ask(target(f"FROM * SELECT rpc WINDOW 2m EVERY 1m BY zone WHERE server = 'web-3' {SINCE} LIMIT 5"))
    bounds = f"from={DAY}T12:00:00Z&to={DAY}T12:02:00Z"
    series = servers.ask(f"/v1/meters/rpc/series?step=1m&window=2m&by=zone&server=web-3&limit=5&{bounds}")
    del asked["query"]
    assert asked == series


def test_windows_of_days_move_by_hours_in_every_zone(servers):
    answer = servers.ask(target("FROM * SELECT rpc WINDOW 1d EVERY 12h COMPUTE count SINCE 2d", tz="Europe/Vienna"))
    assert [point["count"] for point in answer["series"][0]["points"]][-2:] == [0, 18]
    assert (answer["window"], answer["query"]) == (
        "24h",
        "FROM * SELECT rpc WINDOW 1d EVERY 12h COMPUTE count SINCE 2d",
    )


def test_a_form_is_read_as_curl_sends_it(servers):
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"q=FROM+%2A%20SELECT+rpc", b"FROM * SELECT rpc"):
        assert servers.ask("/v1/query", "POST", body, form)["query"] == "FROM * SELECT rpc"


def test_without_a_window_there_is_one_point(servers):
    answer = servers.ask(target(f"FROM * SELECT rpc COMPUTE count, rate BY zone SINCE {DAY}T12:00:00Z"))
    assert [(line["labels"], line["points"]) for line in answer["series"]] == [
        ({"zone": "eu"}, [{"time": f"{DAY}T12:00:00Z", "count": 12, "rate": pytest.approx(12 / 1830)}]),
        ({"zone": "us"}, [{"time": f"{DAY}T12:00:00Z", "count": 6, "rate": pytest.approx(6 / 1830)}]),
    ]
    assert answer["range"]["to"] == f"{DAY}T12:31:00Z"
    whole = servers.ask(target(f"FROM nobody SELECT rpc COMPUTE count {SINCE}"))
    assert whole["series"] == [{"labels": {}, "points": [{"time": f"{DAY}T12:00:00Z", "count": 0}]}]
    unknown = servers.ask(target("FROM nobody SELECT rpc COMPUTE count"))
    assert unknown["series"][0]["points"][0]["count"] is None  # the last minute is not complete


def test_a_metric_of_a_meter_with_each(servers):
    answer = servers.ask(target("FROM web-1 SELECT cpu COMPUTE max SINCE 1h"))
    assert (answer["meter"], answer["where"]) == ("metrics", {"server": ["web-1"], "metric": ["cpu"]})
    assert answer["series"][0]["points"][0]["max"] == 0.5
    assert METRICS.name == answer["meter"]


@pytest.mark.parametrize(
    ("text", "status", "code", "position", "words"),
    [
        ("", 400, "bad_query", 0, "begins with FROM"),
        ("FROM * SELECT rpc COMPTE avg", 400, "bad_query", 18, "did you mean COMPUTE"),
        ("FROM * SELECT rcp", 404, "unknown_meter", 14, "did you mean rpc"),
        ("FROM * SELECT cpuu", 404, "unknown_meter", 14, "did you mean cpu"),
        ("FROM * SELECT metrics.cpuu", 404, "unknown_metric", 14, "did you mean cpu"),
        ("FROM * SELECT rpc BY zonne", 400, "unknown_key", 21, "did you mean zone"),
        ("FROM * SELECT views COMPUTE count, p99", 400, "unknown_function", 35, "a percentile needs one in compute"),
        ("FROM * SELECT views WINDOW 90s", 400, "bad_step", 27, "WINDOW '90s' is not a multiple of this meter's grain"),
        ("FROM * SELECT views WINDOW 90s EVERY 30s", 400, "bad_step", 37, "EVERY '30s'"),
        ("FROM * SELECT views WINDOW 2h EVERY 1m", 400, "short_range", 27, "no window of 2h fits"),
        ("FROM * SELECT views LIMIT 999999999", 400, "over_limit", 26, "LIMIT 999,999,999 exceeds query.max_points"),
        ("FROM * SELECT views SINCE 2999-01-01", 400, "empty_range", 26, "the range is empty"),
    ],
)
def test_errors_point_at_the_position(servers, text, status, code, position, words):
    for problem in (
        servers.refused(target(text)),
        servers.refused("/v1/query", "POST", text.encode() or b" "),
    ):
        assert (problem.status, problem.code) == (status, code)
        assert words in problem.detail
        if text:
            assert problem.extra["position"] == position
            assert (
                problem.extra["excerpt"].splitlines()[1].index("^") == problem.extra["excerpt"].index(text) + position
            )


def test_too_many_points_have_no_position(servers):
    problem = servers.refused(target("FROM * SELECT rpc WINDOW 1m SINCE 1000d"))
    assert (problem.code, problem.extra["limit"]) == ("over_limit", 100_000)


def test_posted_as_text_or_json(servers):
    text = f"FROM * SELECT rpc COMPUTE count {SINCE}"
    wanted = servers.ask(target(text))
    assert servers.ask("/v1/query", "POST", text.encode()) == wanted
    json = {"content-type": "application/json"}
    assert servers.ask("/v1/query", "POST", {"q": text}, headers=json) == wanted
    rows = servers.send("POST", "/v1/query?format=csv", text.encode())
    assert rows.body == f"time,count\r\n{DAY}T12:00:00Z,18\r\n".encode()


@pytest.mark.parametrize(
    ("where", "body", "kind", "code"),
    [
        ("/v1/query", b"", "", "missing_parameter"),
        ("/v1/query?q=FROM", b"FROM", "", "repeated_parameter"),
        ("/v1/query", b"\xff", "", "bad_text"),
        ("/v1/query", b"{", "application/json", "bad_json"),
        ("/v1/query", b'{"q": 7}', "application/json", "bad_json"),
        ("/v1/query", b'{"q": "FROM", "x": 1}', "application/json", "bad_json"),
        ("/v1/query", b"x" * 64_001, "", "too_large"),
        ("/v1/query?step=1m", b"FROM", "", "unknown_parameter"),
    ],
)
def test_bodies_that_are_no_query(servers, where, body, kind, code):
    from tallymark.http import Problem

    with pytest.raises(Problem) as found:
        servers.send("POST", where, body, headers={"content-type": kind})
    assert found.value.code == code


def test_an_unknown_tenant_is_said_so(servers):
    assert servers.refused(target("FROM * SELECT events", tenant="acme")).code == "unknown_tenant"


def test_a_metric_that_was_seen_is_not_looked_up_again(servers):
    text = target("FROM * SELECT cpu COMPUTE max SINCE 1h")
    servers.ask(text)
    reads = []
    take = servers.store.snapshots.take
    servers.store.snapshots.take = lambda: reads.append(1) or take()
    servers.ask(text)
    assert len(reads) == 1


def test_stale_queries(servers):
    text = target("FROM * SELECT rpc COMPUTE count SINCE 1h")
    servers.ask(text)
    servers.now_ms += 1000
    servers.store.failure = StoreUnreachable("away")
    assert msgspec.json.decode(servers.send("GET", f"{text}&consistency=stale").body)["freshness"]["stale_s"] == 1
