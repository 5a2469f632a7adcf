"""Exact sums: integers in two parts, because 64 bits do not hold a thousand large amounts of money.

units = high * 2^32 + low, with 0 <= low < 2^32. The parts are added apart and the carry moves up after each sum. So one
sum may take 2^31 rows before `low` is full (an event is a row when its stretch is counted, later a row is a bucket),
and `high` is full beyond 2^95 units: 4 * 10^12 events of the largest value that counts, 2^53 units.
"""

import polars as pl

LOW_BITS = 32
BASE = 1 << LOW_BITS

HIGH, LOW = PARTS = ("exact_high", "exact_low")
"""columns"""


def split(units: int) -> tuple[int, int]:
    """(high, low)"""
    return units >> LOW_BITS, units & (BASE - 1)


def whole(high: int | None, low: int | None) -> int | None:
    """The units again, as a Python integer; None where there was no value."""
    return None if high is None or low is None else (high << LOW_BITS) + low


def units(number: pl.Expr, decimals: int) -> pl.Expr:
    """The whole number of units that is nearest to each float, of two that are equally near the even one.

    What is before the point and what is behind it are scaled apart: the first is exact, and the larger it is the fewer
    bits are left for the second. As one product, amounts from 2^51 units on were off by one.
    """
    if decimals == 0:
        return number.round()  # what is before the point decides which of two units is the even one
    scale: int = 10**decimals
    size = number.abs()
    whole = size.floor()
    return number.sign() * (whole * scale + ((size - whole) * scale).round())


def high_of_sum(units: pl.Expr) -> pl.Expr:
    """Of a column of units below 2^53; the carry is left to the first merge."""
    return (units // BASE).sum()


def low_of_sum(units: pl.Expr) -> pl.Expr:
    return (units % BASE).sum()
