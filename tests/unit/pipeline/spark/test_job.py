"""The loop of batches, with a Spark that counts in this process."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from counting import CountingPath, CountsHere, NoSpark
from tallymark.events import frame
from tallymark.pipeline.counting import plan as plans
from tallymark.pipeline.spark import job as module
from tallymark.pipeline.spark.job import Job, SparkDied
from tallymark.pipeline.spark.sink import decode_results
from tallymark.settings import Settings
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import LeaseLost, StoreUnreachable


@pytest.fixture
def path(build, tmp_path) -> Iterator[CountingPath]:
    made = CountingPath(build, NoSpark(), Settings(data=str(tmp_path)))
    yield made
    made.close()
    for cached in (plans.open_log, plans.open_deposits, plans._sink, plans._registry):
        cached.cache_clear()


def job_with(path: CountingPath, placement: CountsHere) -> Job:
    job = path.job()
    job._placement = placement
    return job


def views(build, numbers):
    return [build.event(str(number), "12:00:01", video="A") for number in numbers]


def test_what_is_there_and_what_comes_is_counted(path, build):
    path.append(views(build, range(3)))
    path.start(job_with(path, CountsHere()))
    path.wait_for(3)
    path.append(views(build, range(2, 5)), partition=0)
    path.wait_for(6)
    assert path.total() == 5


def test_a_batch_that_a_stop_cancels_is_the_fault_of_no_record(path, build):
    """Else the search for the record that fails would find one whenever a stop comes at the wrong moment."""
    path.append(views(build, range(3)))

    class Cancelled(CountsHere):
        def count(self, tasks):
            if len(tasks) == 1:
                job._stopping.set()
            raise RuntimeError("a task failed, or was cancelled")

    job = job_with(path, Cancelled())
    job.run()
    assert path.store.dead_letters.newest() == []
    assert path.ledger().accepted == 0


def test_a_stop_while_the_tasks_load_their_state_is_no_error(path):
    class Cancelled(CountsHere):
        def count(self, tasks):
            job._stopping.set()
            raise RuntimeError("cancelled")

    job = job_with(path, Cancelled())
    job.prepare()
    job.run()
    assert job._stopping.is_set(), "a task was asked for its state"
    assert path.store.dead_letters.newest() == []
    assert path.ledger().accepted == 0


def test_without_its_jvm_the_driver_ends_instead_of_trying_again(path, build):
    path.append(views(build, range(3)))

    class Dies(CountsHere):
        def count(self, tasks):
            self.is_there = False
            raise ConnectionError("the JVM is gone")

    with pytest.raises(SparkDied, match="Spark's JVM has died; starting again"):
        job_with(path, Dies()).run()
    assert path.store.dead_letters.newest() == []


def test_a_jvm_that_dies_while_nothing_arrives_is_noticed_too(path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    placement = CountsHere()

    def ready() -> None:
        placement.is_there = False

    with pytest.raises(SparkDied, match="Spark's JVM has died; starting again"):
        job_with(path, placement).run(ready)


def test_a_stop_while_it_is_looked_for_what_fails_ends_the_run(path, build):
    path.append(views(build, range(3)))

    class Fails(CountsHere):
        def count(self, tasks):
            raise RuntimeError("a task failed")

    job = job_with(path, Fails())
    search = job._recover

    def stopped(failures, error):
        job._stopping.set()
        job._salvage_all() if failures else search(failures, error)

    job._recover = stopped
    job.run()
    assert path.store.dead_letters.newest() == []


def test_a_partition_whose_claims_lie_in_frames_that_are_too_new_waits_alone(path, build, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(frame, "VERSION", b"3")
        count, future = build.payload(views(build, range(10, 13)))
    path.append_raw(future, count)
    path.append(views(build, range(3)), partition=1)
    identity = path.writer.identity
    # A newer version has counted it, and its claims are lost.
    gone = StretchResult(Stretch(0, 0, 1), identity, 1, (), b"", Ledger(accepted=3, counted=3))
    path.store.sink.apply([gone], now_ms=0)
    job = job_with(path, CountsHere())
    job.prepare()
    path.append(views(build, range(20, 22)))
    path.start(job)
    path.wait_for(6)
    assert [str(each) for each in job._blocked.values()] == [
        "partition 0 stands still at offset 1: frame version b'3'; this release reads b'1' and b'2': upgrade it"
    ]
    assert path.store.sink.applied(identity) == {0: 1, 1: 1}


def demo(build, numbers):
    return build.of_tenant("demo", *views(build, numbers))


def test_the_first_events_of_a_tenant_are_in_its_built_in_meters(path, build):
    path.append([*views(build, range(3)), *demo(build, range(2))])
    path.append(demo(build, range(2, 6)), partition=1)
    path.start(job_with(path, CountsHere()))
    path.wait_for(9)
    assert (path.total(), path.total(tenant="demo")) == (3, 6)
    assert path.ledgers() == {"main": Ledger(3, 3), "demo": Ledger(6, 6)}
    meter = path.store.registry.meter("demo", "events")
    assert path.store.registry.live_from(meter.meter_id) == {0: 0, 1: 0}
    assert path.store.registry.gaps(meter.meter_id) == []


def test_so_are_those_of_stretches_that_are_counted_out_of_turn(path, build):
    path.append(demo(build, range(4)))
    job_with(path, CountsHere()).process([Stretch(0, 0, 1)])
    assert (path.total(), path.total(tenant="demo")) == (0, 4)


def test_a_stretch_with_a_new_tenant_is_applied_once_and_with_its_meters(path, build):
    path.append(demo(build, range(4)))
    counted, applied = [], []

    class Counts(CountsHere):
        def count(self, tasks):
            counted.append(super().count(tasks))
            return counted[-1]

    job = job_with(path, Counts())
    apply = job._sink.apply
    job._sink.apply = lambda results: (applied.extend(results), apply(results))
    path.start(job)
    path.wait_for(4)
    first, second = (each for rows in counted for each in decode_results(rows))
    assert (first.new_tenants, second.new_tenants) == (("demo",), ())
    assert applied == [second]


@pytest.mark.parametrize("fatal", ["the record", "a meter"])
def test_a_new_tenant_met_in_a_search_for_what_fails_is_counted_like_the_others(path, build, fatal):
    """The record with the tenant's first events kills its task; with a meter to blame it is counted without it."""
    path.put_meter(name="bad", event="view")
    bad = path.store.registry.meter("main", "bad").meter_id
    path.append(views(build, range(2)))
    path.append([*views(build, range(2, 4)), *demo(build, range(3))])
    path.append(demo(build, range(3, 5)))

    class Dies(CountsHere):
        def count(self, tasks):
            for task in tasks:
                meters = {each.meter_id for each in task.live.meters}
                is_guilty = bad in meters if fatal == "a meter" else True
                if task.stretch.start <= 1 < task.stretch.end and is_guilty:
                    raise RuntimeError("the worker died")
            return super().count(tasks)

    job = job_with(path, Dies())
    path.start(job)
    path.wait_for(9)
    meter = path.store.registry.meter("demo", "events")
    letters = [letter for _, letter in path.store.dead_letters.newest()]
    if fatal == "a meter":
        assert (path.total(), path.total(tenant="demo"), letters) == (4, 5, [])
        assert path.store.registry.meter("main", "bad").missed == 2, "not those of the other tenant"
    else:
        assert (path.total(), path.total(tenant="demo")) == (2, 2)
        assert [(letter.reason, letter.tenant, letter.events) for letter in letters] == [("kills_its_task", "main", 5)]
        assert path.ledgers() == {"main": Ledger(7, 2, dead=5), "demo": Ledger(2, 2)}
    assert (meter.broken, path.store.registry.gaps(meter.meter_id)) == (None, [])


