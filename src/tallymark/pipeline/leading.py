"""The driver's lease: one driver counts, others stand by, and one that was away too long must not write."""

import logging
import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from tallymark.store.protocol import Lease, StoreError

logger = logging.getLogger("tallymark.pipeline")

# A lease is renewed this often within its time: two renewals may fail before it is lost.
RENEWALS = 3


def holder() -> str:
    """Who this process is, to others."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Leading:
    """`with Leading(lease, …):` renews the lease until the block is left; `on_lost` is called if it is lost."""

    def __init__(self, lease: Lease, *, lease_s: float, on_lost: Callable[[], None]) -> None:
        self._lease, self._on_lost = lease, on_lost
        self._every_s = lease_s / RENEWALS
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.lost = False

    def __enter__(self) -> "Leading":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(5.0)
        try:
            self._lease.release()
        except StoreError as failure:
            logger.warning("the lease was not given back: %s; the next driver waits until it ends", failure)

    def _renew(self) -> None:
        while not self._done.wait(self._every_s):
            try:
                if not self._lease.take():
                    self.lost = True
                    self._on_lost()
                    return
            except StoreError as error:
                # Whoever wanted to take over could not either; writes are fenced in any case.
                logger.warning("the lease could not be renewed: %s", error)
