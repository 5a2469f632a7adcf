"""What the next batch holds, and what its tasks carry."""

from dataclasses import replace

import pytest

from tallymark import log as logs
from tallymark import store as stores
from tallymark.log.protocol import Outgoing
from tallymark.pipeline.counting import plan as plans
from tallymark.pipeline.counting.plan import Plan, batch_ends, next_offsets, tasks, tasks_until
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Ledger, Stretch, StretchResult


@pytest.fixture
def planning(tmp_path, build):
    """A log of twelve partitions with three records each, an empty store, and a plan over both."""
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
    store.sink.apply([StretchResult(Stretch(partition, start, end), identity, 1, (1,), b"", Ledger())], now_ms=1)


def test_counting_begins_at_the_stores_positions(planning):
    plan, store, writer = planning
    assert next_offsets(plan) == dict.fromkeys(range(12), 0)
    apply(store, writer.identity, 0, 0, 2)
    assert next_offsets(plan) == {0: 2} | dict.fromkeys(range(1, 12), 0)


def test_a_batch_ends_where_it_starts_when_nothing_is_new(planning):
    plan, _, _ = planning
    ends = batch_ends(plan, next_offsets(plan))
    assert ends == dict.fromkeys(range(12), 3)
    assert batch_ends(plan, ends) == ends


def test_what_another_driver_applied_is_clipped_from_the_plan(planning):
    plan, store, writer = planning
    ends = batch_ends(plan, next_offsets(plan))
    apply(store, writer.identity, 0, 0, 3)
    apply(store, writer.identity, 1, 0, 2)
    stretches = [task.stretch for task in tasks_until(plan, ends)]
    assert stretches == [Stretch(1, 2, 3), *(Stretch(partition, 0, 3) for partition in range(2, 12))]


def test_a_batch_is_bounded_by_events(planning):
    plan, _, _ = planning
    assert set(batch_ends(replace(plan, max_events=24), next_offsets(plan)).values()) == {2}


def test_live_meters_travel_with_each_task_and_can_be_narrowed(planning):
    plan, _, _ = planning
    (task, *_) = tasks_until(plan, batch_ends(plan, next_offsets(plan)))
    assert [meter.meter_id for meter in task.live.meters] == [1, 2]
    (bare, *_) = tasks(plan, [Stretch(0, 0, 1)], only=())
    assert bare.live.meters == ()
