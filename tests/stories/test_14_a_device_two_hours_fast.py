"""Story 14: a device two hours fast says 14:00 occurred, 14:30 sent; it is received at 12:30 and counted at 12:00."""

import time

from tallymark import log as logs
from tallymark.events import frame
from tallymark.settings import Settings

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
FAST_MS = 2 * HOUR_MS
NETWORK_MS = 20_000  # the longest that sending may take here before the numbers below are off


def test_counted_when_it_happened(tallymark):
    #            true          12:00 occurred      12:30 sent and received
    #            the device    14:00               14:30
    tallymark.put_meter(name="story14", event="story14", by=["device"])
    now_ms = int(time.time() * 1000)
    minute_ms = now_ms // MINUTE_MS * MINUTE_MS - 30 * MINUTE_MS
    occurred_ms = minute_ms + MINUTE_MS // 2  # in the middle, so that the time on the wire does not move it out
    event = {"event": "story14", "id": "1", "time": occurred_ms + FAST_MS, "props": {"device": "fast"}}
    tallymark.send([event], sent_at=now_ms + FAST_MS)

    counted = tallymark.series("story14", minute_ms - HOUR_MS, now_ms + 3 * HOUR_MS, "1m", device="fast")
    assert counted == {minute_ms: {"count": 1}}

    (kept,) = stored(tallymark, "story14")
    assert kept["time"] - kept["shift"] == occurred_ms + FAST_MS, "as the device said it"
    assert kept["received"] - kept["shift"] == now_ms + FAST_MS, "when the device says it sent it"
    assert 0 <= kept["received"] - now_ms < NETWORK_MS, "by our clock"


def test_a_right_clock_is_left_alone(tallymark):
    now_ms = int(time.time() * 1000)
    event = {"event": "story14_right", "id": "1", "time": now_ms - HOUR_MS, "props": {"device": "right"}}
    tallymark.send([event], sent_at=now_ms)
    (kept,) = stored(tallymark, "story14_right")
    assert (kept["time"], kept["shift"]) == (now_ms - HOUR_MS, 0)


def stored(tallymark, name: str) -> list[dict]:
    """The events of one name, as the log has them."""
    reader = logs.open_reader(Settings(data=str(tallymark.data)), "events")
    found = [
        event
        for partition, at in reader.positions().items()
        for record in reader.read(partition, at.first, at.synced)
        for event in frame.decode(record.payload).select(["event", "time", "received", "shift"]).to_pylist()
        if event["event"] == name
    ]
    reader.close()
    return found
