"""Brokers that die, pause and come back: nothing false, nothing forgotten, nothing that hangs."""

import threading

import psutil
import pytest
from confluent_kafka import KafkaError

from tallymark.log import Appended, LogUnreachable, NotAppended, Outgoing
from tallymark.testing import until


def numbered(number: int, partition: int | None = None) -> Outgoing:
    return Outgoing(number % 2 if partition is None else partition, b"%d" % number, 1)


def everything(reader) -> list[int]:
    found = []
    for partition, at in reader.positions().items():
        found += [int(record.payload) for record in reader.read(partition, 0, at.synced)]
    return found


def taken(log, number: int) -> bool:
    return all(isinstance(each, Appended) for each in log.append([numbered(number, 0), numbered(number, 1)]))


def test_one_then_two_of_three_killed_and_back(stage, kafka):
    log = stage.writer(delivery_timeout_s=8.0)
    assert taken(log, 0)
    reader = stage.reader()
    kafka.kill(stage.leader())
    assert taken(log, 1), "with one broker less all goes on"
    acknowledged = {0, 1}

    kafka.kill(stage.leader())
    first = log.append([numbered(2, 0), numbered(2, 1)])
    assert [type(each) for each in first] == [NotAppended, NotAppended]
    assert "Kafka" in first[0].reason
    # The next ones do not wait as long: at once, or for a short try now and then. None of them takes room.
    before_bytes = psutil.Process().memory_info().rss
    frames = [Outgoing(0, b"3" + b" " * 999_999, 1)] * 4
    reasons = set()

    def tried_thrice() -> bool:
        for outcome in log.append(frames):
            assert isinstance(outcome, NotAppended)
            reasons.add(outcome.reason)
        return "Kafka: not acknowledged within 4 s" in reasons

    until(tried_thrice, "the third try", deadline_s=60)
    assert reasons == {f"Kafka: not acknowledged within {seconds} s" for seconds in (8, 1, 2, 4)}
    assert psutil.Process().memory_info().rss - before_bytes < 60_000_000
    assert len(log._producer) == 0, "nothing waits in the producer to be sent by surprise"
    assert log.sealed() == {}

    kafka.heal()
    number = 100

    def again() -> bool:
        nonlocal number
        number += 1
        if taken(log, number):
            acknowledged.add(number)
            return True
        return False

    until(again, "appends are taken again", deadline_s=30)
    until(again, "and stay so", deadline_s=30)
    found = set(everything(reader))
    assert acknowledged <= found, "acknowledged minus delivered = 0"


def test_what_was_acknowledged_survives_the_leader_under_load(stage, kafka):
    log = stage.writer()
    acknowledged: list[int] = []
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            frames = [numbered(number + each) for each in range(20)]
            for frame, outcome in zip(frames, log.append(frames), strict=True):
                if isinstance(outcome, Appended):
                    acknowledged.append(int(frame.payload))
            number += 20

    loading = threading.Thread(target=load)
    loading.start()
    until(lambda: len(acknowledged) > 500, "load")
    victim = stage.leader()
    kafka.kill(victim)
    before = len(acknowledged)
    until(lambda: len(acknowledged) > before + 500, "load on the other brokers", deadline_s=60)
    stop.set()
    loading.join()

    read = everything(stage.reader())
    assert set(acknowledged) - set(read) == set()
    assert len(acknowledged) == len(set(acknowledged))
    assert len(read) == len(set(read)), "the idempotent producer repeats without doubling"


def test_a_leader_that_is_paused_is_replaced(stage, kafka):
    log = stage.writer(delivery_timeout_s=3.0)
    acknowledged = {0} if taken(log, 0) else set()
    reader = stage.reader()
    assert list(reader.read(0, 0, 1))
    kafka.pause(stage.leader())
    number = 0

    def again() -> bool:
        nonlocal number
        number += 1
        return taken(log, number) and not acknowledged.add(number)

    until(again, "appends go to the next leader", deadline_s=40)
    assert acknowledged <= set(everything(reader)), "and the reader follows"


