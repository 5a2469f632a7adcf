"""Batches that wait in memory for their next try."""

import heapq
from collections.abc import Iterator

from tallymark.client.batch import Batch


class Retries:
    """The one that is due first comes first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Batch]] = []

    def add(self, batch: Batch) -> None:
        heapq.heappush(self._heap, (batch.due, batch.number, batch))

    @property
    def first(self) -> Batch | None:
        return self._heap[0][2] if self._heap else None

    def remove(self, batch: Batch) -> None:
        self._heap = [entry for entry in self._heap if entry[2] is not batch]
        heapq.heapify(self._heap)

    def take(self) -> Batch:
        return heapq.heappop(self._heap)[2]

    def take_all(self) -> list[Batch]:
        found, self._heap = list(self), []
        return found

    def __iter__(self) -> Iterator[Batch]:
        return (batch for _, _, batch in self._heap)
