"""Sketches: merging in any order, and blobs that say what they hold."""

import operator
from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates import sketch

SCHEMA = {"series": pl.String(), **sketch.SLOT_TYPES}
# Buckets of either sign, the borders between one and two bytes, and registers.
slots = (
    st.integers(-70_000, 70_000)
    | st.sampled_from([-64, -65, 63, 64, 127, 128])
    | st.integers(sketch.FIRST_REGISTER, sketch.FIRST_REGISTER + 4095)
)
rows = st.lists(st.tuples(st.sampled_from("abc"), slots, st.integers(1, 2**62)), max_size=30)


def frame(of: list[tuple[str, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(of, schema=SCHEMA, orient="row")


def as_map(long: pl.DataFrame) -> dict[tuple[str, int], int]:
    found = {(series, slot): number for series, slot, number in long.rows()}
    assert len(found) == long.height, "a slot stands twice"
    return found


def plain(of: list[tuple[str, int, int]]) -> dict[tuple[str, int], int]:
    """The law, without Polars."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for series, slot, number in of:
        rule = max if slot >= sketch.FIRST_REGISTER else operator.add
        found[series, slot] = rule(found[series, slot], number)
    return dict(found)


small = st.lists(st.tuples(st.sampled_from("abc"), slots, st.integers(1, 2**40)), max_size=30)


@given(small, small, st.randoms(use_true_random=False))
def test_buckets_add_and_registers_keep_the_greatest_however_they_are_cut(left, right, random):
    together = [*left, *right]
    random.shuffle(together)
    apart = [sketch.merge(frame(part), ["series"]) for part in (left, right)]
    assert as_map(sketch.merge(pl.concat(apart), ["series"])) == plain(together)
    assert as_map(sketch.merge(frame(together), ["series"])) == plain(together)


@given(rows.map(lambda of: frame([(*key, number) for key, number in plain(of).items() if number < 2**63])))
def test_a_blob_holds_exactly_what_was_put_in(long):
    blobs = sketch.encode(sketch.merge(long, ["series"]), ["series"])
    assert blobs.height == long["series"].n_unique()
    assert as_map(sketch.decode(blobs, ["series"])) == as_map(long)


def test_a_row_without_a_sketch_has_no_slots():
    blobs = pl.DataFrame(
        {"series": ["a", "b"], "sketch": [None, b"\x01"]}, schema={"series": pl.String, "sketch": pl.Binary}
    )
    assert sketch.decode(blobs, ["series"]).is_empty()
    assert sketch.encode(frame([]), ["series"]).is_empty()


def test_neighbouring_buckets_take_two_bytes_each():
    (blob,) = sketch.encode(frame([("a", slot, 3) for slot in range(100, 300)]), ["series"])["sketch"]
    assert len(blob) == 1 + 2 * 200 + 1, "the first slot takes two bytes"


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"\x02\x00\x01", "version 2"),
        (b"", "version none"),
        (b"\x01\x02", "middle"),
        (b"\x01\x02\x81", "middle"),
        (b"\x01\x02\x01\x02", "middle"),
    ],
)
def test_what_cannot_be_read_is_said(blob, why):
    broken = pl.DataFrame({"series": ["a"], "sketch": [blob]})
    with pytest.raises(sketch.SketchError, match=why):
        sketch.decode(broken, ["series"])
