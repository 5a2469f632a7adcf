"""Grains: the widths in which points are kept, and which of them answers which part of a range."""

from collections.abc import Mapping
from dataclasses import dataclass

SECOND_S = 1
TEN_SECONDS_S = 10
MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
GRAINS = (SECOND_S, TEN_SECONDS_S, MINUTE_S, HOUR_S, DAY_S)
BASES = (SECOND_S, TEN_SECONDS_S, MINUTE_S)
"""grains that a meter may have: what is counted goes there"""
ROLLED = (MINUTE_S, HOUR_S, DAY_S)
"""grains whose points are made from finer ones, where a meter has finer ones"""

# Whole days far before and after any event, so that an open range is an ordinary one.
EARLIEST_S = -DAY_S * 10**9
LATEST_S = DAY_S * 10**9


@dataclass(frozen=True, slots=True)
class Piece:
    """The points of one grain with start_s <= bucket_s < end_s."""

    grain_s: int
    start_s: int
    end_s: int


def floor(time_s: int, grain_s: int) -> int:
    return time_s // grain_s * grain_s


def ceiling(time_s: int, grain_s: int) -> int:
    return -(-time_s // grain_s) * grain_s


def pieces(
    start_s: int, end_s: int, *, step_s: int | None, rolled: Mapping[int, int], base_s: int = MINUTE_S
) -> list[Piece]:
    """Covers [start_s, end_s) once: days where whole days are rolled, hours where hours are, ... the base elsewhere.

    `rolled` has for each coarser grain the end of what is rolled.

    A grain serves only where it divides the step, because a coarser point cannot be split over two steps.
    """
    coarser = [grain for grain in reversed(ROLLED) if grain > base_s]
    usable = [grain for grain in coarser if step_s is None or step_s % grain == 0]

    def cover(start: int, end: int, grains: list[int]) -> list[Piece]:
        if start >= end:
            return []
        if not grains:
            return [Piece(base_s, start, end)]
        grain, *finer = grains
        first, last = ceiling(start, grain), min(floor(end, grain), rolled[grain])
        if first >= last:
            return cover(start, end, finer)
        return [*cover(start, first, finer), Piece(grain, first, last), *cover(last, end, finer)]

    return cover(start_s, end_s, usable)
