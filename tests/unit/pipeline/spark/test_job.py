"""The loop of batches, with a Spark that counts in this process."""

import threading
from collections.abc import Iterator

import pytest

from counting import CountingPath
from tallymark.events import frame
from tallymark.pipeline.counting import plan as plans
from tallymark.pipeline.counting.task import count_task
from tallymark.pipeline.spark import job as module
from tallymark.pipeline.spark.job import Job, SparkDied
from tallymark.settings import Settings
from tallymark.store.model import Ledger, Stretch, StretchResult


class CountsHere:
    """What a job knows of Spark."""

    def __init__(self) -> None:
        self.is_there = True

    def count(self, tasks) -> list[bytes]:
        return [count_task(task) for task in tasks]

    def is_alive(self) -> bool:
        return self.is_there

    def executors(self) -> list[str]:
        return ["driver"]


class NoSpark:
    def cancelAllJobs(self) -> None:
        pass


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
