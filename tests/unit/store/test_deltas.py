"""Merging deltas is addition: any order, any grouping, the same numbers."""

from io import BytesIO

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import exact
from tallymark.store import deltas
from tallymark.store.format import VERSION

# Multiples of a quarter add up without rounding, so that the laws hold to the bit.
LARGEST = (2**53 - 1, 1 - 2**53)
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
        return (meter, series, minute * 60, n, 0, None, None, None, None, None)
    if draw(st.booleans()):
        units = sum(draw(st.sampled_from([*LARGEST, int(value * 4)])) for value in values)
        return (meter, series, minute * 60, n, len(values), None, *exact.split(units), None, None)
    return (meter, series, minute * 60, n, len(values), sum(values), None, None, min(values), max(values))


frames = st.lists(rows(), max_size=8).map(lambda found: deltas.from_rows(found))


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
            deltas.from_rows([(1, "a", 0, 1, 0, None, None, None, None, None)]),
            deltas.from_rows([(1, "a", 0, 2, 1, None, 0, 250, -1.5, None)]),
        ]
    )
    assert [row[:10] for row in merged.rows()] == [(1, "a", 0, 3, 1, None, 0, 250, -1.5, None)]


@given(st.lists(st.sampled_from([*LARGEST, 9 * 10**15, -9 * 10**15, 1, -1, 0]), max_size=200), st.data())
def test_sums_of_the_largest_amounts_are_those_of_plain_integers(amounts: list[int], data: st.DataObject) -> None:
    split = data.draw(st.lists(st.integers(1, 20), min_size=1))
    cells = [(1, "a", 0, 1, 1, None, *exact.split(units), None, None) for units in amounts * 25]
    parts, rest = [], cells
    while rest:
        size = split[len(parts) % len(split)] * 50
        parts.append(deltas.merge([deltas.from_rows(rest[:size])]))
        rest = rest[size:]
    merged = deltas.merge(parts).rows()
    found = [exact.whole(row[6], row[7]) for row in merged]
    assert found == ([sum(amounts) * 25] if amounts else [])
    assert all(0 <= row[7] < 2**32 for row in merged)


def test_deltas_of_another_layout_are_refused() -> None:
    other = deltas.empty().rename({"n": "count"}).clear(1)
    with pytest.raises(ValueError, match="but this version knows"):
        deltas.decode(_raw(other))


def _raw(frame: pl.DataFrame) -> bytes:
    from io import BytesIO

    target = BytesIO()
    frame.write_ipc_stream(target)
    return target.getvalue()


def test_entries_of_format_2_are_read() -> None:
    """They were an Arrow stream of all columns that there were, without a version."""
    target = BytesIO()
    old = deltas.from_rows([(1, "a", 60, 3, 2, None, 0, 250, -1.5, 2.0)])
    old[:, :10].write_ipc_stream(target, compression="lz4")
    assert deltas.decode(target.getvalue()).equals(old)


def test_an_entry_of_a_newer_format_is_refused() -> None:
    payload = bytes([VERSION + 1]) + deltas.encode(deltas.from_rows([(1, "a", 60, 3)]))[1:]
    with pytest.raises(ValueError, match=f"a journal entry has format {VERSION + 1}"):
        deltas.decode(payload)


def test_columns_that_no_row_uses_take_no_space() -> None:
    rows = [(1, f"series {number}", 60, 1) for number in range(100)]
    counts = deltas.encode(deltas.from_rows(rows))
    with_sums = deltas.encode(deltas.from_rows([(*row, 1, 0.1 * number) for number, row in enumerate(rows)]))
    assert len(counts) < len(with_sums)
    assert deltas.decode(counts).equals(deltas.from_rows(rows))
