"""Story 16: one list of events, and the groups that windows make of it; sessions come with streams.

Each event has a label of its own, so that the answers say which events a window holds and not only how many.

    second   0     3           9  10       14                         26
             a     b           c  d        e                          f
"""

from collections import defaultdict

import pytest

SECONDS = {"a": 0, "b": 3, "c": 9, "d": 10, "e": 14, "f": 26}


@pytest.fixture(scope="module")
def groups(tallymark, hour_ms):
    """What a question makes of them: start of the window, in seconds -> the events in it."""
    start_ms = hour_ms + 16 * 60_000
    tallymark.put_meter(name="story16", event="story16", by=["which"], grain="1s")
    tallymark.send(
        {"event": "story16", "id": each, "time": start_ms + second * 1000 + 500, "props": {"which": each}}
        for each, second in SECONDS.items()
    )

    def ask(**parameters):
        asked = {"from": start_ms, "to": start_ms + 30_000, "by": "which", **parameters, "consistency": "fresh"}
        found = defaultdict(str)
        for line in tallymark.get("/v1/meters/story16/series", **asked)["series"]:
            for number, point in enumerate(line["points"]):
                found[number] += line["labels"]["which"] * bool(point["count"])
        return found

    return ask


def test_tumbling_every_event_is_in_one_window(groups):
    assert groups(step="10s") == {0: "abc", 1: "de", 2: "f"}


def test_hopping_windows_overlap(groups):
    #  starts at       0          5         10       15      20
    assert groups(step="5s", window="10s") == {0: "abc", 1: "cde", 2: "de", 3: "", 4: "f"}


def test_sliding_every_group_of_events_within_ten_seconds_of_each_other(groups):
    found = groups(step="1s", window="10s")
    assert len(found) == 21
    largest = {each for each in found.values() if not any(set(each) < set(other) for other in found.values())}
    # a and c are 9 s apart, a and d are 10 s apart: within ten seconds means less than ten.
    assert largest == {"abc", "bcd", "cde", "f"}


def test_a_card_that_is_used_more_than_five_times_within_any_ten_minutes(tallymark, hour_ms):
    tallymark.put_meter(name="cards", event="pay", by=["card"])
    # Six times in nine minutes across the full ten minutes, and six times in an hour.
    minutes = {"stolen": (15, 17, 19, 21, 22, 23), "mine": (0, 11, 22, 33, 44, 55)}
    tallymark.send(
        {"event": "pay", "id": f"{card}/{minute}", "time": hour_ms + minute * 60_000, "props": {"card": card}}
        for card, used in minutes.items()
        for minute in used
    )
    hour = {"from": hour_ms, "to": hour_ms + 3_600_000, "consistency": "fresh"}
    top = tallymark.get("/v1/meters/cards/top", by="card", window="10m", **hour)["items"]
    assert [(each["labels"]["card"], each["value"]["count"]) for each in top] == [("stolen", 6), ("mine", 1)]
    total = tallymark.get("/v1/meters/cards/total", card="stolen", window="10m", **hour)
    assert total["value"] == {"count": 6}
    ten_minutes = {"from": hour_ms + 15 * 60_000, "to": hour_ms + 25 * 60_000, "consistency": "fresh"}
    assert tallymark.get("/v1/meters/cards/total", card="stolen", **ten_minutes)["value"] == {"count": 6}
