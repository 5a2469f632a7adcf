"""Ids: the hash tells events apart, and made ids are stable where they can be."""

from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tallymark.events import ids
from tallymark.events.ids import content, from_key, hashes, random_ids
from tallymark.events.model import Event

parts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=10)


@given(st.lists(st.tuples(parts, parts), min_size=1, max_size=6))
def test_the_hash_is_96_bits_of_xxh3_over_tenant_name_and_id(pairs: list[tuple[str, str]]) -> None:
    high, low = hashes("main", [name for name, _ in pairs], [each for _, each in pairs])
    whole = [xxhash.xxh3_128_intdigest(f"main\0{name}\0{each}".encode()) for name, each in pairs]
    assert high.tolist() == [number >> 64 for number in whole]
    assert low.tolist() == [number & 0xFFFF_FFFF for number in whole]
    assert (high.dtype, low.dtype) == (np.uint64, np.uint32)


def test_the_same_id_under_another_name_is_another_event() -> None:
    high, _ = hashes("main", ["view", "sale", "view"], ["1", "1", "1"])
    assert high[0] == high[2] != high[1]


def test_events_of_several_tenants_hash_as_each_tenants_alone() -> None:
    tenants, names, own = ["main", "acme", "main"], ["view", "view", "sale"], ["1", "1", "2"]
    high, low = hashes(tenants, names, own)
    alone = [hashes(tenant, [name], [each]) for tenant, name, each in zip(tenants, names, own, strict=True)]
    assert [(one, other) for one, other in zip(high.tolist(), low.tolist(), strict=True)] == [
        (one[0], other[0]) for one, other in alone
    ]


def test_random_ids_are_distinct() -> None:
    made = random_ids(1000)
    assert len(set(made)) == 1000
    assert {len(each) for each in made} == {32}
    assert not any(one[1:] == other[:-1] for one, other in pairwise(made)), "nor parts of one another"


def test_no_hash_is_0_since_that_marks_a_free_slot_in_the_claim_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "xxh3_128_digest", lambda text: bytes(16))
    high, low = hashes("main", ["view"], ["1"])
    assert (high.tolist(), low.tolist()) == ([1], [0])


def test_ids_of_a_key_are_those_of_the_release_before() -> None:
    # A retry may meet a collector of another release: these must stay as they are.
    sale = content(Event("sale", time="2026-11-15T12:00:00Z", value=30.0, props={"country": "KR", "n": 1}))
    assert sale == b'["sale","2026-11-15T12:00:00Z",30.0,null,{"country":"KR","n":1}]'
    assert from_key("order-7", sale, 0) == xxhash.xxh3_128_hexdigest(b"order-7\0" + sale + b"\x000")
    assert len({from_key(key, sale, number) for key in ("a", "b") for number in range(50)}) == 100


@pytest.mark.parametrize(
    "other",
    [
        Event("sale", id="own", value=1.0, values={"x": 1.0}, props={"a": 1, "b": "x"}),
        Event("sale", value=1.0, values={"x": 1.0}, props={"b": "x", "a": 1}),
        Event("sale", value=1.0, values={"x": 1.0, "y": None}, props={"a": 1, "b": "x", "c": None}),
        Event("sale", value=1.0, values={"x": 1.0}, props={"a": 1, "b": "x"}, sent_at=5, resent=4),
    ],
)
def test_what_leaves_an_event_the_same(other: Event) -> None:
    assert content(other) == content(Event("sale", value=1.0, values={"x": 1.0}, props={"a": 1, "b": "x"}))


def test_what_makes_it_another() -> None:
    events = [
        Event("sale"),
        Event("refund"),
        Event("sale", time=1),
        Event("sale", time="1"),
        Event("sale", value=0.0),
        Event("sale", values={"x": 1.0}),
        Event("sale", props={"x": 1.0}),
        Event("sale", props={"x": "1.0"}),
        Event("sale", props={"x": 1}),
        Event("sale", props={"x": True}),
        Event("sale", props={"x": 2**64}),
        Event("sale", props={"y": 1}),
    ]
    assert len({content(event) for event in events}) == len(events)


def test_without_anything_in_them_properties_and_values_are_the_same_as_absent() -> None:
    assert content(Event("sale", values={}, props={"a": None})) == content(Event("sale"))
