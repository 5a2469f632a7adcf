"""Pieces of a batch: cut by weight, and each with just the names of its own events."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tallymark.events import columns
from tallymark.events.cutting import compact, cuts, row_bytes
from tallymark.events.model import Event
from tallymark.events.validation import Accepted


def batch(events: list[Event]) -> pa.RecordBatch:
    keys = {key for event in events for key in event.props or ()}
    return columns.batch([Accepted(events, list(range(len(events))), [0] * len(events), None, 0, keys)])


names = st.sampled_from(["a", "b", "view", "sale", "x" * 128])


@given(st.lists(names, min_size=1, max_size=20), st.data())
@settings(max_examples=100, deadline=None)
def test_a_piece_has_the_names_of_its_events_and_no_others(used: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(used) - 1))
    piece = batch([Event(name, "1") for name in used]).slice(start, data.draw(st.integers(1, len(used) - start)))
    own = compact(piece)
    assert own.equals(piece) or own["event"].to_pylist() == piece["event"].to_pylist()
    assert own.schema == piece.schema
    assert sorted(own["event"].dictionary.to_pylist()) == sorted(set(piece["event"].to_pylist()))
    assert own.drop_columns(["event"]).equals(piece.drop_columns(["event"]))


def test_a_batch_that_uses_all_its_names_stays_as_it_is() -> None:
    whole = batch([Event("a", "1"), Event("b", "2")])
    assert compact(whole) is whole


def test_a_piece_has_the_tenants_of_its_events_and_no_others() -> None:
    requests = [
        Accepted([Event("view", "1"), Event("view", "2")], [0, 1], [0, 0], None, 0, set(), tenant=tenant)
        for tenant in ("main", "acme", "globex")
    ]
    whole = columns.batch(requests)
    assert whole["tenant"].to_pylist() == ["main", "main", "acme", "acme", "globex", "globex"]
    own = compact(whole.slice(1, 2))
    assert own["tenant"].to_pylist() == ["main", "acme"]
    assert own["tenant"].dictionary.to_pylist() == ["main", "acme"]
    assert own.schema == whole.schema
    assert compact(whole) is whole


@given(st.lists(st.integers(1, 250), min_size=2, max_size=40), st.integers(2, 50))
@settings(max_examples=200, deadline=None)
def test_the_pieces_are_all_rows_in_order_and_at_least_two(sizes: list[int], pieces: int) -> None:
    whole = batch([Event("view", "x" * size) for size in sizes])
    found = cuts(whole, pieces)
    assert 2 <= len(found) <= pieces
    assert all(rows > 0 for _, rows in found)
    assert [row for first, rows in found for row in range(first, first + rows)] == list(range(len(sizes)))


def test_no_piece_is_heavier_than_its_share_and_one_row() -> None:
    whole = batch([Event("view", "x" * 250 if row % 7 == 0 else "x") for row in range(1000)])
    weights = row_bytes(whole)
    for first, rows in cuts(whole, 9):
        assert weights[first : first + rows].sum() <= weights.sum() / 9 + weights.max()


def test_a_row_weighs_the_slots_of_its_histogram_also_in_a_slice() -> None:
    whole = batch([Event("m", "1")] * 3)
    pairs = [None, [(slot, 1) for slot in range(100)], []]
    heavy = whole.append_column("histogram", pa.array(pairs, columns.HISTOGRAM))
    assert (row_bytes(heavy) - row_bytes(whole)).tolist() == [0, 100 * 16, 0]
    assert (row_bytes(heavy.slice(1)) - row_bytes(whole.slice(1))).tolist() == [100 * 16, 0]


def test_one_row_that_outweighs_the_others_is_parted_from_them() -> None:
    heavy, light = Event("m", "1", values={f"name-{n}": 1.0 for n in range(4000)}), Event("m", "2")
    assert cuts(batch([heavy, *[light] * 9]), 2) == [(0, 1), (1, 9)]
    assert cuts(batch([*[light] * 9, heavy]), 2) == [(0, 9), (9, 1)]


def test_a_row_weighs_its_texts_names_and_numbers_also_in_a_slice() -> None:
    whole = batch(
        [
            Event("a", "1"),
            Event("b" * 100, "1"),
            Event("a", "1" * 101),
            Event("a", "1", values={"k" * 84: 1.0}),
            Event("a", "1", props={"k": "v" * 100}),
            Event("a", "1"),
        ]
    )
    weights = row_bytes(whole)
    assert (weights - weights[0]).tolist() == [0, 99, 100, 100, 100, 0]
    for start in range(6):
        assert row_bytes(whole.slice(start)).tolist() == weights[start:].tolist()
