"""Who is admitted depends on the journal alone, however it is cut, and whatever a reader knows of it already."""

from collections.abc import Collection, Generator

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tallymark.store import deltas
from tallymark.store.admission import Admission, Source, admit
from tallymark.store.folding import Batch
from tallymark.store.point_sets import Limit

SET, OTHER = 7, "__other__"

journals = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=4), max_size=8)


def in_plain_python(journal: list[list[str]], most: int) -> list[str]:
    admitted: list[str] = []
    for batch in journal:
        for series in sorted(batch):
            if series not in admitted and len(admitted) < most:
                admitted.append(series)
    return admitted


def texts(batch: Collection[str]) -> pl.Series:
    return pl.Series(list(batch), dtype=pl.String)


@given(journal=journals, most=st.integers(1, 6), data=st.data())
def test_any_list_between_those_before_and_those_ever_admitted_gives_the_same(journal, most, data):
    ever = in_plain_python(journal, most)
    start = data.draw(st.integers(0, len(journal)))
    end = data.draw(st.integers(start, len(journal)))
    before = in_plain_python(journal[:start], most)
    known = set(before) | set(data.draw(st.lists(st.sampled_from(ever)) if ever else st.just([])))
    found = known | set(admit(known, map(texts, journal[start:end]), most))
    assert found >= set(in_plain_python(journal[:end], most))
    assert found <= set(ever)


def frame(series: Collection[str]) -> pl.DataFrame:
    rows = [(set_id, each, 0, 1) for each in series for set_id in (SET, 8)]
    return deltas.from_rows(rows)


class Journal:
    """Of a store that has folded some of it, and knows some series more."""

    def __init__(self, journal: list[list[str]], most: int) -> None:
        self.journal, self.most = journal, most
        self.folded = 0
        self.further: list[str] = []
        self.looked_up = 0

    def source(self) -> Source:
        return Source(self.folded, lambda _: {SET: Limit(self.most, OTHER)}, self.series, self.batches)

    def series(self, set_id: int) -> list[str]:
        assert set_id == SET
        self.looked_up += 1
        return [*in_plain_python(self.journal[: self.folded], self.most), *self.further, OTHER]

    def batches(self, after: int, through: int) -> Generator[Batch]:
        for number in range(after, through):
            yield number + 1, frame(self.journal[number])


@given(journal=journals, most=st.integers(1, 6), data=st.data())
def test_a_batch_is_renamed_alike_whenever_it_is_read(journal, most, data):
    ever = in_plain_python(journal, most)
    store, admission = Journal(journal, most), Admission()
    for _ in range(data.draw(st.integers(1, 4))):
        store.folded = data.draw(st.integers(store.folded, len(journal)))
        store.further = data.draw(st.lists(st.sampled_from(ever)) if ever else st.just([]))
        after = data.draw(st.integers(0, len(journal)))
        through = data.draw(st.integers(after, len(journal)))
        for sequence, found in admission.applied(store.batches(after, through), store.source()):
            expected = [each if each in ever else OTHER for each in journal[sequence - 1]]
            assert found.filter(pl.col("meter") == SET)["series"].to_list() == expected
            assert found.filter(pl.col("meter") == 8)["series"].to_list() == journal[sequence - 1]


def test_once_there_is_no_room_nothing_is_looked_up_again():
    journal = Journal([["a", "b"], ["c"], ["d"]], most=2)
    admission = Admission()
    for journal.folded in range(4):
        list(admission.applied(journal.batches(journal.folded, 3), journal.source()))
        journal.journal.append(["e"])
    list(admission.applied(journal.batches(6, 7), journal.source()))
    assert journal.looked_up == 1


def test_a_meter_without_a_limit_asks_for_nothing():
    nothing = Source(0, lambda _: {}, lambda _: 1 / 0, lambda *_: 1 / 0)
    journal = Journal([["a"], ["b"]], most=1)
    found = list(Admission().applied(journal.batches(0, 2), nothing))
    assert [each["series"].to_list() for _, each in found] == [["a", "a"], ["b", "b"]]
