"""A task as Spark runs it, without a Spark."""

import msgspec
import pytest

from tallymark import log as logs
from tallymark import store as stores
from tallymark.log.protocol import Outgoing
from tallymark.meters.model import Meter
from tallymark.pipeline.counting import plan as plans
from tallymark.pipeline.counting import task
from tallymark.pipeline.counting.count import MeterFailed
from tallymark.pipeline.counting.plan import Plan, tasks
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.model import Gap, Stretch, StretchResult

# Nothing that a user can define: it passes no check, and fails where it is counted.
BAD = Meter("bad", ("view",), compute=("sum",), decimals=400)


@pytest.fixture
def planning(tmp_path, build):
    """A log with one record of three views, and a store with a meter that fails on them."""
    settings = Settings(data=str(tmp_path))
    settings.log.partitions = 1
    writer, store = logs.open_writer(settings, "events"), open_store(settings)
    store.registry.put_meter("main", BAD, now_ms=1)
    count, content = build.payload([build.event(str(number), value=1.0) for number in range(3)])
    writer.append([Outgoing(0, content, count)])
    yield Plan(logs.address(settings, "events"), stores.address(settings), str(tmp_path), 600_000, 10**6, 10**9), store
    writer.close()
    store.close()
    for cached in (plans.open_log, plans.open_deposits, plans._sink, plans._registry):
        cached.cache_clear()


def counted(plan: Plan, *, attempt: int = 0, only: frozenset[int] | None = None) -> StretchResult:
    (planned,) = tasks(plan, [Stretch(0, 0, 1)], only=only)
    return msgspec.msgpack.decode(task.count_task(planned, attempt=attempt), type=StretchResult)


def test_a_meter_is_blamed_at_the_second_attempt_and_what_it_missed_is_on_record(planning):
    plan, store = planning
    bad = store.registry.meter("main", "bad").meter_id
    with pytest.raises(MeterFailed, match="meter bad"):
        counted(plan)
    result = counted(plan, attempt=1)
    assert (list(result.broken), result.missed, result.ledger.counted) == ([bad], {bad: 3}, 3)
    store.sink.apply([result], now_ms=1)
    assert store.registry.gaps(bad) == [Gap(0, 0, 1, 3)]
    assert [each.meter_id for each in tasks(plan, [Stretch(0, 1, 1)])[0].live.broken] == [bad]


def test_meters_that_are_left_out_miss_the_stretch(planning):
    """As when the search has found which of them kills the task."""
    plan, store = planning
    bad = store.registry.meter("main", "bad").meter_id
    healthy = frozenset(each.meter_id for each in store.registry.meters("main")) - {bad}
    result = counted(plan, only=healthy)
    assert (result.broken, result.missed) == ({}, {bad: 3})
