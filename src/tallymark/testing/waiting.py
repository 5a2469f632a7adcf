"""Waiting for a condition instead of a time."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def until(condition: Callable[[], _Result], what: str, *, deadline_s: float = 20.0) -> _Result:
    """What the condition gives once it is true; fails after the deadline instead of sleeping and hoping."""
    end = time.monotonic() + deadline_s
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what}")
        threading.Event().wait(0.005)
    return result
