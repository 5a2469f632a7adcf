"""A role tells the store that it is alive, whatever happens to the store, and says goodbye."""

import logging

from tallymark.role.heartbeat import Heartbeat
from tallymark.testing import until


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict]] = []
        self.at_ms: list[int] = []
        self.away = False

    def beat(self, role, facts, *, now_ms):
        if self.away:
            raise OSError("the store is away")
        self.said.append((role, dict(facts)))
        self.at_ms.append(now_ms)


def collector(open_heartbeats) -> Heartbeat:
    return Heartbeat("collector", open_heartbeats, every_s=0.01)


def test_it_beats_and_says_goodbye():
    heard = Heard()
    with collector(lambda: heard).in_background(lambda: {"address": "127.0.0.1:1"}):
        until(lambda: len(heard.said) > 2, "it beats")
    assert heard.said[0] == ("collector", {"address": "127.0.0.1:1"})
    until(lambda: heard.said[-1] == ("collector", {"stopped": True}), "it says goodbye")


def test_a_store_that_is_away_is_told_once_and_found_again(caplog):
    heard = Heard()
    heard.away = True
    opened = []

    def open_heartbeats():
        opened.append(1)
        if len(opened) < 3:
            raise OSError("the store is away")
        return heard

    with caplog.at_level(logging.WARNING), collector(open_heartbeats).in_background(lambda: {"address": "127.0.0.1:1"}):
        until(lambda: len(opened) >= 3, "it opens the store again")
        heard.away = False
        until(lambda: heard.said, "it beats again")
    assert caplog.text.count("the store is away") == 1


def test_one_whose_store_is_away_does_not_say_goodbye():
    heard = Heard()
    waits = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        heard.away = len(waits) == 2  # it would be back for a goodbye, which could take as long as the last beat
        return len(waits) == 3

    Heartbeat("query", lambda: heard).run(dict, wait=wait)
    assert waits == [2.0, 2.0, 2.0]
    assert heard.said == [("query", {}), ("query", {})]


def test_the_store_is_opened_once():
    opened, heard = [], Heard()
    heartbeat = Heartbeat("query", lambda: opened.append(1) or heard)
    heartbeat.beat({})
    heartbeat.beat({})
    assert (len(heard.said), len(opened)) == (2, 1)


def test_a_goodbye_that_fails_is_logged(caplog):
    heard = Heard()
    heard.away = True
    Heartbeat("pipeline", lambda: heard).say_goodbye()
    assert "cannot tell the store that this role has stopped: the store is away" in caplog.text


class Rounds:
    """A clock that the waits of so many rounds move on."""

    def __init__(self, rounds: int, now_s: float = 100.0) -> None:
        self.now_s, self._left = now_s, rounds

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        self._left -= 1
        return self._left == 0

    def __call__(self) -> float:
        return self.now_s


def test_it_beats_every_two_seconds_with_the_facts_of_that_moment():
    heard, rounds = Heard(), Rounds(3)
    heartbeat = Heartbeat("pipeline", lambda: heard, clock=rounds)
    heartbeat.run(lambda: {"next": rounds()}, wait=rounds.wait, says_goodbye=False)
    assert heard.at_ms == [100_000, 102_000, 104_000]
    assert heard.said == [("pipeline", {"next": at}) for at in (100.0, 102.0, 104.0)]


def test_facts_that_cannot_be_had_are_logged_once_and_asked_for_again(caplog):
    heard, rounds, troubles = Heard(), Rounds(3), [OSError("no log"), OSError("no log")]

    def facts():
        if troubles:
            raise troubles.pop()
        return {"next": 7}

    Heartbeat("pipeline", lambda: heard, clock=rounds).run(facts, wait=rounds.wait)
    assert heard.said == [("pipeline", {"next": 7}), ("pipeline", {"stopped": True})]
    assert caplog.text.count("no log") == 1
