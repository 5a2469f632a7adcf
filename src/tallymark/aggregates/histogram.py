"""Histograms, from which any percentile can be told: exponential buckets, 32 for each doubling, as slots of a sketch.

Bucket i holds the values v with b^i < v <= b^(i+1), b = 2^(1/32): the rule of OpenTelemetry's exponential histograms
and of Prometheus' native ones, at scale 5. Its slot is 131,072 + i. A negative value has minus the slot of its
opposite, and slot 0 is for zero. So the order of slots is that of values.

A bucket is found by a float's exponent and one table of 32 bounds, never by a logarithm: those differ from library to
library at the borders, and then the same event could fall into two buckets.
"""

from decimal import Context, Decimal

import numpy as np
import numpy.typing as npt

from tallymark.aggregates.sketch import Integers, Slots

PER_DOUBLING = 32
"""2 to the power of the scale"""
ONE = 131_072
"""slot of the bucket that begins at 1"""
ZERO = 0
SMALLEST = 2.0**-1022
"""nearer to zero a float has fewer digits than a bucket needs, and counts as zero"""
PERCENT = 1_000
"""percentiles are asked for in thousandths: 99.9 is 99,900"""

Floats = npt.NDArray[np.float64]

# In decimals, since a power of floats may be another float on another machine.
_DIGITS = Context(prec=40)
_BOUNDS = np.array(
    [float(_DIGITS.power(Decimal(2), Decimal(step) / PER_DOUBLING)) for step in range(PER_DOUBLING)], np.float64
)
"""lower bounds of the buckets from 1 to 2"""
_GROWTH = float(_BOUNDS[1])
# Of a bucket from l to u this is 2lu / (l + u), which is as far from l as from u in proportion.
_FROM_LOWER = 2 * _GROWTH / (1 + _GROWTH)
RELATIVE_ERROR = (_GROWTH - 1) / (_GROWTH + 1)
"""1.083 %: how far a value can be from what its bucket stands for, as a part of the value"""


def slots_of(values: Floats) -> npt.NDArray[np.int32]:
    """The slot of each value; all are finite."""
    size, exponent = np.frexp(np.abs(values))  # 0.5 <= size < 1
    # A bound belongs to the bucket below it.
    step = np.searchsorted(_BOUNDS * 0.5, size, side="left").astype(np.int32)
    slot = (exponent - 1) * PER_DOUBLING + step + (ONE - 1)
    slot[np.abs(values) < SMALLEST] = ZERO
    return np.where(values < 0, -slot, slot)


def count(row: Integers, slot: Integers) -> Slots:
    """The buckets of each row, given the row and the slot of each value."""
    if not len(slot):
        return Slots(row, slot, slot)
    lowest = int(slot.min())
    span = int(slot.max()) - lowest + 1
    # As one number: sorting those is several times as fast as sorting pairs.
    places, number = np.unique(row * span + (slot - lowest), return_counts=True)
    rows, above = np.divmod(places, span)
    return Slots(rows, above + lowest, number)


def bounds(slot: int) -> tuple[float, float]:
    """Least and greatest value of a bucket, the least being just outside."""
    if slot == ZERO:
        return 0.0, 0.0
    index = abs(slot) - ONE
    lower, upper = (float(_lower_bounds(np.array([each], np.int64))[0]) for each in (index, index + 1))
    return (lower, upper) if slot > 0 else (-upper, -lower)


def estimates(slots: Integers) -> Floats:
    """What the values of each bucket are taken for."""
    size = _lower_bounds(np.abs(slots) - ONE) * _FROM_LOWER
    return np.where(slots == ZERO, 0.0, np.copysign(size, slots))


def _lower_bounds(index: Integers) -> Floats:
    doublings, step = np.divmod(index, PER_DOUBLING)
    with np.errstate(over="ignore"):  # slot 0 has no bounds
        return np.ldexp(_BOUNDS[step], doublings.astype(np.int32))


def percentiles(slots: Slots, rows: int, thousandths: int) -> list[float | None]:
    """A percentile of each row's values; None where there are none.

    It is the value of rank ceil(p / 100 * n), the nearest rank, as far as its bucket tells. The slots are as `merge`
    gives them.
    """
    row, slot, number = slots.buckets
    if not len(row):
        return [None] * rows
    through = np.cumsum(number)
    ends = np.searchsorted(row, np.arange(rows), side="right")
    up_to = np.concatenate(([0], through))[ends]
    before = np.concatenate(([0], up_to[:-1]))
    count = up_to - before
    # In whole numbers: as floats, 0.07 * 100 is a little more than 7.
    whole, rest = np.divmod(count, 100 * PERCENT)
    rank = whole * thousandths + (rest * thousandths + 100 * PERCENT - 1) // (100 * PERCENT)
    has_any = count > 0
    found = estimates(slot[np.searchsorted(through, (before + rank)[has_any], side="left")])
    values: list[float | None] = [None] * rows
    for place, value in zip(np.flatnonzero(has_any).tolist(), found.tolist(), strict=True):
        values[place] = value
    return values
