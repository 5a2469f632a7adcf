"""Properties as columns: one kind, one column; the rest as text."""

import json
from typing import Any

import pyarrow as pa

from tallymark.events import columns
from tallymark.events.model import Event
from tallymark.events.validation import Accepted


def batch(*props: dict[str, Any] | None) -> pa.RecordBatch:
    some = [Event("view", str(number), props=each) for number, each in enumerate(props)]
    keys = {key for each in props for key in each or ()}
    return columns.batch([Accepted(some, range(len(some)), [0] * len(some), None, 0, keys)])


def props(events: pa.RecordBatch) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in events.schema if field.name.startswith("prop.")}


def test_each_kind_gets_its_column_with_gaps_where_an_event_lacks_it() -> None:
    events = batch({"s": "x", "i": 1, "f": 1.5, "b": True}, None, {"s": "y", "i": None})
    assert props(events) == {"prop.b": pa.bool_(), "prop.f": pa.float64(), "prop.i": pa.int64(), "prop.s": pa.string()}
    assert events["prop.s"].to_pylist() == ["x", None, "y"]
    assert events["prop.i"].to_pylist() == [1, None, None]
    assert events["rest"].null_count == 3


def test_whole_numbers_and_floats_share_a_column_while_that_is_exact() -> None:
    assert batch({"a": 5}, {"a": 5.5})["prop.a"].to_pylist() == [5.0, 5.5]
    assert batch({"a": 2**53}, {"a": 5.5})["rest"].to_pylist() == ['{"a":9007199254740992}', '{"a":5.5}']


def test_mixed_kinds_and_numbers_beyond_64_bits_go_to_the_rest() -> None:
    events = batch({"a": 5, "w": 2**63}, {"a": "five"}, {"a": True, "n": None}, {"c": "x"})
    assert props(events) == {"prop.c": pa.string()}
    assert events["rest"].to_pylist() == ['{"a":5,"w":9223372036854775808}', '{"a":"five"}', '{"a":true}', None]


def test_the_64_commonest_keys_get_columns() -> None:
    common = {f"k{number:02}": number for number in range(64)}
    events = batch(common, common, {"rare": "x", "k00": 1})
    assert sorted(props(events)) == [f"prop.k{number:02}" for number in range(64)]
    assert events["rest"].to_pylist() == [None, None, '{"rare":"x"}']


def test_of_equally_common_keys_the_first_by_name_get_columns() -> None:
    events = batch({f"k{number:02}": number for number in reversed(range(70))})
    assert sorted(props(events)) == [f"prop.k{number:02}" for number in range(64)]
    assert json.loads(events["rest"].to_pylist()[0]) == {f"k{number:02}": number for number in range(64, 70)}


def test_commoner_keys_go_before_rarer_ones() -> None:
    often, twice, once = (
        {f"{kind}{n:02}": n for n in range(count)} for kind, count in (("o", 30), ("t", 40), ("e", 90))
    )
    events = batch(often | twice, often | twice, often | once)
    assert sorted(props(events)) == [f"prop.o{n:02}" for n in range(30)] + [f"prop.t{n:02}" for n in range(34)]


def test_requests_with_and_without_corrected_times_keep_their_own() -> None:
    corrected = Accepted([Event("view", "1"), Event("view", "2")], [0, 1], [5, 6], [3, 0], 8, set())
    plain = Accepted([Event("view", "3")], [0], [7], None, 9, set())
    events = columns.batch([plain, corrected, plain])
    assert events["shift"].to_pylist() == [0, 3, 0, 0]
    assert events["time"].to_pylist() == [7, 5, 6, 7]
    assert events["received"].to_pylist() == [9, 8, 8, 9]


class Watched(dict[str, Any]):
    """Counts how often it is asked for a key."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        Watched.asked += 1
        return super().get(key, default)


def test_keys_that_never_come_again_cost_no_more_than_others() -> None:
    # A user's id as the name of a property: every event has 30 keys that no other has.
    events = batch(*[Watched({f"{row}-{n}": n for n in range(30)}) for row in range(400)])
    assert len(props(events)) == 64
    assert Watched.asked <= 400 * 64, "not once for each of the 12,000 keys"
    assert sum(len(json.loads(rest or "{}")) for rest in events["rest"].to_pylist()) == 12_000 - 64


def test_only_nulls_make_no_column() -> None:
    assert props(batch({"a": None}, {})) == {}


def test_values_are_left_out_when_no_event_has_them() -> None:
    assert "values" not in batch({}).schema.names
