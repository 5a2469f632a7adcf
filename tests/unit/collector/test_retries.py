"""Retries under an `Idempotency-Key`: done as the documents say, they count every event once, whatever failed."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.log.protocol import Appended, NotAppended, Outgoing
from tallymark.testing import MemoryLog

KEY = "order-7"
SALES = [{"event": "sale", "value": value} for value in (30.0, 20.0, 40.0, 10.0)]


def counted(collector: Any) -> tuple[int, float]:
    """How many sales there are and what they are worth, each hash once: what the pipeline would count."""
    found = {(row["hash_high"], row["hash_low"]): row["value"] for row in collector.events()}
    return len(found), sum(found.values())


def again(reply: Any) -> list[dict[str, Any]]:
    return [error for error in reply.json["errors"] if error["retryable"]]


class Moody(MemoryLog):
    """`fates` says of each commit which partitions fail, and whether what failed is in the log all the same."""

    def __init__(self) -> None:
        super().__init__(2)
        self.fates: list[dict[int, bool]] = []

    def append(self, frames: Sequence[Outgoing]) -> list[Appended | NotAppended]:
        fate = self.fates.pop(0) if self.fates else {}
        outcomes: list[Appended | NotAppended] = []
        for frame in frames:
            if frame.partition not in fate:
                outcomes.append(self._append(frame))
                continue
            if fate[frame.partition]:
                self._append(frame)
            outcomes.append(NotAppended(frame.partition, "no answer"))
        return outcomes


@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("partition", [0, 1])
def test_what_failed_for_a_moment_is_sent_again_alone_under_the_same_key(
    make: Any, partition: int, reached: bool
) -> None:
    #  1st request   30 20 40 10    some: not_durable, retryable
    #  2nd request         40       just those, same key
    log = Moody()
    collector = make(log=log)
    log.fates = [{partition: reached}]
    reply = collector.post(SALES, idempotency_key=KEY)
    failed = again(reply)
    assert 0 < len(failed) < 4
    resent = collector.post([SALES[error["index"]] for error in failed], idempotency_key=KEY)
    assert (resent.status, resent.json["accepted"]) == (202, len(failed))
    assert counted(collector) == (4, 100.0)


def test_an_error_tells_the_id_under_which_to_send_the_event_again(make: Any) -> None:
    log = Moody()
    collector = make(log=log)
    for headers in ({"idempotency_key": KEY}, {}):
        log.fates = [{0: True, 1: True}]
        reply = collector.post([*SALES, {"event": "sale", "id": "own", "value": 0}], **headers)
        assert reply.status == 503
        failed = again(reply)
        assert [error["index"] for error in failed] == [0, 1, 2, 3, 4]
        assert failed[4]["id"] == "own"
        assert len({error["id"] for error in failed}) == 5
        # With its id, an event needs no key and no company.
        for error in failed[:4]:
            assert collector.post({**SALES[error["index"]], "id": error["id"]}).status == 202
    assert counted(collector) == (9, 200.0), "the sales under the key, those without, and the one with an id of its own"


def test_what_is_refused_for_good_has_no_id_to_be_sent_again_with(make: Any) -> None:
    reply = make().post([{"event": "sale", "time": "noon"}], idempotency_key=KEY)
    assert "id" not in reply.json["errors"][0]


def test_equal_events_that_failed_in_part_are_all_sent_again_and_all_counted(make: Any) -> None:
    log = Moody()
    collector = make(log=log)
    log.fates = [{0: False}]
    equal = [{"event": "sale", "value": 25.0}] * 8
    reply = collector.post(equal, idempotency_key=KEY)
    assert len(collector.events()) not in (0, 8), "some are in the log, others not"
    assert (reply.status, len(again(reply))) == (503, 8)
    assert collector.post(equal, idempotency_key=KEY).status == 202
    assert counted(collector) == (8, 200.0)


@given(
    values=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=1, max_size=8),
    fates=st.lists(st.dictionaries(st.sampled_from([0, 1]), st.booleans()), max_size=6),
    whole=st.lists(st.booleans(), min_size=6, max_size=6),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_of_failures_and_of_whole_and_partial_retries_counts_each_event_once(
    shared: Callable[[], tuple[Any, Moody]],
    values: list[float],
    fates: list[dict[int, bool]],
    whole: list[bool],
) -> None:
    collector, log, key = shared()
    log.fates = list(fates)
    before = counted(collector)
    sent = [{"event": "sale", "value": value} for value in values]
    waiting = sent
    for retry_all in itertools.cycle(whole):
        reply = collector.post(waiting, idempotency_key=key)
        failed = again(reply)
        if not failed:
            break
        # A client may also lose the answer and send all of it again.
        waiting = waiting if retry_all else [waiting[error["index"]] for error in failed]
    after = counted(collector)
    assert (after[0] - before[0], after[1] - before[1]) == (len(values), sum(values))


@pytest.fixture
def shared(make: Any) -> Callable[[], tuple[Any, Moody, str]]:
    log = Moody()
    collector = make(log=log)
    keys = map(str, itertools.count())
    return lambda: (collector, log, next(keys))


def test_after_a_413_the_parts_count_under_one_key_if_no_two_events_are_equal(make: Any) -> None:
    collector = make(max_request_events=3)
    reply = collector.post(SALES, idempotency_key=KEY)
    assert reply.status == 413
    assert reply.json["detail"].endswith("give each part its own Idempotency-Key, and reuse it for retries")
    for part in (SALES[:2], SALES[2:], SALES[2:]):
        assert collector.post(part, idempotency_key=KEY).status == 202
    assert counted(collector) == (4, 100.0)


def test_equal_events_in_two_parts_need_two_keys_since_nothing_else_tells_them_from_a_retry(make: Any) -> None:
    collector = make(max_request_events=3)
    equal = [{"event": "sale", "value": 25.0}] * 4
    assert collector.post(equal, idempotency_key=KEY).status == 413
    for part in (equal[:2], equal[2:]):
        assert collector.post(part, idempotency_key=KEY).status == 202
    assert counted(collector) == (2, 50.0), "the second part is the first one, sent again"
    for number in (1, 2, 2):
        assert collector.post(equal[:2], idempotency_key=f"{KEY}/{number}").status == 202
    assert counted(collector) == (6, 150.0)


@pytest.mark.parametrize("headers", [{}, {"idempotency_key": KEY}])
def test_only_who_gave_a_key_is_told_of_keys(make: Any, headers: dict[str, str]) -> None:
    collector = make(max_body_bytes=100)
    reply = collector.post(b" " * 101, **headers)
    assert reply.status == 413
    assert ("Idempotency-Key" in reply.json["detail"]) == bool(headers)
