"""What is sent: event i, its id, key, time and value, as a pure function of (seed, i)."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.uint64]
Integers = NDArray[np.int64]

SKEW = 1.0
"""exponent of the popularity of keys: the k-th is asked for 1/k as often as the first"""
HIGHEST_VALUE = 1000
DUPLICATE_WINDOW_S = 60
"""a copy follows its original within this time, well inside the shortest sensible horizon"""
LATE_FROM_MS, LATE_TO_MS = 60_000, 6 * 86_400_000
"""how old late events are: up to a day less than what is accepted by default, to leave room for retries"""

# One stream of random numbers for each decision about an event.
_ID, _KEY, _VALUE, _IS_LATE, _LATENESS, _IS_COPY, _COPY_OF = range(1, 8)


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is sent. Two equal plans send equal bytes."""

    run: str
    """part of the event's and the meter's name, so that runs do not mix"""
    seed: int
    start_ms: int
    rate: float
    sends: int
    keys: int = 1000
    duplicates: float = 0.0
    late: float = 0.0
    servers: int = 0
    """if given, every server sends one event a second, with `metrics` named numbers"""
    metrics: int = 0

    @property
    def event(self) -> str:
        return f"load_{self.run}"

    meter = event

    @property
    def key_label(self) -> str:
        return "server" if self.servers else "key"

    @property
    def key_count(self) -> int:
        return self.servers or self.keys

    def key_name(self, key: int) -> str:
        return f"{'web-' if self.servers else 'k'}{key}"

    def definition(self) -> dict[str, Any]:
        """The meter that counts this load."""
        compute = ["count", "sum", "min", "max"]
        definition = {"name": self.meter, "event": self.event, "by": [self.key_label], "compute": compute}
        return {**definition, "each": "values"} if self.servers else definition

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def sources(self, sends: Indices) -> Indices:
        """The event that each send carries: its own, or for an injected duplicate that of an earlier send."""
        current = sends.copy()
        if self.duplicates <= 0:
            return current
        window = np.uint64(max(1, int(self.rate * DUPLICATE_WINDOW_S)))
        open_ = np.flatnonzero(self._is_copy(current))
        while open_.size:
            copies = current[open_]
            reach = np.minimum(copies, window)
            back = np.uint64(1) + self._random(_COPY_OF, copies) % reach
            current[open_] = copies - back
            open_ = open_[self._is_copy(current[open_])]
        return current

    def _is_copy(self, sends: Indices) -> NDArray[np.bool_]:
        return (sends > 0) & (self._uniform(_IS_COPY, sends) < self.duplicates)

    def ids(self, sources: Indices) -> Indices:
        """Distinct by construction: the mixing below is a bijection."""
        return self._random(_ID, sources)

    def times(self, sources: Indices) -> Integers:
        """Milliseconds: when the event was due, or long before for a late one."""
        if self.servers:
            due = (sources // np.uint64(self.servers)).astype(np.int64) * 1000
        else:
            due = (sources.astype(np.float64) * (1000.0 / self.rate)).astype(np.int64)
        times = self.start_ms + due
        if self.late > 0:
            age = LATE_FROM_MS + self._uniform(_LATENESS, sources) * (LATE_TO_MS - LATE_FROM_MS)
            times -= np.where(self._uniform(_IS_LATE, sources) < self.late, age.astype(np.int64), 0)
        return times

    def key_indices(self, sources: Indices) -> Integers:
        """Zipf-distributed; with servers, each in turn."""
        if self.servers:
            return (sources % np.uint64(self.servers)).astype(np.int64)
        return np.searchsorted(self._popularity, self._uniform(_KEY, sources), side="right")

    def values(self, sources: Indices) -> Integers:
        """Whole numbers, so that sums are exact."""
        return (self._random(_VALUE, sources) % np.uint64(HIGHEST_VALUE)).astype(np.int64)

    def metric_values(self, sources: Indices) -> Integers:
        """One row an event, one column a metric."""
        cells = sources[:, None] * np.uint64(self.metrics) + np.arange(self.metrics, dtype=np.uint64)[None, :]
        return (self._random(_VALUE, cells) % np.uint64(HIGHEST_VALUE)).astype(np.int64)

    @cached_property
    def _popularity(self) -> NDArray[np.float64]:
        weights = 1.0 / np.arange(1, self.keys + 1, dtype=np.float64) ** SKEW
        bounds: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
        bounds[-1] = 1.0
        return bounds

    def _uniform(self, stream: int, numbers: Indices) -> NDArray[np.float64]:
        return (self._random(stream, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def _random(self, stream: int, numbers: Indices) -> Indices:
        """SplitMix64: 64 well-mixed bits for each number, without state."""
        seed = (self.seed * 8 + stream) * 0xD1342543DE82EF95 & 0xFFFFFFFFFFFFFFFF
        z = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
