"""The client's counters, and what it holds in memory."""

from tallymark.client.batch import Batch


class Account:
    """`held` is what is queued and in flight; whoever moves events says so here."""

    def __init__(self, *, instance: str, adopted: int) -> None:
        self._instance = instance
        self.adopted = adopted
        self.called = self.delivered = self.refused = self.dropped = 0
        self.retried = self.requests = 0
        self.held_events = self.held_bytes = 0

    def hold(self, batch: Batch) -> None:
        self.held_events += batch.count
        self.held_bytes += batch.size

    def release(self, batch: Batch) -> None:
        self.held_events -= batch.count
        self.held_bytes -= batch.size

    def header(self, *, spilled: int) -> str:
        """For the collector, with every request: so it knows of clients that lose events, and how many."""
        return (
            f"instance={self._instance};seq={self.requests};called={self.called};delivered={self.delivered};"
            f"refused={self.refused};dropped={self.dropped};spilled={spilled};queued={self.held_events}"
        )
