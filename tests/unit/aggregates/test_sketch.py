"""Sketches: merging in any order, and blobs that say what they hold."""

import operator
from collections import defaultdict

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import sketch
from tallymark.aggregates.functions import Context, function
from tallymark.aggregates.sketch import FIRST_REGISTER, Slots

Line = tuple[int, int, int]
"""(row, slot, number)"""

# Buckets of either sign, the borders between one and two bytes, and registers; some too far apart for a table.
slots = (
    st.integers(-70_000, 70_000)
    | st.sampled_from([-64, -65, 63, 64, 127, 128, -FIRST_REGISTER + 1, FIRST_REGISTER - 1])
    | st.integers(FIRST_REGISTER, FIRST_REGISTER + 4095)
)
rows = st.sampled_from([0, 1, 2, 90_000])
lines = st.lists(st.tuples(rows, slots, st.integers(1, 2**62)), max_size=30)
small = st.lists(st.tuples(rows, slots, st.integers(1, 2**40)), max_size=30)


def long(of: list[Line]) -> Slots:
    return Slots(*np.array(of, np.int64).reshape(-1, 3).T)


def as_map(found: Slots) -> dict[tuple[int, int], int]:
    row, slot, number = (each.tolist() for each in found)
    assert [*zip(row, slot, strict=True)] == sorted({*zip(row, slot, strict=True)}), "each once, in order"
    return {(row, slot): number for row, slot, number in zip(row, slot, number, strict=True)}


def plain(of: list[Line]) -> dict[tuple[int, int], int]:
    """The law, without numpy."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    for row, slot, number in of:
        rule = max if slot >= FIRST_REGISTER else operator.add
        found[row, slot] = rule(found[row, slot], number)
    return dict(found)


@given(small, small, st.randoms(use_true_random=False))
def test_buckets_add_and_registers_keep_the_greatest_however_they_are_cut(left, right, random):
    together = [*left, *right]
    random.shuffle(together)
    apart = [sketch.merge(long(part)) for part in (left, right)]
    assert as_map(sketch.merge(Slots(*map(np.concatenate, zip(*apart, strict=True))))) == plain(together)
    assert as_map(sketch.merge(long(together))) == plain(together)


@given(lines)
def test_a_blob_holds_exactly_what_was_put_in(lines):
    whole = {key: number for key, number in plain(lines).items() if number < 2**63}
    blobs = sketch.write(sketch.merge(long([(*key, number) for key, number in whole.items()])), 90_001)
    assert blobs.len() == 90_001
    assert blobs.count() == len({row for row, _ in whole}), "null where there is nothing"
    assert as_map(sketch.read(blobs)) == whole


@given(small, st.integers(1, 40))
def test_blobs_merge_the_same_in_chunks_of_any_size(lines, chunk_bytes):
    # A blob a line, null here and there; merged by row.
    blobs: list[bytes | None] = [sketch.from_map({slot: number}) for _, slot, number in lines]
    groups = [0, 1, 2, 90_000]
    group = np.array([groups.index(row) for row, _, _ in lines] + [3], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "_CHUNK_BYTES", chunk_bytes)
        merged = sketch.merge_blobs(pl.Series([*blobs, None], dtype=pl.Binary), group, 4)
    assert {(groups[row], slot): n for (row, slot), n in as_map(sketch.read(merged)).items()} == plain(lines)


def test_sketches_are_merged_and_read_some_at_a_time(monkeypatch):
    monkeypatch.setattr(sketch, "_CHUNK_BYTES", 100)
    maps = [dict.fromkeys(range(number % 7 * 20), 1) for number in range(60)]
    blobs = pl.Series(map(sketch.from_map, maps), dtype=pl.Binary)
    by_tens = np.arange(60) // 10
    parts = list(sketch._merged_slots(blobs, by_tens))
    assert [part.row.tolist() for part in parts] == [[place] * len(part.row) for place, part in enumerate(parts)]
    assert len(parts) == 6
    for name in ("p50", "distinct"):
        whole = function(name).values(pl.DataFrame({"sketch": blobs}), Context())
        assert whole == [
            function(name).values(pl.DataFrame({"sketch": blobs[at : at + 1]}), Context())[0] for at in range(60)
        ]
    assert len(list(sketch.read_in_parts(blobs))) > 6


def test_a_wide_merge_is_sorted_and_a_narrow_one_counted_in_a_table_with_the_same_outcome(monkeypatch):
    chance = np.random.default_rng(1)
    found = Slots(chance.integers(0, 500, 20_000), chance.integers(-300, 300, 20_000), chance.integers(1, 9, 20_000))
    in_table = sketch.merge(found)
    monkeypatch.setattr(sketch, "_MOST_SLOTS", 0)
    assert as_map(sketch.merge(found)) == as_map(in_table) == plain(list(zip(*found, strict=True)))


def test_a_row_without_a_sketch_has_no_slots():
    assert not len(sketch.read(pl.Series([None, b"\x01"], dtype=pl.Binary)).slot)
    assert not len(sketch.read(pl.Series([], dtype=pl.Binary)).slot)
    assert sketch.write(long([]), 2).to_list() == [None, None]
    assert sketch.merge_blobs(pl.Series([None], dtype=pl.Binary), np.zeros(1, np.int64), 2).to_list() == [None, None]


def test_neighbouring_buckets_take_two_bytes_each():
    blob = sketch.from_map(dict.fromkeys(range(100, 300), 3))
    assert len(blob) == 1 + 2 * 200 + 1, "the first slot takes two bytes"


def test_a_blob_of_the_first_version_is_read_for_ever():
    """Kept on disks: version 1; slot -3 (zigzag 5), 1; slot 131,072 (131,075 further), 300; register 7, 53."""
    blob = bytes.fromhex("01 05 01 83 80 08 ac 02 87 80 f8 07 35")
    assert sketch.to_map(blob) == {-3: 1, 131_072: 300, FIRST_REGISTER + 7: 53}
    assert sketch.from_map({-3: 1, 131_072: 300, FIRST_REGISTER + 7: 53}) == blob


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"\x02\x00\x01", "version 2"),
        (b"", "version none"),
        (b"\x01\x02", "middle"),
        (b"\x01\x02\x81", "middle"),
        (b"\x01\x02\x01\x02", "middle"),
        (b"\x01" + b"\xff" * 11 + b"\x01\x01", "64 bits"),
    ],
)
@pytest.mark.parametrize("others", [[], [b"\x01\x02\x01"]], ids=["alone", "among others"])
def test_what_cannot_be_read_is_said(blob, why, others):
    with pytest.raises(sketch.SketchError, match=why):
        sketch.read(pl.Series([*others, blob, *others], dtype=pl.Binary))
