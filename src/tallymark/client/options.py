"""A client's options, checked."""

import math

import msgspec

from tallymark.client import compression
from tallymark.client.addresses import BALANCES, Balance
from tallymark.client.compression import Compress
from tallymark.client.transport import split_url
from tallymark.events import tenants

POLICIES = ("block", "spill", "drop")
MAX_S = 86_400.0
"""a day: a longer wait is a typo, and some system clocks cannot handle it"""
MAX_IN_FLIGHT = 1_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """See `Client` for what they mean."""

    urls: tuple[str, ...]
    tenant: str | None = None
    batch_events: int = 500
    batch_bytes: int = 256_000
    linger_s: float = 0.1
    max_events: int = 100_000
    max_bytes: int = 32_000_000
    when_full: str = "block"
    block_s: float = 0.05
    spill_folder: str | None = None
    max_spill_bytes: int = 256_000_000
    balance: Balance = "round_robin"
    in_flight: int = 4
    compress: Compress = "auto"
    connect_timeout_s: float = 0.05
    min_timeout_s: float = 0.25
    max_timeout_s: float = 10.0
    first_pause_s: float = 0.010
    max_pause_s: float = 5.0

    def __post_init__(self) -> None:
        self._check_urls()
        if self.tenant is not None:
            tenants.check(self.tenant)
        _one_of("when_full", self.when_full, POLICIES)
        _one_of("balance", self.balance, BALANCES)
        _one_of("compress", self.compress, compression.CHOICES)
        self._check_sizes()
        self._check_seconds()
        if self.when_full == "spill" and not self.spill_folder:
            raise ValueError("when_full='spill' needs a spill_folder")
        if self.when_full != "spill" and self.spill_folder:
            raise ValueError(f"spill_folder has no effect with when_full={self.when_full!r}; use when_full='spill'")

    def _check_urls(self) -> None:
        if not self.urls:
            raise ValueError("urls is empty; give at least one address, such as http://127.0.0.1:8080")
        for url in self.urls:
            split_url(url)
        if len(set(self.urls)) < len(self.urls):
            raise ValueError(f"urls contains an address twice: {', '.join(self.urls)}")

    def _check_sizes(self) -> None:
        for name in ("batch_events", "batch_bytes", "max_events", "max_bytes", "max_spill_bytes", "in_flight"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}; it must be a whole number")
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.in_flight > MAX_IN_FLIGHT:
            raise ValueError(
                f"in_flight is {self.in_flight}; at most {MAX_IN_FLIGHT:,} are allowed: each takes a thread"
            )

    def _check_seconds(self) -> None:
        for name in _SECONDS:
            _seconds(name, getattr(self, name))
        for name in ("linger_s", "block_s", "first_pause_s", "max_pause_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("connect_timeout_s", "min_timeout_s", "max_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be more than 0")
        if self.min_timeout_s > self.max_timeout_s:
            raise ValueError(f"min_timeout_s = {self.min_timeout_s} exceeds max_timeout_s = {self.max_timeout_s}")


_SECONDS = (
    "linger_s", "block_s", "first_pause_s", "max_pause_s", "connect_timeout_s", "min_timeout_s", "max_timeout_s"
)  # fmt: skip


def _seconds(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be a number of seconds")
    if not math.isfinite(value) or value > MAX_S:
        raise ValueError(f"{name} is {value}; it must be at most {MAX_S:,.0f} seconds")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(known)}")
