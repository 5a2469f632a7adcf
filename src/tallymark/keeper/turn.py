"""Whose turn it is: of several keepers one works, the others stand by."""

import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tallymark.store.protocol import Lease, StoreError

logger = logging.getLogger(__name__)


class Leasing(Protocol):
    """The part of a store that gives leases."""

    def lease(self, role: str, holder: str, *, lease_s: float) -> Lease: ...


def holder(name: str) -> str:
    """A name that no other process has, and no earlier one of the same name had."""
    return f"{name} pid {os.getpid()} {secrets.token_hex(4)}"


class Turn:
    """The keeper's lease, renewed three times in its time so that one late renewal does not lose it."""

    def __init__(self, store: Leasing, *, lease_s: float, holder: str) -> None:
        self._store, self._lease_s, self._holder = store, lease_s, holder
        self._lease: Lease | None = None
        self._told_to_stand_by = False
        self._is_failing = False
        # One thread renews, another finds at its work that the lease is lost.
        self._lock = threading.Lock()
        self.every_s = lease_s / 3
        self.ours = False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Takes and renews it beside the work, so that a part of that which takes long does not lose it."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.every_s):
                self.try_to_take()

        self.try_to_take()  # first, so that work can begin at once
        renewing = threading.Thread(target=renew, name="lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            done.set()
            renewing.join(5.0)
            self.give_back()

    def try_to_take(self) -> None:
        """As `take`; a store that does not answer is said once, and asked again with the next renewal."""
        try:
            self.take()
        except Exception as error:  # whatever it was: a thread that ended would lose the lease for good
            if not self._is_failing:
                logger.warning(
                    "the lease could not be taken or renewed: %s", error, exc_info=not isinstance(error, StoreError)
                )
            self._is_failing = True
        else:
            if self._is_failing:
                logger.info("the lease can be taken and renewed again")
            self._is_failing = False

    def take(self) -> None:
        """Takes or renews it, and says once when that changes."""
        with self._lock:
            lease = self._lease = self._lease or self._store.lease("keeper", self._holder, lease_s=self._lease_s)
        has = lease.take()  # not under the lock: it may take long
        with self._lock:
            if lease is not self._lease:
                return  # lost meanwhile, and told
            if self.ours and not has:
                self._lose()
            elif has and not self.ours:
                logger.info("this keeper has the lease and works")
                self.ours, self._told_to_stand_by = True, False
            elif not has and not self._told_to_stand_by:
                logger.info("another keeper has the lease; standing by")
                self._told_to_stand_by = True

    def lose(self) -> None:
        """Another keeper has taken over: what it writes is right, and this one waits for its next turn."""
        with self._lock:
            if self.ours:
                self._lose()

    def give_back(self) -> None:
        if self._lease is None or not self.ours:
            return
        try:
            self._lease.release()
        except StoreError as error:
            logger.warning("the lease could not be given back, the next keeper waits until it ends: %s", error)

    def _lose(self) -> None:
        logger.warning("another keeper has taken over; standing by")
        self.ours, self._told_to_stand_by = False, True
        self._lease = None  # one that was lost is never had again
