"""Percentiles, distinct counts and rates in answers, and meters that count by the second."""

import numpy as np
import pytest

from tallymark.meters.model import Meter

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = "2026-11-15"
BOUND = 0.0109


@pytest.fixture
def rpc(desk):
    meter = Meter("rpc", ("rpc",), by=("server",), compute=("count", "avg", "p99"))
    desk.store.registry.put_meter("main", meter, now_ms=0)
    for minute in range(3):
        values = [float(value) for value in range(1 + 100 * minute, 101 + 100 * minute)]
        desk.store.count("rpc", (("a",), NOON + 60 * minute, values[::2]), (("b",), NOON + 60 * minute, values[1::2]))
    return desk


def test_any_percentile_of_a_meter_with_one(rpc):
    answer = rpc.ask("/v1/meters/rpc/total?fn=p50&fn=p99&fn=p99.9&fn=sum&fn=count")
    values = np.arange(1.0, 301.0)
    for name, quantile in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        true = np.quantile(values, quantile, method="inverted_cdf")
        assert answer["value"][name] == pytest.approx(true, rel=BOUND)
    assert (answer["value"]["sum"], answer["value"]["count"]) == (45_150.0, 300)
    assert answer["freshness"]["approximate"] is True
    assert answer["freshness"]["error"] == {"p50": BOUND, "p99": BOUND, "p99.9": BOUND}


def test_exact_answers_say_that_they_are(rpc):
    freshness = rpc.ask("/v1/meters/rpc/total?fn=count&fn=avg")["freshness"]
    assert freshness["approximate"] is False
    assert "error" not in freshness


def test_percentiles_over_windows_and_in_a_top(rpc):
    span = f"from={DAY}T12:00:00Z&to={DAY}T12:03:00Z"
    (line,) = rpc.ask(f"/v1/meters/rpc/series?fn=p50&window=2m&{span}")["series"]
    assert [point["p50"] for point in line["points"]] == [
        pytest.approx(100, rel=BOUND),
        pytest.approx(200, rel=BOUND),
    ]
    sliding = rpc.ask(f"/v1/meters/rpc/total?fn=p50&window=1m&{span}")
    assert sliding["value"]["p50"] == pytest.approx(250, rel=BOUND)
    assert sliding["at"] == {"p50": f"{DAY}T12:02:00Z"}
    items = rpc.ask(f"/v1/meters/rpc/top?fn=p1&compare=previous&{span}")["items"]
    assert [item["labels"]["server"] for item in items] == ["b", "a"]
    assert items[0]["before"]["p1"] is None


def test_distinct_counts_merge(desk):
    meter = Meter("visitors", ("view",), by=("video",), compute=("count", "distinct"), distinct="user")
    desk.store.registry.put_meter("main", meter, now_ms=0)
    for minute, users in enumerate(["abc", "bcd", "cde"]):
        desk.store.count("visitors", (("A",), NOON + 60 * minute, list(users)), (("B",), NOON, ["z"]))
    answer = desk.ask("/v1/meters/visitors/total?by=video&video=A&video=B&video=C")
    assert [item["value"]["distinct"] for item in answer["items"]] == [5, 1, 0]
    assert answer["freshness"]["error"] == {"distinct": 0.0163}
    span = f"from={DAY}T12:00:00Z&to={DAY}T12:03:00Z"
    (line,) = desk.ask(f"/v1/meters/visitors/series?video=A&window=2m&{span}")["series"]
    assert [point["distinct"] for point in line["points"]] == [4, 4]


