"""Event names are bounded: the first to come stay, and the others are told what to do instead."""

import pytest

from tallymark.events.names import REMEMBERED_S, Names
from tallymark.events.refusals import Refused
from tallymark.testing import ManualClock


def test_names_beyond_the_limit_are_refused_and_known_ones_go_on() -> None:
    names = Names(3)
    names.admit({"a", "b"})
    names.admit({"c", "a"})
    with pytest.raises(
        Refused, match=r"'view:17', one name more than collector.max_event_names = 3; .*`props`"
    ) as told:
        names.admit({"a", "view:17"})
    assert told.value.code == "too_many_names"
    names.admit({"a", "b", "c"})
    assert len(names) == 3


def test_a_set_of_names_is_taken_whole_or_not_at_all() -> None:
    names = Names(3)
    with pytest.raises(Refused):
        names.admit({"a", "b", "c", "d"})
    assert len(names) == 0
    names.admit({"x", "y", "z"})


def test_what_nobody_used_for_a_day_is_forgotten_and_what_is_in_use_is_not() -> None:
    clock = ManualClock()
    names = Names(2, clock=clock.now)
    names.admit({"used", "mistake"})
    for _ in range(3):
        clock.advance(REMEMBERED_S)
        names.admit({"used"})
    names.admit({"new"})
    with pytest.raises(Refused):
        names.admit({"mistake"})
    clock.advance(REMEMBERED_S)
    names.admit({"used"})
    assert len(names) == 2, "what was used within the half day before is still known"
    clock.advance(2 * REMEMBERED_S)
    names.admit({"other", "another"})


def test_a_name_in_use_is_known_again_before_the_older_ones_go() -> None:
    clock = ManualClock()
    names = Names(2, clock=clock.now)
    names.admit({"a", "b"})
    clock.advance(REMEMBERED_S)
    names.admit({"a"})
    assert len(names) == 2
    with pytest.raises(Refused):
        names.admit({"c"})
    clock.advance(REMEMBERED_S)
    names.admit({"a", "c"})
    with pytest.raises(Refused):
        names.admit({"b"})
