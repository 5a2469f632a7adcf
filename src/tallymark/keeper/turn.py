"""Whose turn it is: of several keepers one works, the others stand by."""

import logging
import os
import secrets
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
        self.every_s = lease_s / 3
        self.ours = False

    def take(self) -> None:
        """Takes or renews it, and says once when that changes."""
        if self._lease is None:
            self._lease = self._store.lease("keeper", self._holder, lease_s=self._lease_s)
        had, has = self.ours, self._lease.take()
        if had and not has:
            self.lose()
        elif has and not had:
            logger.info("this keeper has the lease and works")
            self.ours, self._told_to_stand_by = True, False
        elif not has and not self._told_to_stand_by:
            logger.info("another keeper has the lease; standing by")
            self._told_to_stand_by = True

    def lose(self) -> None:
        """Another keeper has taken over: what it writes is right, and this one waits for its next turn."""
        logger.warning("another keeper has taken over; standing by")
        self.ours, self._told_to_stand_by = False, True
        self._lease = None  # one that was lost is never had again

    def give_back(self) -> None:
        if self._lease is None or not self.ours:
            return
        try:
            self._lease.release()
        except StoreError as error:
            logger.warning("the lease could not be given back, the next keeper waits until it ends: %s", error)
