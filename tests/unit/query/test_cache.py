"""Remembered rows: as fresh as new ones, and bounded."""

import polars as pl

from tallymark.query.cache import RowCache

ROWS = pl.DataFrame({"n": [1, 2, 3]})


class Store:
    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> pl.DataFrame:
        self.reads += 1
        return ROWS


def test_a_question_asked_again_is_read_once():
    cache, store = RowCache(), Store()
    assert [cache.read("q", applied=1, read=store.read).height for _ in range(3)] == [3, 3, 3]
    assert store.reads == 1


def test_a_batch_applied_since_makes_it_read_again():
    cache, store = RowCache(), Store()
    for applied in (1, 2, 2):
        cache.read("q", applied=applied, read=store.read)
    assert store.reads == 2


def test_a_snapshot_from_before_neither_gets_nor_leaves_anything():
    cache, store = RowCache(), Store()
    cache.read("q", applied=2, read=store.read)
    cache.read("q", applied=1, read=store.read)
    cache.read("q", applied=2, read=store.read)
    assert store.reads == 2


def test_the_least_used_goes_when_there_are_too_many_rows():
    cache, store = RowCache(most_rows=6), Store()
    for question in ("a", "b", "a", "c"):
        cache.read(question, applied=1, read=store.read)
    assert store.reads == 3
    cache.read("a", applied=1, read=store.read)
    assert store.reads == 3
    cache.read("b", applied=1, read=store.read)
    assert store.reads == 4
