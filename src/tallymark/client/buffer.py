"""Events that wait to be sent for the first time, cut into batches."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

from tallymark.client.batch import Batch


class Buffer:
    """One open batch that grows, and full ones in the order in which they were filled."""

    def __init__(
        self,
        *,
        batch_events: int,
        batch_bytes: int,
        linger_s: float,
        now: Callable[[], float],
        tenant: str | None = None,
    ) -> None:
        self._batch_events, self._batch_bytes, self._linger_s, self._now = batch_events, batch_bytes, linger_s, now
        self._tenant = tenant
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._since = 0.0
        self._full: deque[Batch] = deque()
        self._numbers = count()

    def add(self, event: bytes, size: int) -> bool:
        """True if the sender should wake up: the buffer was empty, or a batch is full."""
        news = not self._open
        if self._open_bytes + size > self._batch_bytes and self._open:
            self.cut()
            news = True
        if not self._open:
            self._since = self._now()
        self._open.append(event)
        self._open_bytes += size
        if len(self._open) >= self._batch_events or self._open_bytes >= self._batch_bytes:
            self.cut()
            return True
        return news

    def cut(self) -> None:
        """Close the open batch, so that it is sent without waiting for more events."""
        # Swapped out before any call: a signal handler that counts may run in between, and cut as well.
        events, self._open, self._open_bytes = self._open, [], 0
        if events:
            self._full.append(self.new_batch(events))

    def new_batch(self, events: list[bytes]) -> Batch:
        return Batch(self.new_number(), events, tenant=self._tenant)

    def new_number(self) -> int:
        return next(self._numbers)

    def ready_at(self) -> float | None:
        """When the next batch may be sent, possibly in the past; None if the buffer is empty."""
        if self._full:
            return 0.0
        return self._since + self._linger_s if self._open else None

    def oldest(self) -> Batch | None:
        if not self._full:
            self.cut()
        return self._full[0] if self._full else None

    def take(self) -> Batch:
        """The oldest batch; the open one if there is no full one."""
        if not self._full:
            self.cut()
        return self._full.popleft()

    @property
    def events(self) -> int:
        return len(self._open) + sum(batch.count for batch in self._full)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._full)
