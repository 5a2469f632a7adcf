"""Events that came again so late that nobody can tell whether an earlier copy was counted: set aside, not counted.

A client that got no answer says in `resent` when it first tried. While that lies within the reach of the claims, a copy
that was appended is known, and the event is a duplicate or new. Beyond it the claims have forgotten, so counting might
count twice and dropping might lose: the events are kept whole, for somebody with a longer memory (the archive).

How long ago the first try was is told by `received`: both are times of one wall clock, whatever it was set to before.
Append times are not, since they do not follow a clock that is set. After it was set back they are ahead of it, and
every first try would look as old as the step was long.

They claim their id like every other event. So of several late copies one is set aside and the others are duplicates of
it: whoever resolves it resolves it once. And what the claims know stays a function of ids and append times alone, which
is what lets them be rebuilt from the log without judging the past again.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallymark.events import frame
from tallymark.pipeline.claims import CLOCKS_MS, Claims
from tallymark.pipeline.decode import Decoded, Resend
from tallymark.pipeline.ids import Times
from tallymark.store.model import MAYBE_DUPLICATE, DeadLetter

# Longer than a collector waits for its log (log.delivery_timeout_s) before it refuses.
MOST_WAIT_MS = 60_000


def maybe_duplicates(events: Decoded, duplicate: npt.NDArray[np.bool_], claims: Claims) -> npt.NDArray[np.bool_] | None:
    """True where an event is no known duplicate, but might be one; None if that is nowhere, as nearly always."""
    if not events.resends:
        return None
    unsure = np.zeros(len(duplicate), np.bool_)
    for resend in events.resends:
        unsure[resend.rows] = ~claims.reach_back(elapsed_ms(resend))
    unsure &= ~duplicate
    return unsure if unsure.any() else None


def elapsed_ms(resend: Resend) -> Times:
    """The most time, as the log measures it, between the first try of each event and the append of this copy.

    A copy may have waited in the collector before it was appended: as far as its append time is ahead of its receipt,
    up to what a collector waits, that counts too. More is a step of the clock. A first try in the future of its receipt
    was stamped before the clock was set back, when append time was not ahead yet: there only append time tells.
    """
    received_ms, append_ms = resend.received_ms, resend.record.append_ms
    waited_ms = np.clip(append_ms - received_ms, 0, MOST_WAIT_MS)
    is_before_a_step = resend.since_ms > received_ms + CLOCKS_MS
    known_ms = np.where(is_before_a_step, np.maximum(append_ms, received_ms), received_ms + waited_ms)
    return known_ms - resend.since_ms


def letters(events: Decoded, unsure: npt.NDArray[np.bool_]) -> Iterator[DeadLetter]:
    """A letter for each record with such events; its `raw` is a frame of just these."""
    for resend in events.resends:
        chosen = unsure[resend.first_row : resend.first_row + resend.record.events]
        if chosen.any():
            yield _letter(resend, chosen)


def _letter(resend: Resend, chosen: npt.NDArray[np.bool_]) -> DeadLetter:
    record, count = resend.record, int(chosen.sum())
    oldest_s = int(elapsed_ms(resend).max()) / 1000
    return DeadLetter(
        hop="pipeline",
        reason=MAYBE_DUPLICATE,
        detail=f"{count:,} of {record.events:,} events were first tried up to {oldest_s:,.0f} s before: whether that"
        " copy was counted is beyond pipeline.horizon_s",
        events=count,
        raw=frame.encode(frame.decode(record.payload).filter(pa.array(chosen))),
        at_ms=record.append_ms,
        partition=record.partition,
        offset=record.offset,
    )
