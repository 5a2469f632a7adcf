"""How programs talk to Tallymark: the SDK, and beneath it the HTTP transport that the commands use too."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallymark.client.async_client import AsyncClient
    from tallymark.client.client import Client
    from tallymark.client.errors import Dropped, Refused
    from tallymark.client.stats import Stats

__all__ = ["AsyncClient", "Client", "Dropped", "Refused", "Stats"]

_HOMES = {"AsyncClient": "async_client", "Client": "client", "Dropped": "errors", "Refused": "errors", "Stats": "stats"}


def __getattr__(name: str) -> object:
    # AsyncClient brings asyncio, the commands want the transport alone: each is imported when it is asked for.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tallymark.client.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
