"""Ids: the hash tells events apart, and made ids are stable where they can be."""

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tallymark.events.ids import from_key, hashes, random_ids

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


def test_random_ids_are_distinct_and_ids_of_a_key_stable() -> None:
    made = random_ids(1000)
    assert len(set(made)) == 1000
    assert {len(each) for each in made} == {32}
    assert from_key("order-7", 3) == "order-7/3"
