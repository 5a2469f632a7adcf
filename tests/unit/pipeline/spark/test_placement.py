"""Which executor counts which partition."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tallymark.pipeline.spark.placement import Spread

executors = st.sets(st.sampled_from([f"executor_host_{number}" for number in range(6)]), min_size=1)


@given(st.integers(1, 20), st.lists(executors, min_size=1, max_size=8))
def test_partitions_are_spread_evenly_and_move_only_when_they_must(partitions, histories):
    spread, before = Spread(), {}
    for present in histories:
        placed = spread.over(range(partitions), present)
        assert set(placed) == set(range(partitions))
        assert set(placed.values()) <= present
        load = Counter(dict.fromkeys(present, 0)) + Counter()
        load.update(placed.values())
        counts = [load[each] for each in present]
        assert max(counts) - min(counts) <= 1
        moved = [each for each, executor in before.items() if executor in present and placed[each] != executor]
        # Only to fill those that are new or have too little.
        assert len(moved) <= sum(counts) - sum(min(Counter(before.values())[each], load[each]) for each in present)
        before = placed


def test_a_lost_executor_s_partitions_go_to_those_that_are_left():
    spread = Spread()
    assert spread.over(range(4), ["a", "b"]) == {0: "a", 1: "b", 2: "a", 3: "b"}
    assert spread.over(range(4), ["b"]) == dict.fromkeys(range(4), "b")
    assert sorted(spread.over(range(4), ["b", "c"]).values()) == ["b", "b", "c", "c"]


def test_a_partition_that_comes_later_goes_where_there_is_room():
    spread = Spread()
    spread.over([0], ["a", "b"])
    assert spread.over([0, 1], ["a", "b"]) == {0: "a", 1: "b"}
