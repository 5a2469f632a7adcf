"""Merging deltas is addition: any order, any grouping, the same numbers."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.store import deltas

# Multiples of a quarter add up without rounding, so that the laws hold to the bit.
quarters = st.integers(-4000, 4000).map(lambda quarter: quarter / 4)


@st.composite
def rows(draw: st.DrawFn) -> tuple[object, ...]:
    meter, series, minute = (
        draw(st.integers(1, 2)),
        draw(st.sampled_from(["", "a", "a\0b", "é"])),
        draw(st.integers(0, 3)),
    )
    n = draw(st.integers(1, 5))
    values = draw(st.lists(quarters, max_size=n))
    if not values:
        return (meter, series, minute * 60, n, 0, None, None, None, None)
    if draw(st.booleans()):
        return (meter, series, minute * 60, n, len(values), None, int(sum(values) * 4), None, None)
    return (meter, series, minute * 60, n, len(values), sum(values), None, min(values), max(values))


frames = st.lists(rows(), max_size=8).map(lambda found: pl.DataFrame(found, schema=deltas.SCHEMA, orient="row"))


def same(left: pl.DataFrame, right: pl.DataFrame) -> bool:
    return left.sort(deltas.KEYS).equals(right.sort(deltas.KEYS))


@given(frames, frames)
def test_merging_is_commutative(a: pl.DataFrame, b: pl.DataFrame) -> None:
    assert same(deltas.merge([a, b]), deltas.merge([b, a]))


@given(frames, frames, frames)
def test_merging_is_associative(a: pl.DataFrame, b: pl.DataFrame, c: pl.DataFrame) -> None:
    assert same(deltas.merge([deltas.merge([a, b]), c]), deltas.merge([a, deltas.merge([b, c])]))


@given(frames)
def test_merging_with_nothing_changes_nothing(a: pl.DataFrame) -> None:
    assert same(deltas.merge([deltas.merge([a]), deltas.empty()]), deltas.merge([a]))


@given(frames)
def test_decoding_gives_back_what_was_encoded(a: pl.DataFrame) -> None:
    assert deltas.decode(deltas.encode(a)).equals(a)


def test_null_plus_x_is_x_and_null_plus_null_stays_null() -> None:
    merged = deltas.merge(
        [
            pl.DataFrame([(1, "a", 0, 1, 0, None, None, None, None)], schema=deltas.SCHEMA, orient="row"),
            pl.DataFrame([(1, "a", 0, 2, 1, None, 250, -1.5, None)], schema=deltas.SCHEMA, orient="row"),
        ]
    )
    assert merged.rows() == [(1, "a", 0, 3, 1, None, 250, -1.5, None)]


def test_deltas_of_another_layout_are_refused() -> None:
    other = deltas.empty().rename({"n": "count"}).clear(1)
    with pytest.raises(ValueError, match="written by another version"):
        deltas.decode(_raw(other))


def _raw(frame: pl.DataFrame) -> bytes:
    from io import BytesIO

    target = BytesIO()
    frame.write_ipc_stream(target)
    return target.getvalue()
