"""What one stretch of one partition adds to every live meter. No Spark in here."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tallymark.events.tenants import MAIN
from tallymark.log.protocol import Record
from tallymark.pipeline.counting.aside import letters, maybe_duplicates
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.decode import MOST_VALUES, Decoded, slices
from tallymark.pipeline.counting.measure import matching, measure, taken, with_buckets
from tallymark.pipeline.counting.needs import needs
from tallymark.pipeline.counting.split import by_tenant, per_tenant
from tallymark.store import deltas
from tallymark.store.model import DeadLetter, Ledger, RegisteredMeter

LATE_MS = 3_600_000

NO_NAMES = pl.Series(dtype=pl.String)


@dataclass(frozen=True)
class Counted:
    """The outcome of a stretch: deltas to the points, and where every event went."""

    deltas: pl.DataFrame
    ledgers: Mapping[str, Ledger]
    """by tenant; what cannot be decoded is `main`'s, the operator's"""
    received: dict[int, int]
    dead: tuple[DeadLetter, ...]
    """also those set aside, whose reason is MAYBE_DUPLICATE"""
    broken: dict[int, str]
    missed: dict[int, int]
    """of each meter that is broken, or broke here: the fresh events of its tenant with a name that it counts"""
    new_tenants: tuple[str, ...] = ()
    """tenants of events here that have no meter at all, live or broken"""

    @property
    def ledger(self) -> Ledger:
        """Of all tenants together."""
        return sum(self.ledgers.values(), Ledger())


class Tally:
    """What the slices of a stretch add up to."""

    def __init__(self) -> None:
        self.ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
        """by tenant"""
        self.received: Counter[int] = Counter()
        self.dead: list[DeadLetter] = []
        self.names: defaultdict[str, list[pl.Series]] = defaultdict(list)
        """of the fresh events, by tenant"""
        self._merged = 0
        self._parts: list[pl.DataFrame] = []
        self._waiting = 0

    def add(self, parts: Sequence[pl.DataFrame]) -> None:
        self._parts += parts
        self._waiting += sum(part.height for part in parts)
        # Only when as much has come as there is: so each row is merged a few times, however many slices there are.
        if self._waiting > max(MOST_VALUES, self._merged):
            self._parts = [deltas.merge(self._parts)]
            self._merged, self._waiting = self._parts[0].height, 0

    def deltas(self) -> pl.DataFrame:
        return deltas.merge(self._parts)


class MeterFailed(Exception):
    """Counting for some meters failed; nobody knows yet whether it is they that are to blame."""

    def __init__(self, failed: dict[int, str], text: str) -> None:
        super().__init__(text)
        self.failed = failed
        """meter -> why"""


def count(
    records: Iterable[Record],
    *,
    claims: Claims,
    meters: Sequence[RegisteredMeter],
    broken: Sequence[RegisteredMeter] = (),
) -> Counted:
    """Decode, find duplicates, expand the meters, aggregate in place.

    Of the meters that are `broken` only what they miss is counted. One more that fails raises MeterFailed.
    """
    tally = Tally()
    live = _by_tenant(meters)
    for events in slices(records, needs=needs(meters)):
        _count_slice(events, tally, claims=claims, meters=live)
        del events  # before the next slice is read
    names = {tenant: pl.concat(tally.names[tenant]) for tenant in {each.tenant for each in broken} & tally.names.keys()}
    known = live.keys() | {each.tenant for each in broken}
    return Counted(
        deltas=tally.deltas(),
        ledgers=dict(tally.ledgers),
        received=dict(tally.received),
        dead=tuple(tally.dead),
        broken={},
        missed={each.meter_id: missed_by(each, names.get(each.tenant, NO_NAMES)) for each in broken},
        new_tenants=tuple(sorted(each for each, own in tally.ledgers.items() if own.accepted and each not in known)),
    )


def _by_tenant(meters: Iterable[RegisteredMeter]) -> dict[str, list[RegisteredMeter]]:
    found: dict[str, list[RegisteredMeter]] = {}
    for each in meters:
        found.setdefault(each.tenant, []).append(each)
    return found


def count_without_those_that_fail(
    attempt: Callable[[Sequence[RegisteredMeter], Sequence[RegisteredMeter]], Counted],
    *,
    meters: Sequence[RegisteredMeter],
    broken: Sequence[RegisteredMeter] = (),
) -> Counted:
    """What `attempt(meters, broken)` counts, once every meter that fails is among the broken.

    Each attempt counts the whole stretch, with claims of its own: what a meter took of slices before the one on which
    it failed is then taken by the others or by none. One that failed has claimed nothing.
    """
    failed: dict[int, str] = {}
    while True:
        stopped = (*broken, *(each for each in meters if each.meter_id in failed))
        try:
            counted = attempt([each for each in meters if each.meter_id not in failed], stopped)
        except MeterFailed as failure:
            failed |= failure.failed
        else:
            return replace(counted, broken=failed)


def _count_slice(
    events: Decoded, tally: Tally, *, claims: Claims, meters: Mapping[str, Sequence[RegisteredMeter]]
) -> None:
    """Adds what a slice counts; `meters` by tenant."""
    duplicate = claims.duplicates(events.ids)
    unsure = maybe_duplicates(events, duplicate, claims)
    fresh = only_fresh(events, duplicate if unsure is None else duplicate | unsure)
    accepted = per_tenant(events)
    duplicates = per_tenant(events, duplicate)
    asides = [0] * len(accepted) if unsure is None else per_tenant(events, unsure)
    failures: list[MeterFailed] = []
    for place, (tenant, own) in enumerate(by_tenant(fresh)):
        try:
            parts, unmatched = expand(own, meters.get(tenant, ()))
        except MeterFailed as failure:
            failures.append(failure)  # so that those of all tenants are found at once
            continue
        tally.add(parts)
        tally.names[tenant].append(own.table["event"])
        tally.ledgers[tenant] += Ledger(
            accepted=accepted[place],
            counted=own.table.height - unmatched,
            duplicate=duplicates[place],
            aside=asides[place],
            unmatched=unmatched,
            late=int((own.table["time"] < own.table["received"] - LATE_MS).sum()),
        )
    if failures:
        failed = {meter: why for failure in failures for meter, why in failure.failed.items()}
        raise MeterFailed(failed, "; ".join(map(str, failures)))
    tally.received.update(receipts(fresh.table["received"]))
    tally.dead += events.dead if unsure is None else (*events.dead, *letters(events, unsure, claims))
    if events.accepted != len(duplicate):
        dead = sum(letter.events for letter in events.dead)
        tally.ledgers[MAIN] += Ledger(accepted=events.accepted - len(duplicate), dead=dead)


def only_fresh(events: Decoded, other: np.ndarray) -> Decoded:
    """The events without the other ones; `values` keep pointing at their rows."""
    table = events.table.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64))
    if other.any():
        table = table.filter(~pl.Series(other))
    return replace(events, table=table)


def receipts(received: pl.Series) -> dict[int, int]:
    """Events by receipt time in steps of 10 ms: from it the sink states the lag."""
    moments, counts = np.unique(received.to_numpy() // 10 * 10, return_counts=True)
    return dict(zip(moments.tolist(), counts.tolist(), strict=True))


def missed_by(registered: RegisteredMeter, names: pl.Series) -> int:
    """How many of its tenant's events, by their names, the meter would have looked at.

    Its `where` is left out, since that may be what fails.
    """
    counted = registered.meter.events
    return int(names.is_in(list(counted)).sum()) if counted else len(names)


def expand(events: Decoded, meters: Sequence[RegisteredMeter]) -> tuple[list[pl.DataFrame], int]:
    """The deltas of each meter, and how many events no meter took. Events and meters are of one tenant.

    A machine that is short of memory, files or disk fails the task: that is no fault of a meter, and Spark tries again.
    """
    parts: list[pl.DataFrame] = []
    failed: dict[int, str] = {}
    unmatched = np.ones(events.table.height, np.bool_)
    events = replace(events, table=with_buckets(events.table, meters))
    for registered in meters:
        if registered.meter.events and events.names.isdisjoint(registered.meter.events):
            continue
        try:
            matched = matching(events.table, registered)
            found = list(measure(events, matched, registered))
            counted = taken(events.table, matched, registered)
        except (MemoryError, OSError):
            raise
        except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001
            failed[registered.meter_id] = f"{type(error).__name__}: {error}"[:500]
            continue
        parts += found
        unmatched &= ~(counted.to_numpy() if counted is not None else np.True_)
    if failed:
        named = {each.meter_id: each.meter.name for each in meters}
        raise MeterFailed(failed, "; ".join(f"meter {named[meter]}: {why}" for meter, why in failed.items()))
    return parts, int(unmatched.sum())
