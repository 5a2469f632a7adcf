"""The seam to Spark: what the planner says, without a Spark."""

import json
from dataclasses import replace

import pytest

from tallymark import log as logs
from tallymark import store as stores
from tallymark.log.protocol import Outgoing
from tallymark.pipeline.counting import plan as plans
from tallymark.pipeline.counting.plan import Plan, tasks_until
from tallymark.pipeline.spark.session import _configuration
from tallymark.pipeline.spark.source import StretchStream, decode_plan, encode_plan, planned_until
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Ledger, Stretch, StretchResult


@pytest.fixture
def planning(tmp_path, build):
    """A log of twelve partitions with three records each, an empty store, and a reader over both."""
    settings = Settings(data=str(tmp_path))
    settings.log.partitions = 12
    writer, store = logs.open_writer(settings, "events"), open_store(settings)
    count, content = build.payload([build.event("a")])
    writer.append([Outgoing(partition, content, count) for partition in range(12) for _ in range(3)])
    plan = Plan(logs.address(settings, "events"), stores.address(settings), "claims", 600_000, 10**6, 10**9)
    yield plan, store, writer
    writer.close()
    store.close()
    for cached in (plans.open_log, plans._sink, plans._registry):
        cached.cache_clear()


def apply(store, identity, partition, start, end):
    store.apply([StretchResult(Stretch(partition, start, end), identity, 1, (1,), b"", Ledger())], now_ms=1)


def test_the_first_answer_stays_whatever_is_applied_meanwhile(planning):
    plan, store, writer = planning
    reader = StretchStream(encode_plan(plan))
    first = reader.initialOffset()
    apply(store, writer.identity, 0, 0, 2)
    assert reader.initialOffset() == first
    assert StretchStream(encode_plan(plan)).initialOffset()["0"] == 2


def test_offsets_are_the_same_text_when_nothing_is_new(planning):
    plan, _, _ = planning
    reader = StretchStream(encode_plan(plan))
    end = reader.latestOffset(reader.initialOffset())
    # Spark hands them back as it parsed them, in whatever order.
    shuffled = dict(sorted(end.items(), reverse=True))
    assert json.dumps(reader.latestOffset(shuffled)) == json.dumps(end)
    assert list(end) == [str(partition) for partition in range(12)]


def test_what_another_driver_applied_is_clipped_from_the_plan(planning):
    plan, store, writer = planning
    reader = StretchStream(encode_plan(plan))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    apply(store, writer.identity, 0, 0, 3)
    apply(store, writer.identity, 1, 0, 2)
    stretches = [partition.value.stretch for partition in reader.partitions(start, end)]
    assert stretches == [Stretch(1, 2, 3), *(Stretch(partition, 0, 3) for partition in range(2, 12))]


def test_on_a_cluster_the_stream_says_how_far_and_leaves_the_counting_to_others(planning, tmp_path):
    plan, store, writer = planning
    bounds = replace(plan, only_bounds=True)
    reader = StretchStream(encode_plan(bounds))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert list(reader.partitions(start, end)) == []
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").write_text(f'v1\n{{"batchTimestampMs":1}}\n{json.dumps(end)}')
    apply(store, writer.identity, 0, 0, 3)
    planned = tasks_until(bounds, planned_until(offsets.parent, 7))
    assert [task.stretch for task in planned] == [Stretch(partition, 0, 3) for partition in range(1, 12)]


def test_a_batch_is_bounded_by_events(planning):
    plan, _, _ = planning
    plan = decode_plan(encode_plan(Plan(plan.log, plan.store, "claims", 1, max_events=24, max_bytes=10**9)))
    reader = StretchStream(encode_plan(plan))
    assert set(reader.latestOffset(reader.initialOffset()).values()) == {2}


def test_live_meters_travel_with_each_task_and_can_be_narrowed(planning):
    plan, _, _ = planning
    reader = StretchStream(encode_plan(plan))
    start = reader.initialOffset()
    (partition, *_) = reader.partitions(start, reader.latestOffset(start))
    assert [meter.meter_id for meter in partition.value.live.meters] == [1, 2]
    (bare, *_) = plans.tasks(Plan(**{**vars(plan), "only_meters": frozenset()}), [Stretch(0, 0, 1)])
    assert bare.live.meters == ()


def test_a_failed_task_has_four_attempts():
    assert _configuration(Settings())["spark.master"] == "local[*,4]"
