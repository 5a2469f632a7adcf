"""The loop: one snapshot an interval, gaps where there was nothing, ids that are never used twice."""

import pytest

from tallymark.agent.heartbeat import Heartbeat


def test_each_second_is_one_event_named_after_the_second_it_covers(measure, sent):
    #  1000      1001      1002      1003  stop
    #  |---------|---------|---------|-----
    #  start     1000      1001      1002
    measure()
    assert sent.ids == ["web-1/1000", "web-1/1001", "web-1/1002"]
    assert [event.time for event in sent.events] == [1_000_000, 1_001_000, 1_002_000]
    assert all(event.name == "metrics" and event.props == {"server": "web-1"} for event in sent.events)
    assert all(event.values["disk_read_bytes"] == pytest.approx(100) for event in sent.events)
    assert all(event.values["load1"] == 0.5 for event in sent.events)


def test_a_longer_interval_is_named_after_its_beginning(measure, sent, clock):
    clock.set(1007.0)
    measure(every_s=10)
    # Begun at 1007, the first boundary is 1010; what is measured there covers the interval from 1000.
    assert sent.ids == ["web-1/1000", "web-1/1010", "web-1/1020"]


def test_while_the_machine_sleeps_no_seconds_are_made_up(measure, sent, clock):
    clock.asleep[2] = 3600.0
    measure()
    assert sent.ids == ["web-1/1000", "web-1/4601", "web-1/4602"]
    # The rate is of the time it was awake, not 100 bytes in an hour.
    assert [event.values["disk_read_bytes"] for event in sent.events] == pytest.approx([100, 100, 100])


def test_a_late_second_is_a_gap_and_no_zero(measure, sent, clock):
    clock.late[2] = 2.4
    measure()
    assert sent.ids == ["web-1/1000", "web-1/1003", "web-1/1004"]
    assert all(event.values["disk_read_bytes"] == pytest.approx(100) for event in sent.events)


def test_a_wait_that_ends_a_little_early_belongs_to_its_boundary(measure, sent, clock):
    clock.late[1] = -0.001
    measure()
    assert sent.ids == ["web-1/1000", "web-1/1001", "web-1/1002"]


def test_a_clock_that_is_set_back_repeats_no_id(measure, sent, clock):
    clock.before_wait = lambda number: clock.set(1000.0) if number == 3 else None
    measure()
    assert sent.ids[:2] == ["web-1/1000", "web-1/1001"]
    assert sent.ids[2].startswith("web-1/1000/")
    assert [event.time for event in sent.events] == [1_000_000, 1_001_000, 1_000_000]


def test_what_applications_said_last_is_sent_at_the_end_without_rates_of_half_a_second(measure, sent, clock, sources):
    said = sources.aggregator
    clock.before_wait = lambda number: said.feed(b"orders:%d|c" % number)
    measure()
    assert [event.values["orders"] for event in sent.events] == [1, 2, 3, 4]
    assert sent.ids[3] == "web-1/1003"
    assert "load1" not in sent.events[3].values
    assert "disk_read_bytes" not in sent.events[3].values


def test_what_is_still_in_the_socket_when_the_agent_is_stopped_is_sent(measure, sent, clock, sources):
    class Listening:
        """It feeds only when it is stopped: the worst moment for SIGTERM."""

        is_alive = True

        def dropped(self) -> int:
            return 0

        def stop(self) -> None:
            sources.aggregator.feed(b"orders:7|c")

    sources.listener = Listening()
    measure()
    assert [event.values.get("orders") for event in sent.events] == [None, None, None, 7]


def test_a_gauge_is_in_the_first_event_already(measure, sent, clock, sources):
    clock.waits = 1
    clock._running_s = 100_000.0
    sources.aggregator.feed(b"queue:7|g")
    measure()
    assert sent.events[0].values["queue"] == 7


def test_a_restart_within_the_second_loses_nothing_to_the_duplicates(measure, sent, clock, sources, tmp_path):
    clock.before_wait = lambda number: sources.aggregator.feed(b"orders:1|c")
    measure()
    assert sent.ids[-1] == "web-1/1003"  # the rest of the first life
    clock.waits += 2
    measure()
    assert sent.ids[4].startswith("web-1/1003/")
    assert sent.ids[5] == "web-1/1004"
    assert len(set(sent.ids)) == len(sent.ids)
    assert sum(event.values["orders"] for event in sent.events) == clock._number


def test_the_next_life_knows_which_seconds_are_used(tmp_path):
    Heartbeat(tmp_path / "beat").beat(1003)
    assert Heartbeat(tmp_path / "beat").last == 1003
    (tmp_path / "beat").write_text("torn")
    assert Heartbeat(tmp_path / "beat").last == 0


def test_more_values_than_one_event_takes_go_in_several(measure, sent, clock, sources):
    clock.waits = 1
    sources.aggregator.feed("\n".join(f"m{number}:1|c" for number in range(5_000)).encode())
    measure()
    assert sent.ids == ["web-1/1000", "web-1/1000.2"]
    assert sum(name.startswith("m") and name[1:].isdigit() for e in sent.events for name in e.values) == 5_000
    assert all(len(event.values) <= 4_096 for event in sent.events)


def test_what_was_refused_is_in_the_agents_own_values(measure, sent, clock, sources):
    clock.waits = 2
    sources.aggregator.feed(b"good:1|c\nbad\nbad\ncpu_x:nan|g\nagent_x:1|c")
    measure()
    first, second = (event.values for event in sent.events)
    assert first["agent_refused"] == 4
    assert first['agent_refused{reason="malformed"}'] == 2
    assert first['agent_refused{reason="not_finite"}'] == 1
    assert first['agent_refused{reason="name_taken"}'] == 1
    assert first["agent_statsd_lines"] == 2
    assert (first["agent_events_queued"], first["agent_events_spilled"]) == (3, 3)
    assert second["agent_refused"] == 0
    assert second["agent_statsd_lines"] == 0


def test_a_reason_is_said_once_with_an_example(refusals, caplog):
    for number in range(3):
        refusals.count("malformed", f"line {number}")
    assert [record.getMessage() for record in caplog.records] == [
        "refused: not a line of StatsD or Prometheus, for example 'line 0' (logged once)"
    ]


def test_that_nobody_answers_is_said_once_and_so_is_the_end_of_it(measure, sent, clock, caplog):
    caplog.set_level("INFO")
    states = {2: "open", 3: "half_open", 5: "closed"}
    clock.waits = 6
    clock.before_wait = lambda number: sent.breakers.update({"http://x": states.get(number, sent.breakers["http://x"])})
    measure()
    assert [record.getMessage() for record in caplog.records] == [
        "no answer from http://x; measurements are kept until there is one",
        "http://x answers again",
    ]
    assert len(sent.events) == 6


def test_a_dead_listener_ends_the_process_loudly(measure, sources):
    class Dead:
        is_alive = False

        def dropped(self) -> int:
            return 0

    sources.listener = Dead()
    with pytest.raises(RuntimeError, match="StatsD listener thread died"):
        measure()
