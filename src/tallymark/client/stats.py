"""What became of the events so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from tallymark.client.breaker import State


@dataclass(frozen=True, slots=True)
class Stats:
    """At every moment `called + adopted == delivered + refused + dropped + queued + in_flight + spilled`."""

    called: int
    """events that were counted; calls with wrong arguments are not"""
    adopted: int
    """events found in the spill folder, left by an earlier process"""
    queued: int
    """in memory, waiting for their first or next try"""
    in_flight: int
    delivered: int
    refused: int
    spilled: int
    """in files, waiting"""
    dropped: int
    retried: int
    """attempts of events beyond the first"""
    requests: int
    breakers: Mapping[str, State]
    timeout_s: Mapping[str, float]
    """how long the client currently waits for an answer"""
    spill_bytes: int
    held_bytes: int
    """of events in memory, queued and in flight, as JSON; Python adds some 40 bytes to each"""
