"""Group commit: each request hears of its own events, whatever happened to the others' in the same write."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from tallymark.collector.commit import Committer, Outcome
from tallymark.events import columns, frame
from tallymark.events.model import Event
from tallymark.events.validation import Accepted
from tallymark.log.partitioners import partitioner
from tallymark.log.protocol import Appended, NotAppended, Outgoing
from tallymark.store.model import DeadLetter
from tallymark.testing import ManualClock, MemoryLog


class FussyLog(MemoryLog):
    """Takes every other frame."""

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        self.appends += 1
        return [
            NotAppended(each.partition, "no") if number % 2 else self._append(each)
            for number, each in enumerate(frames)
        ]

    def ids(self) -> set[str]:
        return {
            row["id"]
            for partition, at in self.positions().items()
            for record in self.read(partition, 0, at.end)
            for row in columns.rows(frame.decode(record.payload))
        }


def request(ids: list[str]) -> Accepted:
    return Accepted([Event("view", each) for each in ids], list(range(len(ids))), [0] * len(ids), None, 0, set())


def commit(log: MemoryLog, requests: list[Accepted], *, dead: MemoryLog | None = None) -> list[Outcome]:
    async def run() -> list[Outcome]:
        committer = Committer(log, dead or MemoryLog(1), partitioner("id", log.partitions), interval_s=0.01)
        outcomes = await asyncio.gather(*[committer.commit(each) for each in requests])
        await committer.close()
        return list(outcomes)

    return asyncio.run(run())


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_event_that_is_not_durable_is_named_to_its_sender(partitions: int) -> None:
    # Ids that do not compress, so that one partition takes several frames.
    rng = np.random.default_rng(3)
    sent = [[rng.bytes(120).hex() for _ in range(size)] for size in (5000, 0, 7, 12_000)]
    log = FussyLog(partitions)
    outcomes = commit(log, [request(ids) for ids in sent])
    assert log.appends == 1
    durable = log.ids()
    assert 5007 < len(durable) < 17_007
    for ids, outcome in zip(sent, outcomes, strict=True):
        lost = {ids[refusal.index] for refusal in outcome.refusals}
        assert lost == set(ids) - durable
        assert outcome.accepted == len(ids) - len(lost)
        assert all(refusal.retryable and refusal.code == "not_durable" for refusal in outcome.refusals)


def test_a_commit_is_bounded_and_nothing_waits_for_ever() -> None:
    log = MemoryLog(2)
    outcomes = commit(log, [request([f"{n}-{each}" for each in range(10_000)]) for n in range(7)])
    assert [outcome.accepted for outcome in outcomes] == [10_000] * 7
    assert log.appends == 3
    assert sum(at.events for at in log.positions().values()) == 70_000


def test_a_commit_is_bounded_in_bytes_too_and_a_larger_request_is_written_alone() -> None:
    log = MemoryLog(2)
    requests = [request([f"{n}-{each}" for each in range(10)]) for n in range(7)]
    for each, size in zip(requests, (3, 3, 3, 16, 1, 1, 1), strict=True):
        each.size_bytes = size * 1_000_000
    assert [outcome.accepted for outcome in commit(log, requests)] == [10] * 7
    #  3 + 3 | 3 | 16 | 1 + 1 + 1
    assert log.appends == 4


def test_an_event_that_no_frame_has_room_for_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "MAX_FRAME_BYTES", 10_000)
    rng = np.random.default_rng(7)
    huge = Event("view", "huge", values={rng.bytes(60).hex(): 1.0 for _ in range(300)})
    log, dead = FussyLog(1), MemoryLog(1)
    both = request(["a", "b"])
    both.events.insert(1, huge)
    both.indexes, both.times = [4, 5, 6], [0, 0, 0]
    first, outcome = commit(log, [request(["other"]), both], dead=dead)
    assert log.ids() == {"other", "a"}, "FussyLog takes every other frame"
    assert first.accepted == outcome.accepted == 1
    refused = {refusal.index: refusal for refusal in outcome.refusals}
    assert list(refused) == [5, 6], "in the order of the request"
    assert (refused[5].code, refused[5].retryable, refused[5].id) == ("too_large", False, "huge")
    assert "at most 10,000 are allowed" in refused[5].detail
    assert (refused[6].code, refused[6].retryable, refused[6].id) == ("not_durable", True, "b")
    (letter,) = msgspec.msgpack.decode(next(dead.read(0, 0, 1)).payload, type=list[DeadLetter])
    assert (letter.reason, letter.raw[:29]) == ("too_large", b'{"event":"view","id":"huge","')


def test_of_equal_events_under_a_key_all_or_none_are_to_be_sent_again() -> None:
    # Only their number tells them apart, and whoever sends one of them again counts anew.
    equal = request([str(n) for n in range(20)])
    equal.twins = [list(range(10)), [10, 11]]
    log = FussyLog(2)
    (outcome,) = commit(log, [equal])
    durable = {int(each) for each in log.ids()}
    assert 0 < len(durable & set(range(10))) < 10
    lost = {refusal.index for refusal in outcome.refusals}
    assert lost >= set(range(10))
    assert lost & {10, 11} in (set(), {10, 11})
    assert lost >= set(range(20)) - durable
    assert lost & set(range(12, 20)) == set(range(12, 20)) - durable
    assert outcome.accepted == 20 - len(lost)
    assert {refusal.id for refusal in outcome.refusals} == {str(index) for index in lost}


def test_the_offsets_are_those_of_the_commit() -> None:
    log = MemoryLog(1)
    first, second = commit(log, [request(["a"])])[0], commit(log, [request(["b"])])[0]
    assert (first.offsets, second.offsets) == ({0: 0}, {0: 1})


def test_of_several_frames_the_last_offset_is_told() -> None:
    # Whoever waits for the counts waits for all of its events.
    rng = np.random.default_rng(5)
    log = MemoryLog(2)
    (outcome,) = commit(log, [request([rng.bytes(120).hex() for _ in range(20_000)])])
    assert outcome.offsets == {number: at.end - 1 for number, at in log.positions().items()}
    assert min(outcome.offsets.values()) > 0


def test_what_waits_at_the_close_is_written() -> None:
    log = MemoryLog(2)

    async def run() -> Any:
        committer = Committer(log, MemoryLog(1), partitioner("id", 2), interval_s=60)
        waiting = asyncio.create_task(committer.commit(request(["a"])))
        await asyncio.sleep(0)
        await committer.close()
        return await waiting

    assert asyncio.run(run()).accepted == 1


def test_what_has_waited_too_long_is_to_be_sent_again_and_is_not_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement of late copies counts on it: see `pipeline.aside`."""
    clock = ManualClock()

    class SlowLog(FussyLog):
        def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
            clock.advance(29 if self.appends == 0 else 1.5)
            return super().append(frames)

    async def run() -> list[Outcome]:
        committer = Committer(
            log, MemoryLog(1), partitioner("id", 1), interval_s=0, clock_ns=lambda: int(clock.now() * 1e9)
        )
        outcomes = await asyncio.gather(*[committer.commit(request([name])) for name in ("a", "b", "c")])
        outcomes.append(await committer.commit(request(["d"])))
        await committer.close()
        return list(outcomes)

    monkeypatch.setattr("tallymark.collector.commit.MAX_COMMIT_EVENTS", 1)
    log = SlowLog(1)
    outcomes = asyncio.run(run())
    assert [outcome.accepted for outcome in outcomes] == [1, 1, 0, 1]
    assert log.ids() == {"a", "b", "d"}
    (refusal,) = outcomes[2].refusals
    assert (refusal.code, refusal.retryable, refusal.id) == ("not_durable", True, "c")
    assert "waited" in refusal.detail


def test_a_fault_fails_its_requests_and_not_the_next() -> None:
    class Faulty(Committer):
        def _write(self, requests: list[Accepted]) -> list[Outcome]:
            if requests[0].events[0].id == "bad":
                raise KeyError("a fault")
            return super()._write(requests)

    async def run() -> int:
        committer = Faulty(MemoryLog(2), MemoryLog(1), partitioner("id", 2), interval_s=0)
        with pytest.raises(KeyError):
            await committer.commit(request(["bad"]))
        outcome = await committer.commit(request(["good"]))
        await committer.close()
        return outcome.accepted

    assert asyncio.run(run()) == 1
