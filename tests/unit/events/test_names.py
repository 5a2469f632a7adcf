"""Event names are bounded: the first to come stay, and the others are told what to do instead."""

import contextlib
import threading

import pytest

from tallymark.events.names import REMEMBERED_S, Known, Names
from tallymark.events.refusals import Refused
from tallymark.testing import ManualClock


def test_names_beyond_the_limit_are_refused_and_known_ones_go_on() -> None:
    names = Names(3)
    names.admit({"a", "b"})
    names.admit({"c", "a"})
    with pytest.raises(Refused, match=r"'view:17', a new name beyond collector.max_event_names = 3; .*`props`") as told:
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


def numbered(count: int, *, of: str = "n") -> set[str]:
    return {f"{of}{number}" for number in range(count)}


def test_one_request_takes_a_tenth_of_the_room_at_most() -> None:
    names = Names(2_000)
    with pytest.raises(Refused, match=r"beyond the 200 new names that one request may bring; .*`props`") as told:
        names.admit(numbered(201))
    assert told.value.code == "too_many_names"
    assert names.admit(numbered(200)) == 200
    with pytest.raises(Refused, match="beyond the 200 new names"):
        names.admit({"one-more"}, added=200)
    assert names.admit(numbered(200), added=200) == 0, "known ones take no room"
    assert names.admit({"one-more"}, added=199) == 1


def test_of_little_room_one_request_may_still_bring_a_hundred_names() -> None:
    assert Names(200).admit(numbered(100)) == 100
    with pytest.raises(Refused, match="beyond the 100 new names"):
        Names(200).admit(numbered(101))


def test_names_in_use_are_known_in_the_next_run_and_forgotten_at_the_same_age() -> None:
    clock = ManualClock()
    names = Names(3, clock=clock.now)
    names.admit({"used", "unused"})
    clock.advance(REMEMBERED_S)
    names.admit({"used"})
    clock.advance(REMEMBERED_S - 1)
    later = ManualClock()
    restarted = Names(3, known=names.known(), clock=later.now)
    assert len(restarted) == 2
    restarted.admit({"new"})
    with pytest.raises(Refused):
        restarted.admit({"flood"})
    restarted.admit({"used"})
    later.advance(1)
    restarted.admit({"used", "another"})
    with pytest.raises(Refused):
        restarted.admit({"unused"})


def test_what_is_kept_is_held_to_the_rules_of_today() -> None:
    names = Names(3, known=Known(["a", "not a name", "b"], ["b", "c", "d"], age_s=-5.0))
    assert len(names) == 3
    names.admit({"a", "b", "c"})
    with pytest.raises(Refused):
        names.admit({"d"})


def test_names_are_changed_by_new_ones_and_by_age_and_not_by_those_in_use() -> None:
    clock = ManualClock()
    names = Names(3, clock=clock.now)
    assert not names.changed
    names.admit({"a"})
    assert names.changed
    names.known()
    names.admit({"a"})
    assert not names.changed
    clock.advance(REMEMBERED_S)
    names.admit({"a"})
    assert names.changed


def test_two_threads_do_not_take_the_same_room() -> None:
    class Interrupted(Names):
        other: threading.Thread | None = None

        def __len__(self) -> int:
            count = super().__len__()
            if self.other is None:
                self.other = threading.Thread(target=self.interrupt)
                self.other.start()
                self.other.join(0.2)  # it waits for its turn, or takes the last room meanwhile
            return count

        def interrupt(self) -> None:
            with contextlib.suppress(Refused):
                self.admit({"b"})

    names = Interrupted(1)
    names.admit({"a"})
    assert names.other is not None
    names.other.join()
    assert len(names) == 1
