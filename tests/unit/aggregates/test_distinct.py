"""Distinct counts: near the truth, whatever it is, and the same however texts were cut."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import distinct, sketch


def counted(texts: list[str], *, row: int = 0) -> sketch.Slots:
    marks = distinct.marks_of(pl.Series(texts, dtype=pl.String)).astype(np.int64)
    return distinct.count(np.full(len(texts), row, np.int64), marks)


def registers(texts: list[str]) -> list[tuple[int, int]]:
    """(register, rank) of each."""
    return [divmod(mark, 64) for mark in distinct.marks_of(pl.Series(texts)).tolist()]


def together(parts: list[sketch.Slots]) -> sketch.Slots:
    return sketch.merge(sketch.Slots(*map(np.concatenate, zip(*parts, strict=True))))


@pytest.mark.parametrize("count", [0, 1, 2, 10, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize("prefix", ["user-", "10.0.0.", "사용자 "])
def test_the_estimate_is_within_four_standard_errors(count, prefix):
    (found,) = distinct.estimates(counted([f"{prefix}{number}" for number in range(count)]), 1)
    assert abs(found - count) <= 4 * distinct.STANDARD_ERROR * count


@pytest.mark.parametrize("count", range(0, 40, 3))
def test_a_few_are_as_good_as_exact(count):
    (found,) = distinct.estimates(counted([str(number) for number in range(count)]), 1)
    assert abs(found - count) <= 1


def test_the_standard_error_is_what_it_says():
    rows, count = 200, 20_000
    chance = np.random.default_rng(7)
    parts = [counted([*map(str, chance.integers(0, 2**62, count))], row=row) for row in range(rows)]
    off = np.array(distinct.estimates(together(parts), rows)) / count - 1
    assert 0.8 < np.sqrt(np.mean(off**2)) / distinct.STANDARD_ERROR < 1.2
    assert abs(off.mean()) < 4 * distinct.STANDARD_ERROR / np.sqrt(rows), "and it leans to neither side"


texts = st.lists(st.text(max_size=5), max_size=50)


@given(texts, st.lists(st.integers(0, 50)), st.randoms(use_true_random=False))
def test_however_texts_are_cut_ordered_and_repeated_the_registers_are_the_same(texts, cuts, random):
    whole = counted(texts)
    again = [*texts, *texts[:5]]
    random.shuffle(again)
    borders = [0, *sorted(min(cut, len(again)) for cut in cuts), len(again)]
    parts = [counted(again[start:end]) for start, end in pairwise(borders)]
    assert [each.tolist() for each in together(parts)] == [each.tolist() for each in whole]


def test_the_hash_never_changes():
    """Sketches of it are kept: another hash would count old users again."""
    assert registers(["", "a", "user-1", "사용자"]) == [(720, 2), (3692, 2), (1991, 2), (3421, 1)]


def test_a_rank_is_the_place_of_the_first_one(monkeypatch):
    given = [0, 1, 1 << 51, (1 << 52) - 1, (1 << 64) - 1, (5 << 52) | (1 << 50)]
    monkeypatch.setattr("xxhash.xxh3_64_intdigest", lambda text: given[int(text)])
    assert registers([*"012345"]) == [(0, 53), (0, 52), (0, 1), (0, 1), (4095, 1), (5, 2)]


def test_many_rows_are_told_apart_and_buckets_do_not_count():
    parts = [counted(["a", "b", "c"], row=2), counted(["a"], row=0)]
    bucket = sketch.Slots(np.array([1]), np.array([131_072]), np.array([40]))
    assert distinct.estimates(together([*parts, bucket]), 4) == [1, 0, 3, 0]


def test_registers_that_are_all_full_still_have_an_estimate():
    every = np.arange(distinct.REGISTERS) + sketch.FIRST_REGISTER
    full = sketch.Slots(np.zeros_like(every), every, np.full_like(every, distinct.HIGHEST_RANK))
    (found,) = distinct.estimates(full, 1)
    assert found > 10**18
