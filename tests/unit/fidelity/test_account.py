"""The account of a log that cannot tell how many events it holds without reading them, as Kafka cannot."""

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.fidelity.log_view import REST, StreamView
from tallymark.log.protocol import LogUnreachable, Outgoing, Positions
from tallymark.store.model import Ledger
from tallymark.testing import MemoryLog

TERMS = ("counted", "duplicate", "dead", "aside", "unmatched", "in_flight", "missing")


class QuietLog(MemoryLog):
    """Knows its offsets, but not its events; `away` while nobody answers."""

    away = False
    asked = 0

    def positions(self) -> dict[int, Positions]:
        self.asked += 1
        if self.away:
            raise LogUnreachable("no broker answers")
        return {number: replace(standing, events=None) for number, standing in super().positions().items()}


@pytest.fixture
def quiet(desk):
    desk.log, desk.dead = QuietLog(2, clock=lambda: desk.now_ms), QuietLog(1)
    desk.store.letters_at = 0
    desk.store.dead_letters.position = lambda identity: desk.store.letters_at
    return desk


def test_what_waits_is_read_from_the_log_and_the_law_holds(quiet):
    quiet.log.append([Outgoing(0, b"", 5), Outgoing(1, b"", 3), Outgoing(1, b"", 2)])
    quiet.store.positions = {0: 1, 1: 1}
    quiet.store.ledgers = {0: Ledger(accepted=5, counted=4, duplicate=1), 1: Ledger(accepted=3, counted=3)}
    told = quiet.ask("/v1/status")
    assert (told["accepted"], told["in_flight"]) == (10, 2)
    assert told["accepted"] == sum(told[term] for term in TERMS)
    quiet.store.positions = {0: 1, 1: 2}
    quiet.store.ledgers[1] = Ledger(accepted=5, counted=5)
    told = quiet.ask("/v1/status")
    assert (told["accepted"], told["in_flight"]) == (10, 0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 50)), max_size=30), st.data())
def test_the_law_holds_wherever_the_pipeline_stands(new_desk, frames, data):
    desk = new_desk()
    desk.log = QuietLog(2, clock=lambda: desk.now_ms)
    desk.log.append([Outgoing(partition, b"", events) for partition, events in frames])
    for partition in (0, 1):
        sizes = [events for place, events in frames if place == partition]
        applied = data.draw(st.integers(0, len(sizes)))
        desk.store.positions[partition] = applied
        desk.store.ledgers[partition] = Ledger(accepted=sum(sizes[:applied]), counted=sum(sizes[:applied]))
    told = desk.ask("/v1/status")
    assert told["accepted"] == sum(events for _, events in frames) == sum(told[term] for term in TERMS)


def test_a_log_that_begins_later_holds_nothing_before_its_beginning(quiet):
    quiet.log.append([Outgoing(0, b"", 5), Outgoing(0, b"", 3)])
    quiet.log.positions = lambda: {0: Positions(1, 2, 2, None), 1: Positions(0, 0, 0, None)}
    assert quiet.ask("/v1/status")["in_flight"] == 3


def test_refused_events_are_those_taken_in_and_those_that_wait(quiet):
    quiet.dead.append([Outgoing(0, b"", 4), Outgoing(0, b"", 6)])
    quiet.store.letters = {("collector", "bad_time"): 3, ("collector", "too_old"): 1, ("pipeline", "undecodable"): 9}
    quiet.store.letters_at = 1
    told = quiet.ask("/v1/status")
    assert (told["refused"], told["received"]) == (10, 10)


def test_letters_that_are_taken_in_meanwhile_are_not_counted_twice(quiet):
    quiet.dead.append([Outgoing(0, b"", 4), Outgoing(0, b"", 6)])
    quiet.store.letters_at = 1
    quiet.store.letters = {("collector", "bad_time"): 4}
    moments = iter([1, 2, 2])

    def position(identity):
        quiet.store.letters_at = next(moments)
        return quiet.store.letters_at

    def counts(*, tenant):
        return {("collector", "bad_time"): 4 if quiet.store.letters_at == 1 else 10}

    quiet.store.dead_letters.position, quiet.store.dead_letters.counts = position, counts
    assert quiet.ask("/v1/status")["refused"] == 10


def test_while_the_log_does_not_answer_nobody_claims_to_know_what_waits(quiet):
    quiet.log.append([Outgoing(0, b"", 5)])
    quiet.store.positions, quiet.store.ledgers = {0: 1}, {0: Ledger(accepted=5, counted=5)}
    quiet.log.away = True
    told = quiet.ask("/v1/status")
    assert (told["accepted"], told["in_flight"], told["received"], told["counted"]) == (None, None, None, 5)
    assert "the log cannot be read, so it is unknown how fresh the counts are" in told["problems"]
    answer = quiet.ask("/v1/meters/views/total")
    assert answer["value"] == {"count": 0}
    assert answer["freshness"]["lag_ms"] is None


def test_nor_when_nothing_was_ever_counted(quiet):
    quiet.log.away = True
    told = quiet.ask("/v1/status")
    assert (told["in_flight"], told["freshness"]["complete_through"]) == (None, None)


def test_the_rates_have_a_gap_then(quiet):
    quiet.store.positions = {0: 1}
    for away in (False, True, False):
        quiet.log.away = away
        quiet.rates.take()
        quiet.now_ms += 1000
    assert len(quiet.rates.recent()) == 1


def test_a_log_that_keeps_people_waiting_is_left_alone_for_a_while(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("tallymark.fidelity.log_view.time.monotonic", lambda: now[0])
    log = QuietLog(1)
    view = StreamView(lambda: log)

    def slow():
        log.asked += 1
        now[0] += 0.5
        raise LogUnreachable("no broker answers")

    log.positions = slow
    assert view.positions() is None
    now[0] += 0.5 * REST - 0.1
    assert view.positions() is None
    assert log.asked == 1
    now[0] += 0.2
    assert view.positions() is None
    assert log.asked == 2


def test_one_question_that_a_silent_log_keeps_waiting_does_not_hold_up_the_others(monkeypatch):
    monkeypatch.setattr("tallymark.fidelity.log_view.MOST_WAIT_S", 0.01)
    log, reached, go = QuietLog(1), threading.Event(), threading.Event()
    view = StreamView(lambda: log)

    def silent():
        reached.set()
        assert go.wait(20)
        raise LogUnreachable("no broker answers")

    log.positions = silent
    first = threading.Thread(target=view.positions)
    first.start()
    assert reached.wait(20)
    assert view.append_ms(0, 0) is None
    go.set()
    first.join(20)


def test_brokers_whose_clocks_are_a_little_ahead_do_not_hide_the_freshness(quiet):
    quiet.log.slack_ms = 30_000
    quiet.now_ms += 20
    quiet.log.append([Outgoing(0, b"", 1)])
    quiet.now_ms -= 20
    assert quiet.ask("/v1/meters/views/total")["freshness"]["lag_ms"] == 0
    quiet.log.slack_ms = 0
    assert quiet.ask("/v1/meters/views/total")["freshness"]["lag_ms"] is None
