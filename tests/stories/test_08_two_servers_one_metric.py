"""Story 8, the counting part: in one minute s1 emits 1..60 and s2 61..120 of the metric m, beside 1,998 other metrics.

The stored-query language, percentile(95) and dropping the metrics that no stored query names are due in later issues:
here a meter with `each: values` counts them all, and m is asked for by its label.
"""

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
        name="story8", event="story8", by=["server"], each="values", compute=["count", "min", "max", "avg"]
    )
    tallymark.send(snapshot("s1", second, 1 + second, minute_ms) for second in range(60))
    tallymark.send(snapshot("s2", second, 61 + second, minute_ms) for second in range(60))

    asked = {"metric": "m", "server": ["s1", "s2"]}
    assert tallymark.series("story8", minute_ms, minute_ms + 60_000, "1m", **asked) == {
        minute_ms: {"count": 120, "min": 1, "max": 120, "avg": 60.5}
    }
    assert tallymark.total("story8", metric="m", server="s1") == {"count": 60, "min": 1, "max": 60, "avg": 30.5}
    assert tallymark.total("story8", metric="other7") == {"count": 120, "min": 7, "max": 7, "avg": 7}
