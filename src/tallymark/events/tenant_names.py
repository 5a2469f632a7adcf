"""Event names by tenant, and how many tenants there may be: each has meters and a ledger of its own, for ever."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tallymark.events import tenants
from tallymark.events.names import REMEMBERED_S, Known, Names
from tallymark.events.tenants import MAIN, MOST_TENANTS

# As long as a name that nobody uses may be remembered.
FORGOTTEN_AFTER_S = 2 * REMEMBERED_S


class TooManyTenants(ValueError):
    """No room for another tenant."""

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"tenant {tenant!r} would be one more than the {MOST_TENANTS} that have sent events within the last day; "
            "its events can be sent again when one of them has been silent for a day; put what varies into `props`, "
            "not into the tenant"
        )


class KnownTenant(Known):
    """The names of one tenant as they are kept from one run to the next."""

    unused_s: float = 0.0


class KnownTenants(Known):
    """The names of `main`, in the form of the versions that knew no other tenant, and those of the others."""

    tenants: dict[str, KnownTenant] = msgspec.field(default_factory=dict)


@dataclass(slots=True)
class _Tenant:
    names: Names
    used: float


class TenantNames:
    """The names in use, tenant by tenant, at most `limit` for each. `main` always has its place."""

    def __init__(
        self, limit: int, *, known: KnownTenants | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._clock = limit, clock
        self._lock = threading.Lock()
        self._is_new = False
        """a tenant came or went since `known` was last asked for"""
        now = clock()
        self._tenants = {MAIN: _Tenant(Names(limit, known=known, clock=clock), now)}
        for tenant, kept in (known.tenants if known is not None else {}).items():
            if _is_name(tenant) and len(self._tenants) < MOST_TENANTS:
                unused_s = max(kept.unused_s, 0.0)
                self._tenants.setdefault(tenant, _Tenant(Names(limit, known=kept, clock=clock), now - unused_s))

    def __len__(self) -> int:
        """Names, of all tenants."""
        return sum(len(each.names) for each in self._all().values())

    @property
    def tenants(self) -> int:
        return len(self._tenants)

    @property
    def changed(self) -> bool:
        """Since `known` was last asked for."""
        return self._is_new or any(each.names.changed for each in self._all().values())

    def of(self, tenant: str) -> Names:
        """What to judge its events by: the names it uses, or those of a tenant that has none and no place yet."""
        found = self._tenants.get(tenant)
        return found.names if found is not None else Names(self._limit, clock=self._clock)

    def adopt(self, tenant: str, names: Names) -> bool:
        """Remember a tenant whose event was accepted by these names; raises TooManyTenants if there is no room.

        False if others have been adopted since `of` gave these: the events are to be judged again.
        """
        found = self._tenants.get(tenant)
        if found is None:
            with self._lock:
                found = self._tenants.get(tenant) or self._add(tenant, names)
        found.used = self._clock()
        return found.names is names

    def known(self) -> KnownTenants:
        """What to keep for the next run."""
        with self._lock:
            self._is_new = False
            now = self._clock()
            kept = {
                tenant: KnownTenant(**msgspec.structs.asdict(each.names.known()), unused_s=now - each.used)
                for tenant, each in self._tenants.items()
            }
        main = kept.pop(MAIN)
        return KnownTenants(main.recent, main.older, main.age_s, kept)

    def _add(self, tenant: str, names: Names) -> _Tenant:
        now = self._clock()
        if len(self._tenants) >= MOST_TENANTS:
            kept = {
                name: each
                for name, each in self._tenants.items()
                if name == MAIN or now - each.used < FORGOTTEN_AFTER_S
            }
            if len(kept) >= MOST_TENANTS:
                raise TooManyTenants(tenant)
            self._tenants = kept
        added = self._tenants[tenant] = _Tenant(names, now)
        self._is_new = True
        return added

    def _all(self) -> dict[str, _Tenant]:
        # Metrics and the file are written in other threads.
        with self._lock:
            return dict(self._tenants)


def _is_name(tenant: str) -> bool:
    try:
        return bool(tenants.check(tenant))
    except ValueError:
        return False