class Forgetful:
    """A store that adds a tenant only the n-th time it is asked; before that it does nothing, or raises `error`."""

    def __init__(self, store, *, times: int, error: Exception | None = None) -> None:
        self._store, self.times, self._error = store, times, error
        self.asked = 0

    @property
    def registry(self):
        return self

    def add_tenant(self, tenant):
        self.asked += 1
        if self.asked >= self.times:
            self._store.registry.add_tenant(tenant)
        elif self._error is not None:
            raise self._error

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_a_tenant_that_does_not_show_at_once_is_planned_for_again(path, build):
    path.append(demo(build, range(4)))
    slow = Forgetful(path.store, times=3)
    job = Job(path.settings, path.spark, slow, threading.Event())
    job._placement = CountsHere()
    job.process([Stretch(0, 0, 1)])
    assert (path.total(tenant="demo"), slow.asked) == (4, 3)


def test_but_not_for_ever(path, build):
    path.append(demo(build, range(4)))
    never = Forgetful(path.store, times=1000)
    job = Job(path.settings, path.spark, never, threading.Event())
    job._placement = CountsHere()
    with pytest.raises(StoreUnreachable, match="does not show the meters of demo"):
        job.process([Stretch(0, 0, 1)])
    assert never.asked == module.MOST_PLANS
    assert path.ledger().accepted == 0


@pytest.mark.parametrize("error", [RuntimeError("database is locked"), None])
def test_a_store_that_takes_no_tenant_buries_no_record(path, build, error, monkeypatch):
    path.append([*views(build, range(2)), *demo(build, range(4))])
    job = Job(path.settings, path.spark, Forgetful(path.store, times=12, error=error), threading.Event())
    job._placement = CountsHere()
    monkeypatch.setattr(job, "_recover", partial(_after_a_search, job, job._recover))
    path.start(job)
    path.wait_for(6)
    assert (path.total(), path.total(tenant="demo"), path.store.dead_letters.newest()) == (2, 4, [])


def _after_a_search(job, recover, failures, stopped):
    """Looks for a record to blame as well, as if the store had failed during the search."""
    with contextlib.suppress(StoreUnreachable):
        job._salvage_all()
    recover(0, stopped)


def test_a_lease_that_was_lost_is_seen_when_a_tenant_is_added(path, build):
    path.append(demo(build, range(4)))
    job = Job(path.settings, path.spark, Forgetful(path.store, times=99, error=LeaseLost("gone")), threading.Event())
    job._placement = CountsHere()
    with pytest.raises(LeaseLost, match="gone"):
        job.run()


def test_the_driver_says_that_it_lives_while_a_batch_takes_long(path, build):
    path.append(views(build, range(3)))
    going = threading.Event()

    class Slow(CountsHere):
        def count(self, tasks):
            assert going.wait(30)
            return super().count(tasks)

    path.start(job_with(path, Slow()))
    build.wait_until(lambda: "pipeline" in path.store.heartbeats.beats(), seconds=30, what="a beat")
    assert path.ledger().accepted == 0
    going.set()
    path.wait_for(3)
