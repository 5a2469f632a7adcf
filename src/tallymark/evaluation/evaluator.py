"""Evaluates saved queries round by round: each window once it is complete, and again when something came late.

A round looks at one moment of the store. Windows that are over by then are computed and stored; stored ones to which
batches since the last round have added something are computed again. All of it can be broken off anywhere: a window
is stored under its query and start, so that storing it twice is storing it once, and how far a query has come is
written together with its windows, or after them.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from tallymark import telemetry
from tallymark.evaluation import content
from tallymark.evaluation.compute import Found, Wanted, compute
from tallymark.evaluation.definitions import Definitions, Key
from tallymark.evaluation.plan import NoPlan, Plan
from tallymark.fidelity.freshness import complete_through
from tallymark.fidelity.log_view import LogView
from tallymark.store.protocol import Snapshot, Store
from tallymark.store.windows import Lineage, ShareChange, StoredWindow, share_of

# Of a round: what is left waits for the next one.
MOST_WINDOWS = 4_000
# Of one query in a round; not more than lie together (`plan.GROUPED`).
MOST_OF_A_QUERY = 100
DROPPED_AT_ONCE = 5_000
# What comes late comes in many batches: so windows rest before they are computed again, and longer if that takes long.
REST_S, REST = 2.0, 3.0
# Without windows to store, how far the journal was looked at is written this often.
NOTED_S = 5.0
# A query that cannot be evaluated is tried again after so long.
RETRY_S = 60.0

logger = logging.getLogger(__name__)


@dataclass
class _Held:
    """One share that this evaluator has."""

    generation: int
    epoch: int
    sequence: int
    """as it is stored"""
    seen: int
    """batches of the journal up to this one have been looked at"""
    lineages: dict[int, Lineage]
    touched: dict[int, set[int]] = field(default_factory=dict)
    """lineage -> the starts of stored windows to which something was added"""
    noted_at: float = 0.0

    @property
    def live(self) -> list[Lineage]:
        return [each for each in self.lineages.values() if not each.dropped]


@dataclass(frozen=True, slots=True)
class _Work:
    """One window to compute."""

    share: int
    lineage_id: int
    wanted: Wanted
    kind: str
    """`new`, `touched` or `stale`"""


class Evaluator:
    """Of the shares that are held; used by one thread."""

    def __init__(
        self,
        store: Store,
        events: LogView,
        *,
        accept_past_s: int,
        clock_ms: Callable[[], int],
        most_windows: int = MOST_WINDOWS,
        rest_s: float = REST_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._events = store, events
        self._accept_past_s, self._clock_ms, self._monotonic = accept_past_s, clock_ms, monotonic
        self._most_windows, self._rest_s = most_windows, rest_s
        self._definitions = Definitions(store)
        self._shares: dict[int, _Held] = {}
        self._rested_at = 0.0
        self._retry_at: dict[int, float] = {}
        self._begun: Mapping[Key, Plan | NoPlan] | None = None
        """the definitions that the lineages match"""
        self.behind_s = 0

    def round(self, shares: Mapping[int, int]) -> bool:
        """Does what is due in these shares (share -> how often it was taken over); True if there is more at once."""
        try:
            plans = self._definitions.current()
            self._hold(shares)
            if not plans and not any(held.lineages for held in self._shares.values()):
                return False
            with self._store.snapshots.take() as snapshot:
                return self._round(snapshot, plans)
        except BaseException:
            # Whatever is known may be wrong now: the store says how far each share has come.
            self._shares.clear()
            raise

    def next_due_ms(self) -> int | None:
        """When the next window is over, of queries that can be evaluated; None if there is none."""
        live = [each for held in self._shares.values() for each in held.live]
        return min((each.due_s * 1000 for each in live if not each.problem), default=None)

    def _hold(self, shares: Mapping[int, int]) -> None:
        for share in [each for each, held in self._shares.items() if shares.get(each) != held.generation]:
            del self._shares[share]
        for share, generation in shares.items():
            if share not in self._shares:
                self._begun = None
                found = self._store.windows.share(share)
                lineages = {each.lineage_id: each for each in found.lineages}
                self._shares[share] = _Held(generation, found.epoch, found.sequence, found.sequence, lineages)

    def _round(self, snapshot: Snapshot, plans: Mapping[Key, Plan | NoPlan]) -> bool:
        # The moment of the snapshot first, then the clock, then the log's ends (see `fidelity.freshness`).
        end, applied, now_ms = snapshot.journal_end, snapshot.applied(), self._clock_ms()
        complete_ms = complete_through(applied, self._events, now_ms=now_ms, clock_ms=self._clock_ms)
        if plans is not self._begun:
            self._begin(plans, end, now_s=now_ms // 1000)
            self._begun = plans
        changed = self._look(snapshot, plans, now_s=now_ms // 1000)
        work = [] if complete_ms is None else list(self._due(plans, complete_s=complete_ms // 1000))
        is_cut = len(work) > self._most_windows
        work = sorted(work, key=lambda each: each.wanted.end_s)[: self._most_windows]
        is_flushing = not is_cut and self._monotonic() >= self._rested_at
        if is_flushing:
            again = list(self._again(plans, most=self._most_windows - len(work) + 1))
            work += again[: self._most_windows - len(work)]
        begun = self._monotonic()
        found = compute(snapshot, [each.wanted for each in work])
        self._store_all(work, found, end, changed)
        if is_flushing:
            self._rested_at = self._monotonic() + max(self._rest_s, REST * (self._monotonic() - begun))
        self._note_behind(complete_ms)
        is_left = complete_ms is not None and any(True for _ in self._due(plans, complete_s=complete_ms // 1000))
        is_rested = self._monotonic() >= self._rested_at
        return self._drop() or is_left or (is_rested and any(True for _ in self._again(plans, most=1)))

    def _begin(self, plans: Mapping[Key, Plan | NoPlan], end: int, *, now_s: int) -> None:
        """Begins a lineage for each new query, text or version of a meter, and gives up those that they replace.

        Written before the first of its windows is: so each window that is stored belongs to a lineage that is known.
        """
        changes: list[ShareChange] = []
        wanted: dict[int, dict[Key, Plan | NoPlan]] = {share: {} for share in self._shares}
        for key, each in plans.items():
            if (share := share_of(*key)) in wanted:
                wanted[share][key] = each
        for share, held in self._shares.items():
            known: dict[Key, Lineage] = {}
            put: list[Lineage] = []
            for lineage in sorted(held.live, key=lambda each: each.lineage_id):
                key = lineage.tenant, lineage.name
                planned = wanted[share].get(key)
                is_current = isinstance(planned, Plan) and planned.digest == lineage.digest
                if key not in known and (is_current or isinstance(planned, NoPlan)):
                    known[key] = lineage
                    problem = str(planned) if isinstance(planned, NoPlan) else ""
                    if isinstance(planned, NoPlan) and problem != lineage.problem:
                        # Nobody looks at what comes late for it meanwhile.
                        put.append(
                            replace(lineage, problem=problem, stale_s=lineage.from_s, stale_until_s=lineage.next_s)
                        )
                else:
                    put.append(replace(lineage, dropped=True))
            put += [
                _first(planned, now_s)
                for key, planned in wanted[share].items()
                if key not in known and isinstance(planned, Plan)
            ]
            if put:
                # Nothing before now matters to a share that has no windows yet.
                sequence = None if known else end
                changes.append(ShareChange(share, end, sequence, put, epoch=held.epoch))
        if not changes:
            return
        self._store.windows.write(changes)
        for change in changes:
            held = self._shares[change.share]
            held.lineages |= {each.lineage_id: each for each in change.lineages}
            if change.sequence is not None:
                held.sequence = held.seen = change.sequence
                held.touched.clear()

    def _look(self, snapshot: Snapshot, plans: Mapping[Key, Plan | NoPlan], *, now_s: int) -> dict[int, Lineage]:
        """Which stored windows have been added to since the last round; the lineages that this has changed."""
        changed: dict[int, Lineage] = {}
        looked: dict[int, Mapping[int, Set[int]] | None] = {}
        for held in self._shares.values():
            if not held.live:
                held.seen = snapshot.journal_end
                continue
            if held.seen not in looked:
                looked[held.seen] = snapshot.touched(after=held.seen)
            touched = looked[held.seen]
            held.seen = snapshot.journal_end
            for lineage in held.live:
                plan = plans.get((lineage.tenant, lineage.name))
                if not isinstance(plan, Plan):
                    continue
                if touched is None:
                    # The journal does not reach back: everything that may have been added to is computed again.
                    since_s = max(lineage.from_s, plan.at(max(0, now_s - self._accept_past_s)))
                    if lineage.stale_s < lineage.stale_until_s:
                        since_s = min(since_s, lineage.stale_s)
                    new = replace(lineage, stale_s=since_s, stale_until_s=lineage.next_s)
                    changed[lineage.lineage_id] = held.lineages[lineage.lineage_id] = new
                else:
                    starts = _starts(plan, lineage, touched.get(plan.meter.set_id, ()))
                    if starts:
                        held.touched.setdefault(lineage.lineage_id, set()).update(starts)
            if touched is None:
                held.touched.clear()
                logger.warning("the journal no longer has all batches since the last round: windows are computed again")
        return changed

    def _due(self, plans: Mapping[Key, Plan | NoPlan], *, complete_s: int) -> Iterator[_Work]:
        for share, lineage, plan in self._evaluable(plans):
            start_s, end_s = lineage.next_s, lineage.due_s
            for _ in range(MOST_OF_A_QUERY):
                if end_s > complete_s:
                    break
                yield _Work(share, lineage.lineage_id, Wanted(plan, start_s, end_s), "new")
                start_s = plan.following(start_s)
                end_s = plan.end(start_s)

    def _again(self, plans: Mapping[Key, Plan | NoPlan], *, most: int) -> Iterator[_Work]:
        """Stored windows that are computed again, at most this many."""
        for share, lineage, plan in self._evaluable(plans):
            touched = sorted(self._shares[share].touched.get(lineage.lineage_id, ()))
            stale = (
                plan.starts(lineage.stale_s, lineage.stale_until_s)[:MOST_OF_A_QUERY]
                if lineage.stale_s < lineage.stale_until_s
                else ()
            )
            for kind, starts in (("touched", touched), ("stale", stale)):
                for start_s in starts:
                    if most <= 0:
                        return
                    most -= 1
                    yield _Work(share, lineage.lineage_id, Wanted(plan, start_s, plan.end(start_s)), kind)

    def _evaluable(self, plans: Mapping[Key, Plan | NoPlan]) -> Iterator[tuple[int, Lineage, Plan]]:
        now = self._monotonic()
        for share, held in self._shares.items():
            for lineage in held.live:
                plan = plans.get((lineage.tenant, lineage.name))
                if isinstance(plan, Plan) and self._retry_at.get(lineage.lineage_id, 0.0) <= now:
                    yield share, lineage, plan

    def _store_all(self, work: list[_Work], found: list[Found], end: int, changed: dict[int, Lineage]) -> None:
        rows: dict[int, list[StoredWindow]] = {share: [] for share in self._shares}
        lineages = dict(changed)
        done: dict[int, set[int]] = {}
        counts = {"new": 0, "touched": 0, "stale": 0}
        failed: set[int] = set()
        for each, window in zip(work, found, strict=True):
            lineage_id, plan, start_s = each.lineage_id, each.wanted.plan, each.wanted.start_s
            lineage = lineages.get(lineage_id) or self._shares[each.share].lineages[lineage_id]
            if lineage_id in failed:
                continue  # its windows are stored in order
            if isinstance(window, str):
                failed.add(lineage_id)
                lineages[lineage_id] = self._given_up(each, lineage, window)
                continue
            rows[each.share].append(StoredWindow(lineage, start_s, content.encode(window)))
            counts[each.kind] += 1
            if each.kind == "touched":
                done.setdefault(lineage_id, set()).add(start_s)
            else:
                lineages[lineage_id] = _moved_on(lineage, plan, each)
        changes = list(self._changes(rows, lineages, done, end))
        if changes:
            self._store.windows.write(changes)
        for change in changes:
            held = self._shares[change.share]
            held.lineages |= {each.lineage_id: each for each in change.lineages}
            if change.sequence is not None:
                held.sequence, held.noted_at = change.sequence, self._monotonic()
        self._forget(done)
        self._retry_at |= dict.fromkeys(failed, self._monotonic() + RETRY_S)
        telemetry.KEEPER_WINDOWS_STORED.inc(counts["new"])
        telemetry.KEEPER_WINDOWS_RECOMPUTED.inc(counts["touched"] + counts["stale"])
        telemetry.KEEPER_EVALUATION_FAILURES.inc(len(failed))

    def _given_up(self, work: _Work, lineage: Lineage, problem: str) -> Lineage:
        """With its problem, until it is tried again. What was to be computed again is noted, lest it hold up others."""
        touched = self._shares[work.share].touched.pop(work.lineage_id, set())
        if not touched:
            return replace(lineage, problem=problem)
        since_s, until_s = min(touched), max(touched) + 1
        if lineage.stale_s < lineage.stale_until_s:
            since_s, until_s = min(since_s, lineage.stale_s), max(until_s, lineage.stale_until_s)
        return replace(lineage, problem=problem, stale_s=since_s, stale_until_s=until_s)

    def _changes(
        self,
        rows: Mapping[int, list[StoredWindow]],
        lineages: Mapping[int, Lineage],
        done: Mapping[int, set[int]],
        end: int,
    ) -> Iterator[ShareChange]:
        for share, held in self._shares.items():
            left = any(starts - done.get(lineage_id, set()) for lineage_id, starts in held.touched.items())
            put = [lineages[each] for each in held.lineages if each in lineages]
            is_due = bool(rows[share] or put) or self._monotonic() - held.noted_at >= NOTED_S
            # Only when nothing is left to be computed again is all that came so far in the windows.
            sequence = end if held.live and not left and end > held.sequence and is_due else None
            if rows[share] or put or sequence is not None:
                yield ShareChange(share, end, sequence, put, windows=rows[share], epoch=held.epoch)

    def _forget(self, done: Mapping[int, set[int]]) -> None:
        for held in self._shares.values():
            for lineage_id, starts in done.items():
                if lineage_id in held.touched:
                    held.touched[lineage_id] -= starts
                    if not held.touched[lineage_id]:
                        del held.touched[lineage_id]

    def _drop(self) -> bool:
        """Deletes some windows of lineages that were given up; True if more are left."""
        for share, held in self._shares.items():
            for lineage in held.lineages.values():
                if lineage.dropped:
                    from_s = self._store.windows.drop(lineage, most=DROPPED_AT_ONCE)
                    change = ShareChange(share, held.seen, epoch=held.epoch)
                    if from_s is None:
                        self._store.windows.write([replace(change, gone=[lineage.lineage_id])])
                        del held.lineages[lineage.lineage_id]
                    else:
                        left = replace(lineage, from_s=from_s)
                        self._store.windows.write([replace(change, lineages=[left])])
                        held.lineages[lineage.lineage_id] = left
                    return True
        return False

    def _note_behind(self, complete_ms: int | None) -> None:
        due_s = [each.due_s for held in self._shares.values() for each in held.live if not each.problem]
        self.behind_s = 0 if complete_ms is None else max([0, *(complete_ms // 1000 - each for each in due_s)])
        telemetry.KEEPER_EVALUATION_BEHIND.set(self.behind_s)


def _first(plan: Plan, now_s: int) -> Lineage:
    """From the window on that was under way when the query was saved."""
    start_s = plan.at(min(now_s, plan.since_s))
    lineage_id = secrets.randbits(62) + 1
    return Lineage(lineage_id, plan.tenant, plan.name, plan.digest, plan.group_s, start_s, start_s, plan.end(start_s))


def _moved_on(lineage: Lineage, plan: Plan, work: _Work) -> Lineage:
    following = plan.following(work.wanted.start_s)
    if work.kind == "stale":
        return replace(lineage, stale_s=following, problem="")
    return replace(
        lineage,
        next_s=following,
        due_s=plan.end(following),
        through_s=work.wanted.end_s,
        windows=lineage.windows + 1,
        problem="",
    )


def _starts(plan: Plan, lineage: Lineage, buckets: Collection[int]) -> set[int]:
    """Of the stored windows in which these buckets lie."""
    return {
        start_s
        for bucket_s in buckets
        if lineage.from_s <= bucket_s < lineage.through_s
        for start_s in plan.covering(bucket_s, lineage.from_s, lineage.next_s)
    }
