"""Ids of events as claims see them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tallymark.pipeline.counting.claim_table import Heads, Tails

Times = npt.NDArray[np.int64]


class Ids(NamedTuple):
    """Ids of consecutive events in log order: 96 bits of hash and the append time of each."""

    high: Heads
    low: Tails
    append_ms: Times


def no_ids() -> Ids:
    return Ids(np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.int64))
