"""What an answer decides for each event of a batch."""

from collections.abc import Sequence

import msgspec

from tallymark.client.addresses import Health
from tallymark.client.errors import TOO_LARGE
from tallymark.client.transport import Answer

MAX_RETRY_AFTER_S = 300.0
"""a longer Retry-After is cut to this: an hour mistyped as a day should not silence a client"""


class Verdict(msgspec.Struct, frozen=True):
    """Events whose index is not named were delivered."""

    health: Health
    again: Sequence[int] = ()
    refused: dict[int, tuple[str, str]] = {}
    """index: code and detail"""
    split: bool = False
    """too large as a whole: to be sent in halves"""
    retry_after_s: float = 0.0
    untouched: bool = False
    """certainly nothing was taken"""


class _Error(msgspec.Struct):
    index: int
    code: str = "refused"
    detail: str = ""
    retryable: bool = False


class _Told(msgspec.Struct):
    accepted: int
    errors: list[_Error] = []


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""what decoding an arbitrary body can raise; the last for a thousand nested brackets"""

_told = msgspec.json.Decoder(_Told)
_problem = msgspec.json.Decoder(_Problem)


def judge(answer: Answer, count: int) -> Verdict:
    """Taken, to be sent again, or refused for good, for a batch of `count` events.

    | status                       | consequence                                                             |
    |------------------------------|-------------------------------------------------------------------------|
    | 200, 202, 422                | as the body says for each event                                         |
    | 503 with such a body         | the same; what failed may yet have reached the log, so it is resent     |
    | 408, 429, 500, 502, 503, 504 | all again, not before Retry-After                                       |
    | 413                          | in halves; a single event is refused as too_large                       |
    | any other (400, 401, 403 …)  | all refused: a wrong key or address does not get better by repetition   |

    A 2xx that does not account for every event is no answer of a collector, so all are sent again: the ids are the
    same, so nothing counts twice.
    """
    status = answer.status
    after_s = min(MAX_RETRY_AFTER_S, answer.retry_after_s or 0.0)
    if status in (200, 202, 422, 503) and (told := _accounted(answer.body, count)) is not None:
        return Verdict(
            Health.BAD if status == 503 else Health.GOOD,
            again=sorted(error.index for error in told.errors if error.retryable),
            refused={error.index: (error.code, error.detail) for error in told.errors if not error.retryable},
            retry_after_s=after_s,
        )
    if answer.worth_a_retry:
        busy = status == 429
        return Verdict(
            Health.NEITHER if busy else Health.BAD, again=range(count), retry_after_s=after_s, untouched=busy
        )
    if 200 <= status < 300:
        return Verdict(Health.BAD, again=range(count))
    problem = _problem_of(answer)
    if status == 413:
        if count > 1:
            return Verdict(Health.GOOD, again=range(count), split=True, untouched=True)
        problem = (TOO_LARGE, problem[1])
    return Verdict(Health.GOOD, refused=dict.fromkeys(range(count), problem))


def _accounted(body: bytes, count: int) -> _Told | None:
    """The answer, if it covers every event of the batch exactly once."""
    try:
        told = _told.decode(body)
    except _UNREADABLE:
        return None
    indices = {error.index for error in told.errors}
    is_whole = len(indices) == len(told.errors) and told.accepted + len(indices) == count
    return told if is_whole and all(0 <= index < count for index in indices) else None


def _problem_of(answer: Answer) -> tuple[str, str]:
    try:
        problem = _problem.decode(answer.body)
    except _UNREADABLE:
        problem = _Problem()
    return problem.code or f"http_{answer.status}", problem.detail or f"answered with HTTP {answer.status}"
