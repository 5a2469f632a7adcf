"""Leases: the right to play a role alone, kept in the book that the role writes.

No clock is compared with another's. Whoever waits watches a counter that the holder moves on; when it has not moved for
the lease's time, by the watcher's own clock, the watcher raises the epoch and so takes over. A holder that only slept
cannot write any more: each of its changes is conditional on the epoch it had.
"""

import time
import uuid
from collections.abc import Callable

from tallymark.store.cassandra.book import Book, Head, Term
from tallymark.store.protocol import StoreUnreachable

Clock = Callable[[], float]


class CassandraLease:
    def __init__(
        self,
        book: Book,
        term: Term,
        holder: str,
        *,
        lease_s: float,
        taken: Callable[[], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._book = book
        self._term = term
        # Its own, so that the same process started again is another holder.
        self._holder = f"{holder}/{uuid.uuid4().hex[:12]}"
        self._lease_s = lease_s
        self._taken = taken
        self._clock = clock
        self._epoch: int | None = None
        self._lost = False
        self._seen: Head | None = None
        self._since = 0.0

    def take(self) -> bool:
        if self._lost:
            return False
        try:
            head = self._book.head(settled=True)
        except StoreUnreachable:
            self._seen = None  # while nobody can be heard, nobody is silent
            raise
        if self._epoch is not None:
            return self._renew(head)
        if head.holder == self._holder:
            # Taken before, without an answer that came through: it is ours since then.
            return self._begin(head.epoch)
        if head.holder and not self._is_silent(head):
            return False
        epoch = head.epoch + 1
        if not self._book.hold(head, self._holder, epoch=epoch):
            # Somebody else was faster, or the answer did not come: the book says which.
            head = self._book.head(settled=True)
            if (head.epoch, head.holder) != (epoch, self._holder):
                return False
        return self._begin(epoch)

    def watch(self) -> None:
        """Looks whether the holder moves, so that a `take` that comes later need not begin to wait for its silence."""
        if self._epoch is None:
            self._is_silent(self._book.head(settled=True))

    def release(self) -> None:
        if self._epoch is not None and not self._lost:
            head = self._book.head(settled=True)
            if (head.epoch, head.holder) == (self._epoch, self._holder):
                self._book.hold(head, "", epoch=self._epoch)
            self._lost = True

    def _begin(self, epoch: int) -> bool:
        self._epoch = self._term.epoch = epoch
        self._taken()
        return True

    def _renew(self, head: Head) -> bool:
        if (head.epoch, head.holder) != (self._epoch, self._holder):
            self._lost = True
            return False
        if not self._book.hold(head, self._holder, epoch=head.epoch):
            head = self._book.head(settled=True)
            self._lost = (head.epoch, head.holder) != (self._epoch, self._holder)
        return not self._lost

    def _is_silent(self, head: Head) -> bool:
        """Whether the holder has not renewed for the lease's time, as far as this one has watched it."""
        now = self._clock()
        if self._seen is None or (self._seen.epoch, self._seen.renewed) != (head.epoch, head.renewed):
            self._seen, self._since = head, now
        return now - self._since >= self._lease_s
