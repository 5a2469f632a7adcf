"""Story 15: 100 events/s steady; the consumer is down for five minutes; every event-time minute holds 6,000.

Nobody waits five minutes: the pipeline is killed, and what happened in its five minutes is sent while it is away.
"""

import time

MINUTE_MS = 60_000
PER_SECOND = 100


def happened_in(minute_ms: int) -> list[dict]:
    """100 events in each second of a minute."""
    every_ms = 1000 // PER_SECOND
    return [
        {"event": "story15", "id": str(moment), "time": moment, "props": {"video": str(moment % 7)}}
        for moment in range(minute_ms, minute_ms + MINUTE_MS, every_ms)
    ]


def test_every_minute_of_event_time_is_whole(tallymark):
    #  minute   0        1   2   3   4   5        6
    #           steady   pipeline away            steady
    tallymark.put_meter(name="story15", event="story15")
    start_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - 10 * MINUTE_MS
    minutes = [start_ms + number * MINUTE_MS for number in range(7)]
    tallymark.send(happened_in(minutes[0]))

    tallymark.kill("pipeline")
    for minute in minutes[1:6]:
        tallymark.send(happened_in(minute), wait=False)
    down = tallymark.status()
    assert down["in_flight"] == 5 * 6_000, "accepted and durable while nobody counts"
    assert tallymark.total("story15") == {"count": 6_000}

    tallymark.send(happened_in(minutes[6]), wait=False)
    tallymark.settled()
    counted = tallymark.series("story15", start_ms, start_ms + 7 * MINUTE_MS, "1m")
    assert counted == {minute: {"count": 6_000} for minute in minutes}

    # The spike is in processing time: what took five minutes to happen was applied within seconds.
    fastest = max(second["applied"] for second in tallymark.status()["recent"])
    assert fastest > 10 * PER_SECOND
