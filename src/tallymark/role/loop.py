"""How roles wait: for the next round of work that repeats, for a condition, for an attempt to succeed."""

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from tallymark.role.outage import Outage

Wait = Callable[[float], bool]
"""waits for this many seconds; True as soon as it is time to stop. `Event.wait` is one"""

JOIN_S = 5.0

_Result = TypeVar("_Result")


def repeat(work: Callable[[], object], *, every_s: Callable[[], float], wait: Wait, outage: Outage) -> None:
    """Works at once and then again and again until it is time to stop; a failure is tolerated."""
    while True:
        with outage.tolerated():
            work()
        if wait(every_s()):
            return


def retry(
    attempt: Callable[[], _Result],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    wait: Wait,
    outage: Outage,
    every_s: float = 1.0,
) -> _Result | None:
    """What `attempt` returns once it no longer raises `on`; None if it is time to stop first."""
    pause_s = 0.0
    while not wait(pause_s):
        try:
            result = attempt()
        except on as error:
            outage.failed(error)
        else:
            outage.over()
            return result
        pause_s = every_s
    return None


def wait_for(
    condition: Callable[[], bool],
    *,
    wait: Wait,
    every_s: float,
    within_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """True once the condition holds; False after `within_s`, or if it is time to stop first."""
    deadline = clock() + within_s
    pause_s = 0.0
    while not wait(pause_s):
        if condition():
            return True
        if clock() >= deadline:
            return False
        pause_s = every_s
    return False


class Background:
    """`with Background(run, name=…):` runs in a thread; leaving the block ends its wait, and then it should return."""

    def __init__(self, run: Callable[[Wait], None], *, name: str, join_s: float = JOIN_S) -> None:
        self._left = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._left.wait,), name=name, daemon=True)
        self._join_s = join_s

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        # Not for ever: it may wait for a store that does not answer, and ends with the process.
        self._thread.join(self._join_s)
