"""A role says in the store that it is alive, whatever happens to the store, and says goodbye."""

import logging

import pytest

from tallymark.beating import Beating
from tallymark.role import Role
from tallymark.settings import Settings
from tallymark.testing import until


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict]] = []
        self.away = False

    def beat(self, role, facts, *, now_ms):
        if self.away:
            raise OSError("the store is away")
        self.said.append((role, dict(facts)))


@pytest.fixture
def role(tmp_path, monkeypatch):
    monkeypatch.setattr("tallymark.beating.INTERVAL_S", 0.01)
    return Role(Settings(data=str(tmp_path)), "collector")


def test_it_beats_and_says_goodbye(role):
    heard = Heard()
    with Beating(role, lambda: heard, address="127.0.0.1:1"):
        until(lambda: len(heard.said) > 2, "it beats")
    assert heard.said[0] == ("collector", {"address": "127.0.0.1:1"})
    until(lambda: heard.said[-1] == ("collector", {"stopped": True}), "it says goodbye")


def test_a_store_that_is_away_is_told_once_and_found_again(role, caplog):
    heard = Heard()
    heard.away = True
    opened = []

    def open_beats():
        opened.append(1)
        if len(opened) < 3:
            raise OSError("the store is away")
        return heard

    with caplog.at_level(logging.WARNING), Beating(role, open_beats, address="127.0.0.1:1"):
        until(lambda: len(opened) >= 3, "it opens the store again")
        heard.away = False
        until(lambda: heard.said, "it beats again")
    assert caplog.text.count("the store is away") == 1
