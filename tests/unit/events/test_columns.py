"""Properties as columns: one kind, one column; the rest as text."""

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


def test_only_nulls_make_no_column() -> None:
    assert props(batch({"a": None}, {})) == {}


def test_values_are_left_out_when_no_event_has_them() -> None:
    assert "values" not in batch({}).schema.names
