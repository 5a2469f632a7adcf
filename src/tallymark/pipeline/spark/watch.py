"""A watch over a driver that has nobody to count for it.

Spark waits for executors without end: when the cluster is full, and also when its master came back without knowing this
driver. Meanwhile the driver would hold the lease, and a second one that could work would stand by.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from tallymark.role.loop import Background, Wait

logger = logging.getLogger("tallymark.pipeline")

LOOK_EVERY_S = 2.0


class NoExecutors(Exception):
    """The cluster has given no executor for too long."""


class Watch:
    """`with Watch(…):` cancels Spark's jobs, and raises NoExecutors, when there was no executor for the patience."""

    def __init__(
        self,
        executors: Callable[[], Sequence[str]],
        cancel: Callable[[], None],
        *,
        stopping: threading.Event,
        patience_s: float,
        every_s: float = LOOK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executors, self._cancel, self._stopping = executors, cancel, stopping
        self._patience_s, self._every_s, self._clock = patience_s, every_s, clock
        self._background = Background(self._watch, name="executors", join_s=10.0)
        self._in_vain = False

    def __enter__(self) -> "Watch":
        self._background.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.__exit__(kind, error, trace)
        if self._in_vain:
            raise NoExecutors(
                f"no executor for {self._patience_s:g} s: the cluster is full, or its master does not know this driver"
                " any more; starting again"
            ) from error

    def _watch(self, wait: Wait) -> None:
        seen = self._clock()
        while not wait(self._every_s):
            if self._stopping.is_set():
                self._cancel()  # a job that waits for executors sees no signal
            elif self._executors():
                seen = self._clock()
            elif self._clock() - seen > self._patience_s:
                self._in_vain = True
                self._stopping.set()
                self._cancel()
