"""Tallymark counts and aggregates events in real time, and can prove its numbers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallymark.client import AsyncClient, Client, Dropped, Refused, Stats
    from tallymark.reader import QuestionError, QuestionRefused, Reader, Unanswered

__all__ = [
    "AsyncClient", "Client", "Dropped", "QuestionError", "QuestionRefused", "Reader", "Refused", "Stats", "Unanswered"
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Whoever runs a role or asks for the version pays nothing for the client, and who sends nothing for the reader.
    if name in __all__:
        from tallymark import client, reader

        return getattr(client if name in client.__all__ else reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
