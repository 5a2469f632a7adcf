"""How Python programs ask Tallymark: totals, series, tops, queries, and changes as they happen."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallymark.reader.answers import Changes, Items, Series, Total
    from tallymark.reader.errors import QuestionError, QuestionRefused, Unanswered
    from tallymark.reader.live import Live
    from tallymark.reader.reader import Reader

__all__ = ["Changes", "Items", "Live", "QuestionError", "QuestionRefused", "Reader", "Series", "Total", "Unanswered"]

_HOMES = {
    "Changes": "answers",
    "Items": "answers",
    "Live": "live",
    "QuestionError": "errors",
    "QuestionRefused": "errors",
    "Reader": "reader",
    "Series": "answers",
    "Total": "answers",
    "Unanswered": "errors",
}


def __getattr__(name: str) -> object:
    # Lazily, like the client: who imports `tallymark` to send events pays nothing for asking.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tallymark.reader.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
