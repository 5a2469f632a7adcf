"""Story 8: in one minute s1 emits 1..60 and s2 61..120 of the metric m, beside 1,998 other metrics."""

from datetime import UTC, datetime

import pytest

OTHERS = {f"other{number}": number for number in range(1_998)}


def snapshot(server: str, second: int, m: int, minute_ms: int) -> dict:
    return {
        "event": "story8",
        "id": f"{server}/{second}",
        "time": minute_ms + second * 1000,
        "props": {"server": server},
        "values": {"m": m, **OTHERS},
    }


def test_min_max_and_avg_of_two_servers(tallymark, hour_ms):
    minute_ms = hour_ms + 8 * 60_000
    tallymark.put_meter(
        name="story8", event="story8", by=["server"], each="values", compute=["count", "min", "max", "avg", "p50"]
    )
    tallymark.send(snapshot("s1", second, 1 + second, minute_ms) for second in range(60))
    tallymark.send(snapshot("s2", second, 61 + second, minute_ms) for second in range(60))

    asked = {"metric": "m", "server": ["s1", "s2"]}
    assert tallymark.series("story8", minute_ms, minute_ms + 60_000, "1m", **asked) == {
        minute_ms: {"count": 120, "min": 1, "max": 120, "avg": 60.5, "p50": pytest.approx(60, rel=0.011)}
    }
    one = tallymark.total("story8", metric="m", server="s1", fn="count,min,max,avg")
    assert one == {"count": 60, "min": 1, "max": 60, "avg": 30.5}
    other = tallymark.total("story8", metric="other7", fn="count,min,max,avg")
    assert other == {"count": 120, "min": 7, "max": 7, "avg": 7}


def test_the_sentence_that_defines_the_product(tallymark, hour_ms):
    minute_ms = hour_ms + 9 * 60_000
    tallymark.put_meter(
        name="sentence", event="sentence", by=["server"], each="values", compute=["min", "max", "avg", "p99"]
    )
    for server, first in (("s1", 1), ("s2", 61), ("s3", 1_000)):
        tallymark.send(
            {**snapshot(server, second, first + second, minute_ms), "event": "sentence"} for second in range(60)
        )
    since, until = (f"'{moment(at)}'" for at in (minute_ms, minute_ms + 60_000))
    asked = f"FROM s1, s2 SELECT sentence.m WINDOW 1m COMPUTE min, max, avg, percentile(95) SINCE {since} UNTIL {until}"
    (line,) = tallymark.get("/v1/query", q=asked)["series"]
    (point,) = line["points"]
    assert point == {"time": moment(minute_ms), "min": 1, "max": 120, "avg": 60.5, "p95": pytest.approx(114, rel=0.011)}
    # As a command, for people.
    said = tallymark.command("query", asked).stdout
    assert "60.5" in said
    assert "p95" in said


def test_the_metrics_in_no_saved_query_are_dropped_and_counted(tallymark, hour_ms):
    minute_ms = hour_ms + 10 * 60_000
    tallymark.put_meter(
        name="unused",
        event="unused",
        by=["server"],
        each="values",
        keep="queried",
        compute=["count", "min", "max", "avg", "p95"],
    )
    sentence = "FROM s1, s2 SELECT unused.m WINDOW 1m COMPUTE min, max, avg, percentile(95)"
    save(tallymark, "story8", sentence)  # before any such metric has arrived
    for server, first in (("s1", 1), ("s2", 61)):
        tallymark.send(
            {**snapshot(server, second, first + second, minute_ms), "event": "unused"} for second in range(60)
        )
    since, until = (f"'{moment(at)}'" for at in (minute_ms, minute_ms + 60_000))
    (line,) = tallymark.get("/v1/query", q=f"{sentence} SINCE {since} UNTIL {until}")["series"]
    assert line["points"] == [
        {"time": moment(minute_ms), "min": 1, "max": 120, "avg": 60.5, "p95": pytest.approx(114, rel=0.011)}
    ]
    shown = tallymark.get("/v1/meters/unused")
    assert (list(shown["kept"]), shown["dropped_values"]) == (["m"], 120 * 1_998)
    assert tallymark.total("unused", metric="other7") == {
        "count": 0,
        "min": None,
        "max": None,
        "avg": None,
        "p95": None,
    }

    # One of them is asked for now, and m no longer.
    save(tallymark, "story8", "FROM * SELECT unused.other7 WINDOW 1m")
    tallymark.send([{**snapshot("s1", 0, 500, minute_ms), "event": "unused", "id": "s1/later"}])
    assert tallymark.total("unused", metric="other7")["count"] == 1
    assert tallymark.total("unused", metric="m")["max"] == 120
    (told,) = [each for each in tallymark.get("/v1/status")["meters"] if each["name"] == "unused"]
    assert told["dropped_values"] == 121 * 1_998
    assert f"unused dropped {121 * 1_998:,} numbers that no saved query selects" in tallymark.command("status").stdout


def save(tallymark, name: str, q: str) -> None:
    status, told = tallymark.exchange("PUT", f"/v1/queries/{name}", {"q": q})
    assert status in (200, 201), told


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
