"""What can go wrong with a question."""

from typing import Any

from tallymark.client.transport import Answer


class QuestionError(Exception):
    """A question that has no answer.

    QuestionError
    ├── QuestionRefused    it cannot be answered as it was asked; asking again changes nothing
    └── Unanswered         no answer within the time given; asking again later may work
    """

    def __init__(self, detail: str, *, code: str = "", status: int | None = None) -> None:
        super().__init__(detail)
        self.detail, self.code, self.status = detail, code, status


class QuestionRefused(QuestionError):
    """The server says why: `code` is stable (docs/errors.md), `detail` is for people and names the way out.

    In a query `position` is the index of the character where reading it failed; `extra` has whatever else the server
    said, such as `parameter`, `limit` and `actual`.
    """

    def __init__(self, detail: str, *, code: str, status: int, extra: dict[str, Any]) -> None:
        super().__init__(detail, code=code, status=status)
        self.extra = extra
        position = extra.get("position")
        self.position: int | None = position if isinstance(position, int) else None


class Unanswered(QuestionError):
    """`status` is None if nothing came back at all, else that of the last try."""


_STANDARD = ("type", "title", "status", "code", "detail")


def from_answer(answer: Answer) -> QuestionError:
    """What an answer that is no success says."""
    content = answer.json()
    problem: dict[str, Any] = content if isinstance(content, dict) else {}
    said = answer.body[:200].decode(errors="replace").replace("\n", " ").strip()
    detail = str(problem.get("detail") or said or "no reason given")
    code = str(problem.get("code") or f"http_{answer.status}")
    if answer.worth_a_retry or answer.status >= 500:
        return Unanswered(f"{detail} (HTTP {answer.status})", code=code, status=answer.status)
    extra = {name: value for name, value in problem.items() if name not in _STANDARD}
    return QuestionRefused(f"{detail} (HTTP {answer.status})", code=code, status=answer.status, extra=extra)
