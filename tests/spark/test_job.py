"""Whole micro-batches on a real Spark: restarts, replays, other cuts, poison."""

import dataclasses
import shutil

import pytest

from tallymark.events import frame
from tallymark.meters.model import Meter
from tallymark.store.model import Gap, Ledger, Stretch
from tallymark.store.protocol import WrongLog
from tallymark.testing import DeadlyLog


def views(build, numbers, **props):
    return [build.event(str(number), "12:00:01", video="A", **props) for number in numbers]


def test_what_is_appended_while_it_runs_is_counted(path, build):
    path.put_meter(name="views", event="view", by=["video"])
    path.append(views(build, range(3)))
    path.start()
    path.wait_for(3)
    path.append(views(build, range(3, 10)), partition=1)
    path.wait_for(10)
    assert path.total("views", video="A") == 10


def test_a_restart_goes_on_at_the_stores_positions_whatever_became_of_sparks_files(path, build):
    path.append(views(build, range(5)))
    path.start()
    path.wait_for(5)
    path.stop()
    shutil.rmtree(path.settings.scratch_folder, ignore_errors=True)
    path.append(views(build, range(3, 8)))
    path.start()
    path.wait_for(10)
    assert path.total() == 8
    assert path.ledger().duplicate == 2


def test_every_task_has_its_state_before_the_pipeline_says_ready(path, build):
    path.append(views(build, range(5)), partition=0)
    path.append(views(build, range(5, 8)), partition=1)
    path.start()
    path.wait_for(8)
    path.stop()
    shutil.rmtree(path.settings.claims_folder)
    job = path.job()
    job.prepare()  # `ready` is called by `run`, which comes after it
    tables = sorted(file.name for file in path.settings.claims_folder.glob("*.claims"))
    assert tables == ["0.claims", "1.claims"]
    assert path.ledger().accepted == 8, "and nothing was counted meanwhile"
    path.append(views(build, range(8)), partition=0)
    path.start(job)
    path.wait_for(16)
    assert path.ledger().duplicate == 5, "what was rebuilt is what was lost"


def test_batches_cut_small_give_the_same_counts(path, build):
    for start in range(0, 40, 4):
        path.append(views(build, range(start, start + 6)), partition=0)
    path.settings.pipeline.max_batch_events = 1
    path.start()
    path.wait_for(60)
    assert path.total() == 42
    assert path.store.snapshots.journal_end() >= 10


class DiesOnce:
    """A store whose first transaction is cut off, before or after it is committed."""

    def __init__(self, store, *, committed: bool) -> None:
        self._store, self._committed, self.died = store, committed, False

    @property
    def sink(self):
        return self

    def applied(self, log_identity):
        return self._store.sink.applied(log_identity)

    def __getattr__(self, name):
        return getattr(self._store, name)

    def apply(self, results, *, now_ms):
        if self.died:
            return self._store.sink.apply(results, now_ms=now_ms)
        self.died = True
        if self._committed:
            self._store.sink.apply(results, now_ms=now_ms)
        raise OSError("the store went away")


@pytest.mark.parametrize("committed", [False, True])
def test_a_sink_that_dies_is_replayed_to_the_same_numbers(path, build, committed):
    path.append(views(build, range(7)))
    store = DiesOnce(path.store, committed=committed)
    path.start(path.job(store))
    path.wait_for(7)
    path.append(views(build, range(5, 9)))
    path.wait_for(11)
    assert path.total() == 9
    assert store.died


def test_a_stretch_counted_twice_is_applied_once(path, build):
    path.append(views(build, range(4)))
    job = path.job()
    job.process([Stretch(0, 0, 1)])
    job.process([Stretch(0, 0, 1)])
    assert path.total() == 4


def test_a_tenant_that_appears_mid_stream_is_counted_from_its_first_event(path, build):
    path.put_meter(name="views", event="view", by=["video"])
    path.append(views(build, range(4)))
    path.start()
    path.wait_for(4)
    path.append([*views(build, range(3, 6)), *build.of_tenant("demo", *views(build, range(5)))])
    path.append(build.of_tenant("demo", *views(build, range(3, 9))), partition=1)
    path.wait_for(18)
    assert path.ledgers() == {"main": Ledger(7, 6, duplicate=1), "demo": Ledger(11, 11)}
    path.put_meter(tenant="demo", name="views", event="view", by=["video"])
    path.append([*build.of_tenant("demo", *views(build, range(2, 8))), *views(build, range(6, 8))])
    path.wait_for(26)
    assert path.ledgers() == {"main": Ledger(9, 8, duplicate=1), "demo": Ledger(17, 14, duplicate=3)}
    assert (path.total(), path.total("views")) == (8, 8)
    assert (path.total(tenant="demo"), path.total("views", tenant="demo")) == (14, 3)
    assert path.ledger() == Ledger(26, 22, duplicate=4)


def test_a_new_meter_counts_from_the_next_batch_without_a_restart(path, build):
    path.append(views(build, range(4)))
    path.start()
    path.wait_for(4)
    path.put_meter(name="views", event="view", by=["video"])
    path.append(views(build, range(4, 10)))
    path.wait_for(10)
    assert path.total("views") == 6
    meter = path.store.registry.meter("main", "views")
    assert path.store.registry.live_from(meter.meter_id) == {0: 1}


