"""Fakes for tests, yours too: no sockets, no disks, no waiting."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallymark.testing.clock import ManualClock
    from tallymark.testing.driven import DrivenClient
    from tallymark.testing.log import DeadlyLog, DeadlyReader, MemoryLog
    from tallymark.testing.transport import ScriptedTransport
    from tallymark.testing.waiting import until

__all__ = ["DeadlyLog", "DeadlyReader", "DrivenClient", "ManualClock", "MemoryLog", "ScriptedTransport", "until"]

_HOMES = {
    "DeadlyLog": "log",
    "DeadlyReader": "log",
    "DrivenClient": "driven",
    "ManualClock": "clock",
    "MemoryLog": "log",
    "ScriptedTransport": "transport",
    "until": "waiting",
}


def __getattr__(name: str) -> object:
    # The fakes of the client need nothing but the client, those of the log need Arrow.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tallymark.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
