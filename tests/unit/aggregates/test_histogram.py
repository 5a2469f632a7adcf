"""Histograms: every value in its bucket, and percentiles within the bound of what numpy says."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import histogram, sketch
from tallymark.aggregates.histogram import ONE, RELATIVE_ERROR, SMALLEST

# The bound, and what rounding in floats adds to it.
BOUND = RELATIVE_ERROR * (1 + 1e-9)

sizes = st.floats(SMALLEST, 1e280)
values = sizes | sizes.map(lambda size: -size) | st.sampled_from([0.0, -0.0, 5e-324, -1e-310, 1e280, SMALLEST])


def slot_of(value: float) -> int:
    return int(histogram.slots_of(np.array([value]))[0])


def counted(values: np.ndarray) -> sketch.Slots:
    slot = histogram.slots_of(values).astype(np.int64)
    return histogram.count(np.zeros_like(slot), slot)


def percentile(values: np.ndarray, thousandths: int) -> float | None:
    (found,) = histogram.percentiles(counted(values), 1, thousandths)
    return found


@given(values)
def test_a_value_lies_in_its_bucket_and_near_what_that_stands_for(value):
    slot = slot_of(value)
    if abs(value) < SMALLEST:
        assert (slot, histogram.bounds(slot)) == (0, (0.0, 0.0))
        return
    low, high = histogram.bounds(slot)
    assert low < value <= high if value > 0 else low <= value < high
    (estimate,) = histogram.estimates(np.array([slot]))
    assert low <= estimate <= high
    assert abs(estimate - value) <= BOUND * abs(value)


@given(values, values)
def test_the_order_of_slots_is_that_of_values(left, right):
    if left <= right:
        assert slot_of(left) <= slot_of(right)
    assert slot_of(-left) == -slot_of(left)


@given(st.integers(-1022, 1023), st.integers(0, 31))
def test_a_bound_belongs_to_the_bucket_below_it(power, step):
    with localcontext() as context:
        context.prec = 40
        bound = float(Decimal(2) ** (Decimal(step) / 32)) * 2.0**power
    index = 32 * power + step
    assert slot_of(bound) == ONE + index - 1
    assert slot_of(math.nextafter(bound, math.inf)) == ONE + index
    if bound > SMALLEST:
        assert slot_of(math.nextafter(bound, 0)) == ONE + index - 1


def test_the_slots_are_those_of_the_contract():
    """They are kept on disks, so they never change."""
    known = {0.0: 0, 1.0: 131_071, 1.01: 131_072, 2.0: 131_103, -2.0: -131_103, 114.0: 131_290, 1e280: 160_836}
    assert {value: slot_of(value) for value in known} == known


@pytest.mark.parametrize("slot", [0, 131_071, -131_071, 131_290, 160_836])
def test_what_a_bucket_stands_for_is_2lu_by_l_and_u(slot):
    low, high = histogram.bounds(slot)
    expected = 2 / (1 / low + 1 / high) if slot else 0.0  # 2lu could be infinite
    assert histogram.estimates(np.array([slot])) == pytest.approx([expected], rel=1e-12)


lists = st.lists(values, min_size=1, max_size=60)


@given(lists, st.integers(1, 99_999))
def test_a_percentile_is_the_value_of_the_nearest_rank_within_the_bound(values, thousandths):
    rank = -(-thousandths * len(values) // 100_000)
    true = sorted(values)[rank - 1]
    found = percentile(np.array(values), thousandths)
    assert found is not None
    assert abs(found - true) <= (BOUND * abs(true) if abs(true) >= SMALLEST else SMALLEST)


@given(lists, st.lists(st.integers(0, 60)), st.randoms(use_true_random=False))
def test_however_values_are_cut_and_ordered_the_histogram_is_the_same(values, cuts, random):
    whole = counted(np.array(values))
    random.shuffle(values)
    parts = [counted(part) for part in np.split(np.array(values), sorted(cuts))]
    together = sketch.merge(sketch.Slots(*map(np.concatenate, zip(*parts, strict=True))))
    assert [each.tolist() for each in together] == [each.tolist() for each in whole]


KINDS = {
    "skewed": lambda chance, n: chance.lognormal(3, 2, n),
    "narrow": lambda chance, n: chance.normal(1000, 0.5, n),
    "negative": lambda chance, n: -chance.lognormal(0, 1, n),
    "both signs": lambda chance, n: chance.normal(0, 10, n),
    "many zeros": lambda chance, n: np.where(chance.random(n) < 0.6, 0.0, chance.exponential(5, n)),
    "tiny": lambda chance, n: chance.random(n) * 1e-300,
    "huge": lambda chance, n: chance.random(n) * 1e280,
    "one value": lambda chance, n: np.full(n, 114.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 7, 997, 29_989])
def test_percentiles_agree_with_numpy(kind, count):
    # Of 1,000 values p99.9 is the 999th; numpy multiplies floats and takes the 1,000th. Of 997 there is no such case.
    values = KINDS[kind](np.random.default_rng(count), count)
    for thousandths in (1, 1_000, 25_000, 50_000, 90_001, 99_000, 99_900, 99_999):
        true = float(np.percentile(values, thousandths / 1_000, method="inverted_cdf"))
        found = percentile(values, thousandths)
        assert found is not None
        assert abs(found - true) <= BOUND * abs(true), (thousandths, true, found)


def test_many_rows_are_told_apart_and_empty_ones_have_no_percentile():
    values = {1: [5.0] * 3, 2: [-1.0, 8.0], 5: [0.0]}
    row = np.repeat(list(values), [len(each) for each in values.values()])
    slot = histogram.slots_of(np.concatenate(list(values.values()))).astype(np.int64)
    found = histogram.count(row, slot)
    low, high = (histogram.percentiles(found, 7, thousandths) for thousandths in (1, 99_999))
    assert low == [None, pytest.approx(5, BOUND), pytest.approx(-1, BOUND), None, None, 0.0, None]
    assert high == [None, pytest.approx(5, BOUND), pytest.approx(8, BOUND), None, None, 0.0, None]


def test_registers_in_the_same_sketch_do_not_count_as_values():
    found = sketch.Slots(np.zeros(2, np.int64), np.array([slot_of(3.0), sketch.FIRST_REGISTER]), np.array([1, 50]))
    assert histogram.percentiles(found, 1, 99_000) == [pytest.approx(3, BOUND)]


def test_the_rank_of_more_values_than_a_product_holds():
    count = 2**61
    found = sketch.Slots(np.zeros(2, np.int64), np.array([slot_of(1.0), slot_of(9.0)]), np.array([count, count]))
    assert histogram.percentiles(found, 1, 50_000) == [pytest.approx(1, BOUND)]
    assert histogram.percentiles(found, 1, 50_001) == [pytest.approx(9, BOUND)]
