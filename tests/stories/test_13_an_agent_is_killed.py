"""Story 13, but for the alarm: an agent is killed. A gap, not a zero, in the chart; the supervisor starts it again."""

import psutil
import pytest

from running import is_alive


@pytest.fixture
def agent(tallymark, tmp_path):
    """`tallymark agent` beside the Tallymark: a supervisor and the process that measures."""
    started = tallymark.begin(
        "agent", "--server", "story13", "--statsd", "off", "--url", tallymark.url, "--data", str(tmp_path / "agent")
    )
    yield psutil.Process(started.pid)
    started.terminate()
    assert started.wait(30) == 0


def measuring(agent: psutil.Process) -> psutil.Process | None:
    return next((each for each in agent.children() if is_alive(each.pid)), None)


def counted(tallymark) -> int:
    """Snapshots of the agent that are in the counts: one event a second."""
    return tallymark.total("story13", metric="cpu", server="story13")["count"]


def test_a_killed_agent_is_started_again_and_its_metrics_come_back(tallymark, agent):
    tallymark.put_meter(name="story13", event="metrics", by=["server"], each="values", compute=["count", "max"])
    tallymark.wait_until(lambda: counted(tallymark) > 0, seconds=60, what="the agent's first snapshots")
    first = tallymark.wait_until(lambda: measuring(agent), seconds=30, what="a process that measures")
    first.kill()
    second = tallymark.wait_until(
        lambda: (found := measuring(agent)) and found.pid != first.pid and found, seconds=60, what="another one"
    )
    before = counted(tallymark)
    tallymark.wait_until(lambda: counted(tallymark) > before + 2, seconds=60, what="snapshots after the kill")
    assert second.pid != first.pid
    # The built-in meter has them too, without any definition.
    assert 0 <= tallymark.total("metrics", metric="cpu", server="story13")["max"] <= 1


def test_a_minute_without_snapshots_is_a_gap_and_not_a_zero(tallymark, hour_ms):
    #  12:13   12:14   12:15
    #  [ 0.5 )[       )[ 0.7 )
    minute_ms = hour_ms + 13 * 60_000
    tallymark.send(
        {
            "event": "metrics",
            "id": f"story13-gap/{minute}",
            "time": minute_ms + minute * 60_000,
            "props": {"server": "story13-gap"},
            "values": {"cpu": cpu},
        }
        for minute, cpu in ((0, 0.5), (2, 0.7))
    )
    asked = {"from": minute_ms, "to": minute_ms + 180_000, "step": "1m", "metric": "cpu", "server": "story13-gap"}
    (only,) = tallymark.get("/v1/meters/metrics/series", **asked, consistency="fresh")["series"]
    assert [point["max"] for point in only["points"]] == [0.5, None, 0.7]
    assert [point["avg"] for point in only["points"]] == [0.5, None, 0.7]
