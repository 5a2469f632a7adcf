"""What the engine asks of its driver: an attempt to make, and what follows from an outcome."""

import msgspec

from tallymark.client.addresses import Address
from tallymark.client.batch import Batch
from tallymark.client.errors import Dropped, Refused
from tallymark.client.spill import SpillFile


class Attempt(msgspec.Struct, eq=False):
    """One attempt. A batch with a file and without events must be loaded first, and marked as tried."""

    batch: Batch
    address: Address
    token: int
    """of the address' breaker"""
    number: int
    begun: float
    timeout_s: float
    sent_at_ms: int
    resent_ms: int
    """the first try, if the collector may have got these events then"""
    counters: str
    """for the collector: what has happened to the events so far"""
    abandoned: bool = False
    """the client is closed and its events were stored or reported, so the outcome no longer matters"""


class Report(msgspec.Struct):
    """What the driver has to do after an outcome."""

    refused: list[Refused] = []
    dropped: list[Dropped] = []
    done: list[SpillFile] = []
    """files whose events all have an outcome"""
