"""What a store knows of each set of points, however many threads look it up."""

from dataclasses import replace

from tallymark.meters.model import Meter
from tallymark.store.model import DROPPED
from tallymark.store.point_sets import Limit, PointSets

CALLS = Meter("calls", ("rpc",), by=("server",), grain_s=1, max_series=2)
LIMIT = Limit(2, "__other__")


def test_what_came_late_is_kept_and_limited_alike():
    sets = PointSets()
    assert sets.grains([7], lambda: [(7, CALLS), (8, Meter("plain", ("rpc",)))]) == {7: 1, -7: 1, DROPPED - 7: 1}
    assert sets.limits([7], list) == {7: LIMIT, -7: LIMIT}


def test_a_look_up_of_an_older_snapshot_forgets_nothing_that_a_later_one_found():
    sets = PointSets()
    later = [(1, CALLS), (2, replace(CALLS, name="finds"))]

    def definitions_before_finds() -> list[tuple[int, Meter]]:
        # Meanwhile another thread looks up a meter that was defined since.
        sets.limits([2], lambda: later)
        return later[:1]

    sets.limits([1], definitions_before_finds)
    assert sets.limits([2], lambda: later)[2] == LIMIT
    assert sets.grains([2], lambda: later)[2] == 1
