"""The right to play a role alone: of several keepers or drivers one works, the others stand by."""

import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from tallymark.role.loop import Background, Wait, repeat
from tallymark.role.outage import Outage
from tallymark.store.protocol import Lease, LeaseLost, StoreError

# Within its time a lease is renewed this often: two renewals may fail before it is lost.
RENEWALS = 3
# While another process has the lease, this one asks for it at least this often.
STANDBY_S = 1.0

logger = logging.getLogger(__name__)


class Leases(Protocol):
    """The part of a store that grants leases."""

    def lease(self, role: str, holder: str, *, lease_s: float) -> Lease: ...


def unique_name(name: str) -> str:
    """A name that no other process has, nor an earlier one of the same name."""
    return f"{name} pid {os.getpid()} {secrets.token_hex(4)}"


def _nothing() -> None:
    return None


class LeaseHolder:
    """`with holder.kept():` takes the lease, renews it beside the work, and releases it at the end.

    A lost lease is never regained; the holder asks the store for a new one. With `regains=False` it does not: a new
    lease would let everything that still writes through this store object write again.
    """

    def __init__(
        self,
        store: Leases,
        role: str,
        *,
        name: str,
        lease_s: float,
        on_lost: Callable[[], None] = _nothing,
        regains: bool = True,
    ) -> None:
        self._store, self._role, self._name, self._lease_s = store, role, unique_name(name), lease_s
        self._on_lost, self._regains = on_lost, regains
        self._lease: Lease | None = None
        self._is_lost = False
        self._said_standby = False
        # One thread renews, another learns from a refused write that the lease is lost.
        self._lock = threading.Lock()
        self._outage = Outage(
            logger,
            "the lease could not be taken or renewed",
            recovered="the lease can be taken and renewed again",
            expected=StoreError,
        )
        self.is_ours = False

    @property
    def every_s(self) -> float:
        """How long until the lease has to be renewed or asked for again."""
        renewal_s = self._lease_s / RENEWALS
        return renewal_s if self.is_ours else min(renewal_s, STANDBY_S)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renews the lease in a thread, so that work that takes long does not lose it."""
        if not self.is_ours:
            with self._outage.tolerated():
                self.take()  # first, so that work can begin at once
        try:
            with Background(self._renew, name="lease"):
                yield
        except LeaseLost:
            self.lose()
            raise
        finally:
            self.release()

    def _renew(self, wait: Wait) -> None:
        if not wait(self.every_s):
            # Whatever the error: a thread that ended would lose the lease for good.
            repeat(self.take, every_s=lambda: self.every_s, wait=wait, outage=self._outage)

    def take(self) -> bool:
        """Takes or renews the lease, and logs it once when that changes who works; True if it is ours."""
        with self._lock:
            if self._is_lost and not self._regains:
                return False
            lease = self._lease = self._lease or self._store.lease(self._role, self._name, lease_s=self._lease_s)
        has = lease.take()  # not under the lock: it may take long
        with self._lock:
            if lease is not self._lease:
                return False  # lost or released meanwhile
            is_loss = self.is_ours and not has
            if is_loss:
                self._mark_lost()
            elif has and not self.is_ours:
                self.is_ours, self._said_standby = True, False
                logger.info("this %s has the lease and works", self._role)
            elif not has and not self._said_standby:
                self._said_standby = True
                logger.info("another %s has the lease; standing by", self._role)
        if is_loss:
            self._on_lost()
        return has

    def lose(self) -> None:
        """Another process has taken over, as a refused write shows: what that one writes is right."""
        with self._lock:
            is_loss = self.is_ours
            if is_loss:
                self._mark_lost()
        if is_loss:
            self._on_lost()

    def release(self) -> None:
        """Gives the lease back, so that the next process need not wait until it runs out."""
        with self._lock:
            lease, was_ours = self._lease, self.is_ours
            self._lease, self.is_ours = None, False
        if lease is None or not was_ours:
            return
        try:
            lease.release()
        except StoreError as error:
            logger.warning(
                "the lease could not be released; the next %s waits until it runs out: %s", self._role, error
            )

    def _mark_lost(self) -> None:
        # In one step with what found it: a renewal under way must not bring the lease back.
        self._lease, self.is_ours, self._is_lost, self._said_standby = None, False, True, True
        logger.warning("another %s has taken over; standing by", self._role)