def test_a_meter_that_fails_is_stopped_at_the_second_attempt_and_can_be_resumed(path, build):
    bad = path.store.registry.put_meter(
        "main", Meter("bad", ("view",), compute=("sum",), decimals=400), now_ms=1
    ).meter_id
    path.append(views(build, range(4)))
    path.start()
    path.wait_for(4)
    path.append(views(build, range(4, 10)))
    path.wait_for(10)
    assert path.total() == 10
    meter = path.store.registry.meter("main", "bad")
    assert meter.broken is not None
    assert meter.missed == 10
    assert path.store.registry.gaps(bad) == [Gap(0, 0, 2, 10)]
    path.store.registry.resume_meter("main", "bad")
    path.append(views(build, range(10, 13)))
    path.wait_for(13)
    assert (path.total(), path.store.registry.meter("main", "bad").missed) == (13, 13)  # it was tried, and failed again


def test_a_frame_that_no_longer_decodes_is_a_dead_letter_with_its_position(path, build):
    path.append(views(build, range(2)))
    offset = path.append_raw(b"not a frame", 5)
    path.append(views(build, range(2, 4)))
    path.start()
    path.wait_for(9)
    assert path.total() == 4
    ((_, letter),) = path.store.dead_letters.newest()
    assert (letter.hop, letter.reason, letter.offset, letter.events, letter.raw) == (
        "pipeline",
        "undecodable",
        offset,
        5,
        b"not a frame",
    )
    assert path.ledger().missing == 0


def test_a_frame_of_a_newer_version_stops_its_partition_alone_and_is_not_buried(path, build, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(frame, "VERSION", b"3")
        count, future = build.payload(views(build, range(10, 13)))
    path.append(views(build, range(2)))
    offset = path.append_raw(future, count)
    path.append(views(build, range(2, 4)))
    path.append(views(build, range(100, 103)), partition=1)
    path.start()
    path.wait_for(5)
    path.append(views(build, range(103, 105)), partition=1)
    path.wait_for(7)
    why = (
        f"partition 0 stands still at offset {offset}: frame version b'3'; this release reads b'1' and b'2': upgrade it"
    )
    build.wait_until(lambda: path.store.heartbeats.beats()["pipeline"][1].get("blocked") == [why])
    assert path.store.dead_letters.newest() == []
    assert path.total() == 7
    assert path.store.sink.applied(path.writer.identity)[0] == offset, "the next version goes on there"


def test_a_record_that_kills_its_task_is_found_and_buried_and_the_others_are_counted(path, build):
    for start in range(0, 12, 2):
        path.append(views(build, range(start, start + 2)))
    path.append(views(build, range(100, 103)), partition=1)
    job = path.job()
    job.plan = dataclasses.replace(job.plan, log=DeadlyLog(job.plan.log, frozenset({(0, 3)})))
    path.start(job)
    path.wait_for(15)
    assert path.total() == 13
    ((_, letter),) = path.store.dead_letters.newest()
    assert (letter.reason, letter.partition, letter.offset, letter.events) == ("kills_its_task", 0, 3, 2)
    # Claims are lost and must be caught up over the buried record, which would kill again.
    path.stop()
    shutil.rmtree(path.settings.claims_folder)
    path.append(views(build, [0, 1, 50]))
    again = path.job()
    again.plan = job.plan
    path.start(again)
    path.wait_for(18)
    assert path.total() == 14


def test_positions_beyond_the_end_of_the_log_are_an_error_that_says_so(path, build):
    path.append(views(build, range(4)))
    job = path.job()
    job.process([Stretch(0, 0, 1)])
    path.store._connections.mine().execute("UPDATE positions SET next = 7 WHERE partition = 0")
    with pytest.raises(WrongLog, match="applied partition 0 up to 7, but the log ends at 1"):
        path.job().prepare()


def test_another_log_under_the_same_store_is_refused(path, build):
    path.append(views(build, range(4)))
    path.job().process([Stretch(0, 0, 1)])
    path.writer.close()
    shutil.rmtree(path.settings.log_folder)
    from tallymark import log as logs

    path.writer = logs.open_writer(path.settings, "events")
    with pytest.raises(WrongLog):
        path.job().prepare()


def test_a_record_damaged_on_disk_is_reported_with_its_events_and_the_others_are_counted(path, build):
    for start in range(0, 8, 2):
        path.append(views(build, range(start, start + 2)))
    (segment,) = (path.settings.log_folder / "events").glob("*0/*.seg")
    _, content = build.payload(views(build, range(4, 6)))
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(content) + len(content) // 2] ^= 0xFF
    segment.write_bytes(damaged)
    path.start()
    path.wait_for(8)
    assert path.total() == 6
    ((_, letter),) = path.store.dead_letters.newest()
    assert (letter.reason, letter.partition, letter.offset, letter.events) == ("damaged", 0, 2, 2)
    assert path.ledger().missing == 0
