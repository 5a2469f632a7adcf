"""Shares of the saved queries: each has a lease of its own, and the keepers that are alive divide them evenly."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tallymark import telemetry
from tallymark.role.lease_holder import RENEWALS, Leases, unique_name
from tallymark.role.loop import Wait, repeat
from tallymark.role.outage import Outage
from tallymark.store.protocol import Lease, StoreError
from tallymark.store.windows import SHARES

Beats = Callable[[], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""role -> when it was last alive, and facts"""

# A keeper beats every two seconds.
ALIVE_MS = 7_000
# Leases are looked after at least this often, so that what one gives back another has soon.
EVERY_S = 2.0

logger = logging.getLogger(__name__)


class Shares:
    """Takes as many leases as are this keeper's part, renews them, and gives back what is too many."""

    def __init__(
        self,
        store: Leases,
        beats: Beats,
        *,
        name: str,
        lease_s: float,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store, self._beats, self._role = store, beats, name
        self._name, self._lease_s, self._clock_ms = unique_name(name), lease_s, clock_ms
        self._lock = threading.Lock()
        self._leases: dict[int, Lease] = {}
        self._held: dict[int, int] = {}
        self._taken = 0

    @property
    def held(self) -> dict[int, int]:
        """Share -> a number that is another one each time it is taken."""
        with self._lock:
            return dict(self._held)

    def run(self, wait: Wait) -> None:
        """Looks after the leases until it is time to stop, then gives them back."""
        outage = Outage(logger, "the shares of the saved queries could not be taken or renewed", expected=StoreError)
        every_s = min(EVERY_S, self._lease_s / RENEWALS)
        repeat(self.balance, every_s=lambda: every_s, wait=wait, outage=outage)
        with outage.tolerated():
            self.release(range(SHARES))

    def balance(self) -> None:
        keepers = self._keepers()
        place, (part, more) = keepers.index(self._role), divmod(SHARES, len(keepers))
        # Each begins elsewhere, so that two that start together do not ask for the same ones.
        first = place * part + min(place, more)
        part += place < more
        for share in sorted(range(SHARES), key=lambda each: (each - first) % SHARES):
            self._look_after(share, part)
        self.release(sorted(self.held, key=lambda each: (each - first) % SHARES)[part:])
        telemetry.KEEPER_SHARES.set(len(self.held))

    def release(self, shares: Any) -> None:
        for share in shares:
            lease = self._leases.get(share)
            if self._lose(share) and lease is not None:
                lease.release()

    def _look_after(self, share: int, part: int) -> None:
        lease = self._leases.get(share)
        if lease is None:
            lease = self._leases[share] = self._store.lease(f"share/{share}", self._name, lease_s=self._lease_s)
        is_held = share in self.held
        if not is_held and len(self.held) >= part:
            lease.watch()
        elif lease.take():
            if not is_held:
                with self._lock:
                    self._taken += 1
                    self._held[share] = self._taken
        elif is_held:
            logger.warning("another keeper has taken over share %d of the saved queries", share)
            self._lose(share)

    def _lose(self, share: int) -> bool:
        """A lease that was lost or given back is never had again: the next one is another."""
        with self._lock:
            was_held = self._held.pop(share, None) is not None
            if was_held:
                self._leases.pop(share, None)
            return was_held

    def _keepers(self) -> list[str]:
        """The names of those that are alive, this one among them."""
        now_ms = self._clock_ms()
        alive = {
            role
            for role, (at_ms, facts) in self._beats().items()
            if role.partition("/")[0] == "keeper" and abs(now_ms - at_ms) < ALIVE_MS and not facts.get("stopped")
        }
        return sorted(alive | {self._role})
