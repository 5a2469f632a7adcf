"""Events that are sent together, and the history of trying to."""

import msgspec

from tallymark.client.addresses import Address
from tallymark.client.spill import SpillFile


class Batch(msgspec.Struct, eq=False):
    """In memory, or in a file and not loaded: then `events` is empty and the file knows how many there are."""

    number: int
    """in the order in which events were counted; batches left by earlier processes have negative numbers"""
    events: list[bytes]
    tries: int = 0
    first_try_ms: int = 0
    """when it was first sent; 0 if it never was, or certainly did not arrive"""
    due: float = 0.0
    last: Address | None = None
    """where it was tried last"""
    file: SpillFile | None = None
    part_of: int = -1
    """the number of the batch from which this one was split"""
    tenant: str | None = None
    """whose events these are; None: the server's choice"""
    whole: bool = False
    """the file has exactly these events, so memory can be freed"""

    @property
    def came(self) -> int:
        """The number of the batch in which its events were counted."""
        return self.part_of if self.part_of >= 0 else self.number

    @property
    def count(self) -> int:
        return len(self.events) if self.events or self.file is None else self.file.events

    @property
    def size(self) -> int:
        return sum(map(len, self.events))

    @property
    def parked(self) -> bool:
        """In its file only."""
        return self.whole and not self.events