@pytest.mark.timeout(150)  # what hangs fails here
def test_all_brokers_paused_is_unreachable_not_a_hang(stage, kafka, monkeypatch):
    for module in ("client", "fetch", "offsets", "reader", "topics"):
        monkeypatch.setattr(f"tallymark.log.kafka.{module}.PATIENCE_S", 2.0)
    log = stage.writer(delivery_timeout_s=2.0)
    log.append([numbered(number, 0) for number in range(40)])
    reader, fresh = stage.reader(), stage.reader()
    reading = reader.read(0, 0, 40)
    next(reading)
    for broker in range(3):
        kafka.pause(broker)
    questions = [
        reader.positions,
        lambda: list(fresh.read(0, 0, 40)),
        lambda: fresh.append_ms(0, 3),
        lambda: fresh.offset_at(0, 1),
        lambda: fresh.bounded_end(0, 0, max_events=1, max_bytes=1),
        lambda: fresh.events_in(0, 0, 40),
        stage.reader,
    ]
    for question in questions:
        with pytest.raises(LogUnreachable):
            question()
    assert isinstance(log.append([numbered(50)])[0], NotAppended)
    kafka.heal()
    until(lambda: taken(log, 60), "appends are taken again", deadline_s=30)
    assert 39 in everything(reader)


class Fenced:
    """A producer that tells of every frame that it may not go on."""

    def __init__(self):
        self._reports = []

    def produce(self, *frame, on_delivery, **options):
        self._reports.append(on_delivery)

    def poll(self, timeout):
        while self._reports:
            self._reports.pop()(KafkaError(KafkaError._FATAL, "fenced", True), None)

    def purge(self):
        pass


def test_a_producer_that_may_not_go_on_is_replaced(stage):
    log = stage.writer()
    assert taken(log, 0)
    log._producer = fenced = Fenced()
    assert not taken(log, 1)
    assert log._producer is not fenced
    until(lambda: taken(log, 2), "appends are taken again")
    records = list(stage.reader().read(0, 0, 2))
    assert [record.sequence for record in records] == [0, 0]
    assert records[0].instance != records[1].instance


def test_a_partition_without_a_leader_stops_no_other(stage, kafka):
    log = stage.writer(replication=1, min_in_sync=1, delivery_timeout_s=2.0, partitions=3)
    for partition in range(3):
        assert isinstance(log.append([numbered(0, partition)])[0], Appended)
    victim = stage.leader(0)
    others = [partition for partition in (1, 2) if stage.leader(partition) != victim]
    assert others
    reader = stage.reader()
    assert [at.end for at in reader.positions().values()] == [1, 1, 1]
    kafka.kill(victim)
    until(lambda: isinstance(log.append([numbered(1, 0)])[0], NotAppended), "it takes nothing")

    def others_take() -> bool:
        # The dead broker may have led the cluster too: then the others stop for the moment of an election.
        first, *rest = log.append([numbered(1, partition) for partition in (0, *others)])
        assert isinstance(first, NotAppended)
        return all(isinstance(each, Appended) for each in rest)

    for _ in range(20):
        until(others_take, "the others take records")

    def ends_of_others() -> list[int]:
        try:
            found = reader.positions()
        except LogUnreachable:  # until the controller knows that the broker is dead
            return []
        assert found[0].end == 1
        ends = [found[partition].end for partition in others]
        return ends if min(ends) >= 21 else []

    end = until(ends_of_others, "the others are seen to grow", deadline_s=40)[0]
    assert reader.bounded_end(0, 0, max_events=9, max_bytes=9) == 0
    assert reader.bounded_end(others[0], 0, max_events=10**6, max_bytes=10**6) == end
    assert len(list(reader.read(others[0], 0, end))) == end
    assert reader.events_in(others[0], 0, end) == end
    kafka.heal()
    until(lambda: isinstance(log.append([numbered(30, 0)])[0], Appended), "it takes records again", deadline_s=40)
    until(lambda: reader.positions()[0].end >= 2, "which are seen", deadline_s=20)


def test_the_leader_alone_may_acknowledge(stage):
    log = stage.writer(acks="leader")
    outcomes = log.append([numbered(number) for number in range(50)])
    assert [each.offset for each in outcomes if each.partition == 0] == list(range(25))
    assert all(each.append_ms > 0 for each in outcomes)
    reader = stage.reader()
    # Readers see what all copies in sync have, which is a moment after the leader's word.
    until(lambda: sorted(everything(reader)) == list(range(50)), "all of it is seen")