def test_a_rate_is_per_second_of_what_has_passed(rpc):
    #  12:30:00        12:30:30      12:31:00
    #  [------- 60 events |-------------)
    rpc.store.count("rpc", (("a",), NOON + 1800, [1.0] * 60))
    assert rpc.ask(f"/v1/meters/rpc/total?fn=rate&from={DAY}T12:30:00Z")["value"] == {"rate": 2.0}
    assert rpc.ask(f"/v1/meters/rpc/total?fn=rate&from={DAY}T12:00:00Z&to={DAY}T12:01:00Z")["value"] == {
        "rate": pytest.approx(100 / 60)
    }
    (line,) = rpc.ask(f"/v1/meters/rpc/series?fn=rate&from={DAY}T12:29:00Z&to={DAY}T12:32:00Z")["series"]
    assert [point["rate"] for point in line["points"]] == [0, 2.0, None]
    sliding = rpc.ask(f"/v1/meters/rpc/total?fn=rate&window=1m&from={DAY}T12:00:00Z&to={DAY}T12:31:00Z")
    # Those that slide count in full: of one that has just begun a single event would be a peak.
    assert sliding["value"] == {"rate": pytest.approx(100 / 60)}
    assert sliding["at"] == {"rate": f"{DAY}T12:00:00Z"}


def test_a_rate_that_nobody_asked_for_is_null_over_all_time(desk):
    desk.store.registry.put_meter("main", Meter("hits", ("hit",), compute=("count", "rate")), now_ms=0)
    desk.store.count("hits", ((), NOON, [None] * 60))
    assert desk.ask("/v1/meters/hits/total")["value"] == {"count": 60, "rate": None}
    assert desk.ask(f"/v1/meters/hits/total?from={DAY}T12:00:00Z&to={DAY}T12:01:00Z")["value"]["rate"] == 1.0


@pytest.fixture
def fine(desk):
    """Counts by the second: one use in each of these."""
    desk.store.registry.put_meter("main", Meter("uses", ("use",), by=("card",), grain_s=1), now_ms=0)
    for second in (0, 3, 4, 9, 10, 11, 59, 60):
        desk.store.count("uses", (("c",), NOON + second, [None]))
    return desk


def test_ranges_are_widened_to_the_grain_only(fine):
    answer = fine.ask(f"/v1/meters/uses/total?from={DAY}T12:00:03.500Z&to={DAY}T12:00:10Z")
    assert answer["value"] == {"count": 3}
    assert answer["range"] == {"from": f"{DAY}T12:00:03Z", "to": f"{DAY}T12:00:10Z", "widened": True}
    items = fine.ask(f"/v1/meters/uses/top?from={DAY}T12:00:04Z&to={DAY}T12:00:10Z")["items"]
    assert items == [{"labels": {"card": "c"}, "value": {"count": 2}}]


def test_steps_of_seconds(fine):
    (line,) = fine.ask(f"/v1/meters/uses/series?step=5s&from={DAY}T12:00:00Z&to={DAY}T12:00:15Z")["series"]
    assert [(point["time"], point["count"]) for point in line["points"]] == [
        (f"{DAY}T12:00:00Z", 3),
        (f"{DAY}T12:00:05Z", 1),
        (f"{DAY}T12:00:10Z", 2),
    ]
    (line,) = fine.ask(f"/v1/meters/uses/series?from={DAY}T12:00:00Z&to={DAY}T12:02:00Z")["series"]
    assert [point["count"] for point in line["points"]] == [7, 1]  # a minute, unless a step is given


def test_windows_are_exact_to_the_second(fine):
    answer = fine.ask(f"/v1/meters/uses/total?card=c&window=9s&from={DAY}T12:00:00Z&to={DAY}T12:01:10Z")
    assert (answer["value"], answer["at"]) == ({"count": 5}, {"count": f"{DAY}T12:00:03Z"})


def test_a_grain_of_ten_seconds_refuses_others(desk):
    desk.store.registry.put_meter("main", Meter("slow", ("e",), grain_s=10), now_ms=0)
    problem = desk.refused("/v1/meters/slow/series?step=25s")
    assert (problem.code, problem.extra["grain"], problem.extra["nearest"]) == ("bad_step", "10s", ["20s", "30s"])
    assert len(desk.ask("/v1/meters/slow/series?step=20s&from=-1m")["series"][0]["points"]) == 4
