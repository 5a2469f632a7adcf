"""Stored windows: each of every query once, with the numbers of all that was applied, whatever dies in between."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tallymark.evaluation import content, definition
from tallymark.evaluation.definition import Definition
from tallymark.evaluation.evaluator import Evaluator
from tallymark.evaluation.plan import NoPlan
from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import LeaseLost, Store
from tallymark.store.read_plan import Question
from tallymark.store.reference import Reference
from tallymark.store.windows import SHARES, Lineage, ShareChange, StoredWindow, share_of

NOON = 20_000 * DAY_S + 12 * HOUR_S
VIEWS = Meter("views", ("view",), by=("video", "country"), compute=("count", "sum", "min", "max"))
QUERIES = {
    "all": "FROM * SELECT views WINDOW 1m",
    "by_video": "FROM * SELECT views WINDOW 1m COMPUTE count, sum BY video",
    "korea": "FROM * SELECT views WINDOW 1m COMPUTE count WHERE country = 'KR'",
    "hopping": "FROM A, B SELECT views WINDOW 3m EVERY 1m COMPUTE count, max BY country",
    "hours": "FROM * SELECT views WINDOW 2m COMPUTE sum",
}
ALL_SHARES = dict.fromkeys(range(SHARES), 1)


class NothingWaits:
    """A log all of whose records are applied."""

    identity, is_away, slack_ms = "log", False, 0

    def positions(self) -> dict[int, Any]:
        return {}

    def append_ms(self, partition: int, offset: int) -> None:
        return None

    def events_in(self, partition: int, start: int, end: int) -> None:
        return None


class Bench:
    """A store with a meter and saved queries, and the clock of whoever evaluates them."""

    def __init__(self, store: Store, *, queries: dict[str, str] = QUERIES) -> None:
        self.store, self.now_s = store, NOON
        self.views = store.registry.put_meter("main", VIEWS, now_ms=1)
        for name, text in queries.items():
            self.save(name, text)
        self.evaluator = self.new_evaluator()

    def save(self, name: str, text: str) -> None:
        body = definition.encode(Definition(str(definition.parse(text))))
        self.store.documents.put("query", "main", name, body, now_ms=self.now_s * 1000)

    def new_evaluator(self, store: Store | None = None, **options: Any) -> Evaluator:
        return Evaluator(
            store or self.store,
            NothingWaits(),
            accept_past_s=7 * DAY_S,
            clock_ms=lambda: self.now_s * 1000,
            monotonic=lambda: float(self.now_s),
            **{"rest_s": 0.0, **options},
        )

    def evaluate(self, at_s: int, evaluator: Evaluator | None = None) -> None:
        self.now_s = at_s
        while (evaluator or self.evaluator).round(ALL_SHARES):
            pass

    def count(self, start: int, *rows: tuple[str, int, float]) -> StretchResult:
        """(series, bucket, value): a batch."""
        result = stretch(self.views.meter_id, start, rows)
        self.store.sink.apply([result], now_ms=self.now_s * 1000)
        return result


def stretch(set_id: int, start: int, rows: Sequence[tuple[str, int, float]]) -> StretchResult:
    cells = [(set_id, series, bucket_s, 1, 1, value, None, None, value, value) for series, bucket_s, value in rows]
    return StretchResult(
        Stretch(0, start, start + len(rows)),
        "log",
        meters_revision=1,
        meter_ids=(set_id,),
        deltas=deltas.encode(deltas.merge([deltas.from_rows(cells)])),
        ledger=Ledger(accepted=len(rows), counted=len(rows)),
    )


def lineage(store: Store, name: str) -> Lineage:
    (found,) = [
        each for each in store.windows.lineages(share_of("main", name)) if not each.dropped and each.name == name
    ]
    return found


def stored(store: Store, name: str) -> dict[int, list[Any]]:
    """Start -> [labels, values] of each series."""
    own = lineage(store, name)
    found = store.windows.read(own, 0, own.next_s)
    assert len(found) == len({start for start, _ in found}) == own.windows
    assert [start for start, _ in found] == list(range(own.from_s, own.next_s, 60 if name != "hours" else 120))
    return {start: _lines(body) for start, body in found}


def _lines(body: bytes) -> list[Any]:
    kept = content.decode(body)
    numbers = list(zip(*kept.values, strict=True))
    labels = list(zip(*kept.labels, strict=True)) if kept.labels else [()] * len(numbers)
    return sorted(zip(labels, numbers, strict=True))


def expected(bench: Bench, batches: Sequence[StretchResult], name: str, start_s: int) -> list[Any]:
    """In plain Python."""
    reference = Reference()
    for batch in batches:
        reference.apply([batch])
    query = definition.parse(QUERIES[name])
    where = {**query.where, **({"video": query.sources} if query.sources else {})}
    end_s = start_s + (query.window_s or 0)
    found = reference.read(Question(bench.views, where=where, by=query.by, start_s=start_s, end_s=end_s))
    functions = query.compute or VIEWS.compute
    columns = {"count": 0, "sum": 2, "min": 5, "max": 6}
    return sorted(
        (labels, tuple(cell[columns[name]] for name in functions)) for labels, cell in found.items() if cell[0]
    )


def check_all(bench: Bench, store: Store, batches: Sequence[StretchResult], *, through_s: int) -> None:
    for name in QUERIES:
        found = stored(store, name)
        assert lineage(store, name).through_s <= through_s < lineage(store, name).due_s
        for start_s, lines in found.items():
            assert lines == expected(bench, batches, name, start_s), (name, start_s - NOON)


def some_batches(bench: Bench, seed: int, count: int) -> list[StretchResult]:
    """Batches of five minutes after noon, some of whose events come late."""
    chance, offset, made = random.Random(seed), 0, []
    for number in range(count):
        rows = [
            (
                f"{chance.choice('ABC')}\0{chance.choice(['KR', 'US'])}",
                NOON + 60 * max(0, min(4, number * 5 // count - chance.choice([0, 0, 0, 1, 3]))),
                float(chance.randrange(100)),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        made.append(stretch(bench.views.meter_id, offset, rows))
        offset += len(rows)
    return made


def test_each_window_is_stored_once_it_is_complete_and_again_when_something_came_late(store: Store) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    batches = some_batches(bench, 1, 15)
    for number, batch in enumerate(batches):
        store.sink.apply([batch], now_ms=0)
        bench.evaluate(NOON + 20 * (number + 1))
        if number % 4 == 3:
            store.upkeep.fold(most_points=1000)
    bench.evaluate(NOON + 305)
    check_all(bench, store, batches, through_s=NOON + 300)


def test_what_is_not_complete_is_not_stored(store: Store) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 59)
    bench.count(0, ("A\0KR", NOON, 1.0))
    bench.evaluate(NOON + 59)
    assert stored(store, "all") == {}
    bench.evaluate(NOON + 60)
    assert stored(store, "all") == {NOON: [((), (1, 1.0, 1.0, 1.0))]}
    assert stored(store, "by_video") == {NOON: [(("A",), (1, 1.0))]}
    assert stored(store, "hours") == {}


def test_only_windows_that_were_added_to_are_computed_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    bench.count(0, ("A\0KR", NOON, 1.0))
    bench.evaluate(NOON + 600)
    written: list[tuple[str, int]] = []
    write = store.windows.write

    def noting(changes: Sequence[ShareChange]) -> None:
        written.extend((each.lineage.name, each.start_s) for change in changes for each in change.windows)
        write(changes)

    monkeypatch.setattr(store.windows, "write", noting)
    bench.count(1, ("B\0US", NOON + 120, 2.0))
    bench.evaluate(NOON + 601)
    assert sorted(written) == [
        ("all", NOON + 120),
        ("by_video", NOON + 120),
        *(("hopping", NOON + start) for start in (0, 60, 120)),
        ("hours", NOON + 120),
        ("korea", NOON + 120),
    ]


def test_another_text_or_version_begins_anew_and_the_former_windows_are_deleted(store: Store) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    bench.count(0, ("A\0KR", NOON, 1.0))
    bench.evaluate(NOON + 130)
    former = lineage(store, "korea")
    bench.save("korea", "FROM * SELECT views WINDOW 1m COMPUTE sum WHERE country = 'KR'")
    bench.evaluate(NOON + 190)
    assert sorted(stored(store, "korea")) == [NOON + 120]
    assert store.windows.read(former, 0, former.next_s) == []
    assert sorted(stored(store, "all")) == [NOON, NOON + 60, NOON + 120]
    store.registry.put_meter(
        "main", Meter("views", ("view", "play"), by=("video", "country")), now_ms=bench.now_s * 1000
    )
    bench.evaluate(NOON + 250)
    assert sorted(stored(store, "all")) == [NOON + 180]
    assert [each for each in store.windows.lineages() if each.dropped] == []


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "between two rounds"])
def test_a_function_that_was_given_up_for_a_while_begins_anew(store: Store, noticed: bool) -> None:
    bench = Bench(store, queries={"sums": "FROM * SELECT views WINDOW 1m COMPUTE sum"})
    bench.evaluate(NOON + 1)
    bench.count(0, ("A\0KR", NOON, 1.0))
    bench.evaluate(NOON + 130)
    former = lineage(store, "sums")
    assert stored(store, "sums")[NOON] == [((), (1.0,))]
    without = Meter("views", ("view",), by=("video", "country"), compute=("count",))
    store.registry.put_meter("main", without, now_ms=bench.now_s * 1000)
    if noticed:
        bench.evaluate(NOON + 140)
    bench.count(1, ("A\0KR", NOON, 5.0))
    if noticed:
        bench.evaluate(NOON + 150)
    bench.views = store.registry.put_meter("main", VIEWS, now_ms=(NOON + 160) * 1000)
    bench.evaluate(NOON + 200)
    # What was counted before lacks it, as it does when asked for: those windows are no longer stored.
    assert lineage(store, "sums").lineage_id != former.lineage_id
    assert sorted(stored(store, "sums")) == [NOON + 120]
    assert store.windows.read(former, 0, former.next_s) == []


def test_what_came_late_while_a_query_could_not_be_evaluated_is_in_its_windows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(store, queries={"all": QUERIES["all"]})
    bench.evaluate(NOON + 1)
    bench.count(0, ("A\0KR", NOON, 1.0))
    bench.evaluate(NOON + 130)
    current = bench.evaluator._definitions.current
    gone = {("main", "all"): NoPlan("it is gone")}
    monkeypatch.setattr(bench.evaluator._definitions, "current", lambda: gone)
    bench.evaluate(NOON + 135)
    bench.count(1, ("A\0KR", NOON, 5.0))
    bench.evaluate(NOON + 150)
    monkeypatch.setattr(bench.evaluator._definitions, "current", current)
    bench.evaluate(NOON + 170)
    assert stored(store, "all")[NOON] == [((), (2, 6.0, 1.0, 5.0))]


def test_the_windows_of_a_deleted_query_are_deleted_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallymark.evaluation.evaluator.DROPPED_AT_ONCE", 100)
    bench = Bench(store, queries={"all": QUERIES["all"], "korea": QUERIES["korea"]})
    bench.evaluate(NOON + 1)
    bench.evaluate(NOON + 300 * 60)
    gone = lineage(store, "korea")
    assert gone.windows == 300
    assert len(store.windows.read(gone, 0, gone.next_s)) == 300
    store.documents.delete("query", "main", "korea")
    bench.evaluator.round(ALL_SHARES)
    assert 0 < len(store.windows.read(gone, 0, gone.next_s)) < 300
    bench.evaluate(bench.now_s)
    assert store.windows.read(gone, 0, gone.next_s) == []
    assert [each.name for each in store.windows.lineages()] == ["all"]
    assert len(stored(store, "all")) == 300


def test_whoever_takes_over_finds_what_came_late_meanwhile(store: Store, stores: Any) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0))]
    bench.evaluate(NOON + 300)
    batches += [bench.count(1, ("A\0KR", NOON + 60, 4.0)), bench.count(2, ("B\0KR", NOON, 2.0))]
    store.upkeep.fold(most_points=1000)
    # What nobody has looked at stays in the journal.
    pruned = store.upkeep.prune(now_ms=10**15, journal_keep_ms=0, letter_bytes=0, keep_after=store.windows.evaluated())
    assert pruned.journal == 1
    other = stores.open()
    bench.evaluate(NOON + 300, bench.new_evaluator(other))
    check_all(bench, other, batches, through_s=NOON + 300)


def test_what_still_waits_to_be_computed_again_is_not_taken_for_done(store: Store) -> None:
    bench = Bench(store)
    resting = bench.new_evaluator(rest_s=10_000.0)
    bench.evaluate(NOON + 1, resting)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0))]
    bench.evaluate(NOON + 61, resting)
    batches.append(bench.count(1, ("A\0KR", NOON, 2.0)))
    bench.evaluate(NOON + 130, resting)
    assert stored(store, "korea") == {NOON: [((), (1,))], NOON + 60: []}
    # It dies; the next one knows what has not been looked at.
    bench.evaluate(NOON + 130, bench.new_evaluator())
    check_all(bench, store, batches, through_s=NOON + 120)


def test_where_the_journal_does_not_reach_back_all_that_may_have_changed_is_computed_again(store: Store) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0))]
    bench.evaluate(NOON + 300)
    batches += [bench.count(1, ("A\0KR", NOON + 60, 4.0)), bench.count(2, ("B\0KR", NOON, 2.0))]
    store.upkeep.fold(most_points=1000)
    store.upkeep.prune(now_ms=10**15, journal_keep_ms=0, letter_bytes=0)
    bench.evaluate(NOON + 300, bench.new_evaluator(most_windows=3))
    check_all(bench, store, batches, through_s=NOON + 300)
    assert all(each.stale_s >= each.stale_until_s for each in store.windows.lineages())


def test_a_keeper_that_was_away_for_long_catches_up_round_by_round(store: Store) -> None:
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0), ("B\0US", NOON + 3600, 1.0))]
    bench.evaluate(NOON + 2 * 3600, bench.new_evaluator(most_windows=50))
    check_all(bench, store, batches, through_s=NOON + 2 * 3600)
    assert lineage(store, "all").windows == 120


def test_a_window_that_is_too_large_is_not_stored_and_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallymark.evaluation.compute.MOST_SERIES", 2)
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    bench.count(0, ("A\0KR", NOON, 1.0), ("B\0KR", NOON, 1.0), ("C\0KR", NOON, 1.0))
    bench.evaluate(NOON + 60)
    assert "a window has 3 series, and at most 2 are stored" in lineage(store, "by_video").problem
    assert stored(store, "by_video") == {}
    assert len(stored(store, "all")) == 1
    monkeypatch.undo()
    bench.evaluate(NOON + 130)
    assert len(stored(store, "by_video")) == 2
    assert lineage(store, "by_video").problem == ""


def test_a_limit_keeps_the_largest_of_each_window(store: Store) -> None:
    bench = Bench(store, queries={"all": "FROM * SELECT views WINDOW 1m COMPUTE count BY video LIMIT 1"})
    bench.evaluate(NOON + 1)
    bench.count(0, *[("A\0KR", NOON, 1.0)] * 2, ("B\0KR", NOON, 1.0), ("B\0KR", NOON + 60, 1.0))
    bench.evaluate(NOON + 120)
    assert stored(store, "all") == {NOON: [(("A",), (2,))], NOON + 60: [(("B",), (1,))]}


# What dies in between


def prepared(store: Store) -> None:
    """Two minutes are stored; late events and a third minute wait."""
    bench = Bench(store)
    bench.evaluate(NOON + 1)
    for batch in _first(bench):
        store.sink.apply([batch], now_ms=0)
    bench.evaluate(NOON + 125)
    for batch in _then(bench):
        store.sink.apply([batch], now_ms=0)
    # Redefined at the same time: with windows to begin and others to delete.
    bench.save("korea", "FROM * SELECT views WINDOW 1m COMPUTE count WHERE country IN ('KR', 'US')")


def _first(bench: Bench) -> list[StretchResult]:
    return [stretch(bench.views.meter_id, 0, [("A\0KR", NOON, 1.0), ("B\0US", NOON + 60, 2.0)])]


def _then(bench: Bench) -> list[StretchResult]:
    late = [("A\0KR", NOON + 60, 5.0), ("C\0KR", NOON, 3.0), ("A\0KR", NOON + 120, 4.0)]
    return [stretch(bench.views.meter_id, 2, late)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_statement_leaves_every_window_once(stores: Any, died: Any, fuse: Any, after: bool) -> None:
    most = 400 if stores.kind != "cassandra" else 6
    step = 1 if stores.kind != "cassandra" else 5
    for number in range(1, most, step):
        name = f"crash-{after}-{number}"
        stores.make(name, prepared)
        bench = Bench.__new__(Bench)
        store = stores.open(name, fuse=fuse)
        bench.store, bench.now_s = store, NOON + 185
        bench.views = store.registry.meter("main", "views")
        fuse.light(number, after=after)
        try:
            bench.evaluate(NOON + 185, bench.new_evaluator())
            is_over = not fuse.blown
        except died:
            is_over = False
        fuse.quench()
        store.close()
        again = stores.open(name)
        bench.evaluate(NOON + 190, bench.new_evaluator(again))
        batches = [*_first(bench), *_then(bench)]
        for query in QUERIES:
            found = stored(again, query)
            if query != "korea":
                assert sorted(found)[0] == NOON
                for start_s, lines in found.items():
                    assert lines == expected(bench, batches, query, start_s), (number, query, start_s - NOON)
        assert sorted(stored(again, "korea")) == [NOON + 120], number
        assert [each for each in again.windows.lineages() if each.dropped] == []
        if is_over:
            return
    assert stores.kind == "cassandra", f"more than {most} statements"


# Of several at once


def test_a_share_that_another_has_taken_over_cannot_be_written(stores: Any) -> None:
    store = stores.open()
    if stores.kind == "sqlite":
        assert store.lease("share/3", "a", lease_s=0.0).take()  # one process has the file
        return
    bench = Bench(store)
    lease = {share: store.lease(f"share/{share}", "a", lease_s=0.0) for share in range(SHARES)}
    assert all(each.take() for each in lease.values())
    bench.evaluate(NOON + 1)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0))]
    other = stores.open()
    taken = [other.lease(f"share/{share}", "b", lease_s=0.0) for share in range(SHARES)]
    assert all(each.take() for each in taken)
    bench.evaluate(NOON + 61, bench.new_evaluator(other))
    with pytest.raises(LeaseLost):
        bench.evaluate(NOON + 130)
    batches.append(bench.count(1, ("A\0KR", NOON, 7.0)))
    bench.evaluate(NOON + 130, bench.new_evaluator(other))
    check_all(bench, other, batches, through_s=NOON + 120)


def test_what_was_decided_before_another_had_the_share_is_refused_also_when_it_is_taken_back(stores: Any) -> None:
    if stores.kind == "sqlite":
        return  # one process has the file
    store, other = stores.open(), stores.open()
    bench = Bench(store)

    def take(of: Store, name: str) -> list[Any]:
        leases = [of.lease(f"share/{share}", name, lease_s=0.0) for share in range(SHARES)]
        assert all(each.take() for each in leases)
        return leases

    take(store, "a")
    bench.evaluate(NOON + 1)
    batches = [bench.count(0, ("A\0KR", NOON, 1.0))]
    taken = take(other, "b")
    bench.save("new", QUERIES["all"])
    bench.evaluate(NOON + 61, bench.new_evaluator(other))
    for each in taken:
        each.release()
    take(store, "a")
    # A round that began before, and does not know that another one was there in between.
    with pytest.raises(LeaseLost):
        bench.evaluator.round(ALL_SHARES)
    assert lineage(store, "new").windows == 1
    bench.evaluate(NOON + 130)
    assert lineage(store, "new").windows == 2
    check_all(bench, store, batches, through_s=NOON + 120)


def test_an_older_value_never_replaces_a_later_one(stores: Any) -> None:
    store = stores.open()
    own = Lineage(7, "main", "all", "digest", 7680, NOON, NOON + 60, NOON + 120, NOON + 60, 1)
    share = own.share

    def write(at: int, body: bytes) -> None:
        store.windows.write([ShareChange(share, at, at, [own], windows=[StoredWindow(own, NOON, body)])])

    write(5, b"later")
    if stores.kind != "sqlite":  # where a file lock keeps zombies out
        write(3, b"older")
    assert store.windows.read(own, 0, NOON + 60) == [(NOON, b"later")]
    write(6, b"last")
    assert store.windows.read(own, 0, NOON + 60) == [(NOON, b"last")]
    assert store.windows.evaluated() == 6
    assert store.windows.share(share).sequence == 6
