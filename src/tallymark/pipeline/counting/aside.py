"""Events that came again so late that nobody can tell whether an earlier copy was counted: set aside, not counted.

A client that got no answer says in `resent` when it first tried. While that lies within the reach of the claims, a copy
that was appended is known, and the event is a duplicate or new. Beyond it the claims have forgotten, so counting might
count twice and dropping might lose: the events are kept whole, for somebody with a longer memory (the archive).

How long ago the first try was is told by `received`: both are times of one wall clock, whatever it was set to before.
Append times of a local log are not, since they do not follow a clock that is set. After it was set back they are ahead
of it, and every first try would look as old as the step was long. What says that it was first tried *after* it came
was tried before such a step: nobody can tell how long ago that was.

They claim their id like every other event. So of several late copies one is set aside and the others are duplicates of
it: whoever resolves it resolves it once. And what the claims know stays a function of ids and append times alone, which
is what lets them be rebuilt from the log without judging the past again.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallymark.events import frame
from tallymark.events.cutting import compact
from tallymark.pipeline.counting.claims import CLOCKS_MS, Claims
from tallymark.pipeline.counting.decode import Decoded, Resend
from tallymark.pipeline.counting.ids import Times
from tallymark.store.model import MAYBE_DUPLICATE, DeadLetter

# A collector appends nothing that has waited for more than 30 s (`collector.commit.MOST_WAIT_S`); the rest is for the
# time before that wait begins and after it ends.
MOST_WAIT_MS = 60_000
# Append time that is behind the wall clock by less than this is so by chance; CLOCKS_MS has room for it.
BEHIND_MS = 5_000


def maybe_duplicates(events: Decoded, duplicate: npt.NDArray[np.bool_], claims: Claims) -> npt.NDArray[np.bool_] | None:
    """True where an event is no known duplicate, but might be one; None if that is nowhere, as nearly always."""
    if not events.resends:
        return None
    unsure = np.zeros(len(duplicate), np.bool_)
    for resend in events.resends:
        known = claims.reach_back(elapsed_ms(resend, has_wall_times=claims.has_wall_times))
        unsure[resend.rows] = ~known | _is_before_a_step(resend)
    unsure &= ~duplicate
    return unsure if unsure.any() else None


def elapsed_ms(resend: Resend, *, has_wall_times: bool) -> Times:
    """The most time, as the log measures it, between the first try of each event and the append of this copy.

    A copy may have waited in the collector before it was appended: as far as its append time is ahead of its receipt,
    that counts too. In a local log no further than a collector waits, since more is a step of the clock; and where
    append time is behind the wall clock it does not show the wait, so the longest is assumed.
    """
    ahead_ms = resend.record.append_ms - resend.received_ms
    waited_ms = np.maximum(ahead_ms, 0)
    if not has_wall_times:
        waited_ms = np.where(ahead_ms < -BEHIND_MS, MOST_WAIT_MS, np.minimum(waited_ms, MOST_WAIT_MS))
    return resend.received_ms + waited_ms - resend.since_ms


def _is_before_a_step(resend: Resend) -> npt.NDArray[np.bool_]:
    """Whether the clock was set back after the first try."""
    return resend.since_ms > resend.received_ms + CLOCKS_MS


def letters(events: Decoded, unsure: npt.NDArray[np.bool_], claims: Claims) -> Iterator[DeadLetter]:
    """A letter for each tenant with such events in a record; its `raw` is a frame of just these."""
    for resend in events.resends:
        rows = slice(resend.first_row, resend.first_row + resend.record.events)
        for tenant, part, mine in _by_tenant(events, resend, rows):
            chosen = unsure[rows] if mine is None else unsure[rows] & mine
            if chosen.any():
                of = resend.record.events if mine is None else int(mine.sum())
                yield _letter(tenant, part, chosen, of=of, has_wall_times=claims.has_wall_times)


def _by_tenant(
    events: Decoded, resend: Resend, rows: slice
) -> Iterator[tuple[str, Resend, npt.NDArray[np.bool_] | None]]:
    """Each tenant with its part of the resend, and which of the record's events are its own; None: all of them.

    A tenant can read its letters, so nothing in one may come from another tenant's events.
    """
    if events.owner is None:
        yield events.tenants[0], resend, None
        return
    for place in np.unique(events.owner[resend.rows]):
        own = events.owner[resend.rows] == place
        part = replace(
            resend, rows=resend.rows[own], since_ms=resend.since_ms[own], received_ms=resend.received_ms[own]
        )
        yield events.tenants[place], part, events.owner[rows] == place


def _letter(tenant: str, resend: Resend, chosen: npt.NDArray[np.bool_], *, of: int, has_wall_times: bool) -> DeadLetter:
    record, count = resend.record, int(chosen.sum())
    if _is_before_a_step(resend).any():
        ahead_s = int((resend.since_ms - resend.received_ms).max()) / 1000
        tried = f"up to {ahead_s:,.0f} s after they came, by a clock that was set back since or is wrong: whether an"
        tried += " earlier copy was counted is not known"
    else:
        oldest_s = int(elapsed_ms(resend, has_wall_times=has_wall_times).max()) / 1000
        tried = f"up to {oldest_s:,.0f} s before: whether that copy was counted is beyond pipeline.horizon_s"
    return DeadLetter(
        hop="pipeline",
        reason=MAYBE_DUPLICATE,
        detail=f"{count:,} of {of:,} events were first tried {tried}",
        events=count,
        raw=frame.encode(_cut(frame.decode(record.payload), chosen)),
        at_ms=record.append_ms,
        partition=record.partition,
        offset=record.offset,
        tenant=tenant,
    )


def _cut(batch: pa.RecordBatch, chosen: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """The chosen events, without tenants, names and properties that only the others have."""
    cut = compact(batch.filter(pa.array(chosen)))
    empty = [
        name for name in cut.schema.names if name.startswith(frame.PROP) and cut.column(name).null_count == cut.num_rows
    ]
    return cut.drop_columns(empty) if empty else cut
