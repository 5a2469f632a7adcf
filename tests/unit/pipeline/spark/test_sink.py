"""What the sink tells about a batch that the store has applied."""

from dataclasses import replace

import msgspec
import pytest

from tallymark.ledger import OUTCOMES, Ledger
from tallymark.pipeline.spark.sink import BatchSink, decode_results
from tallymark.store.format import VERSION
from tallymark.store.model import Stretch, StretchResult
from tallymark.store.protocol import StoreUnreachable
from tallymark.telemetry import REGISTRY


class HalfNew:
    """A store that has applied the first result before."""

    def apply(self, results, *, now_ms):
        return results[1:]


def told():
    name = "tallymark_pipeline_events_total"
    return {term.name: REGISTRY.get_sample_value(name, {"outcome": term.name}) for term in OUTCOMES}


def result(start, **terms):
    return StretchResult(Stretch(0, start, start + 1), "log", 1, (1,), b"", Ledger(**terms))


def test_each_outcome_of_what_is_new_is_added_to_its_metric():
    before = told()
    outcomes = {term.name: number for number, term in enumerate(OUTCOMES, start=1)}
    again = result(0, accepted=1000, **dict.fromkeys(outcomes, 200))
    BatchSink(HalfNew(), clock_ms=lambda: 0).apply([again, result(1, accepted=15, late=9, **outcomes)])
    assert {name: number - before[name] for name, number in told().items()} == outcomes


def test_what_a_task_of_another_version_hands_on_is_not_taken():
    """It would have counted without looking at tenants; it is counted again, and no record is to blame."""
    ours = msgspec.msgpack.encode(replace(result(0), format=VERSION))
    assert decode_results([ours])[0].stretch == Stretch(0, 0, 1)
    older = {name: value for name, value in msgspec.msgpack.decode(ours).items() if name != "format"}
    with pytest.raises(StoreUnreachable, match="an executor runs another version of Tallymark"):
        decode_results([ours, msgspec.msgpack.encode(older)])


def test_every_outcome_is_there_before_anything_is_counted():
    assert None not in told().values()
