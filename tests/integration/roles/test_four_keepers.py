"""Story 9 with real processes: four keepers share the saved queries, one is killed and one sleeps past its leases."""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lab.cassandra import Cassandra
from stage import DEADLINE_S, Stage
from tallymark import log
from tallymark.evaluation import content, definition
from tallymark.events.moments import rfc3339_s
from tallymark.log.protocol import Outgoing
from tallymark.meters.model import Meter
from tallymark.store import open_store
from tallymark.store.cassandra.book import POINTS, Book
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.windows import SHARES, Lineage, share_of
from tallymark.testing import until

KEEPERS = ("k1", "k2", "k3", "k4")
READERS = ("q1", "q2")
SERVERS = [f"s{number}" for number in range(20)]
LOADS = Meter("loads", ("load",), by=("server",), compute=("count", "sum", "max"), grain_s=1)
BY_SERVER = "FROM * SELECT loads WINDOW 1s COMPUTE count, sum WHERE server IN ('{one}', '{other}') BY server"
QUERIES = {
    **{
        f"by_server_{number}": BY_SERVER.format(one=one, other=SERVERS[number - 1])
        for number, one in enumerate(SERVERS)
    },
    **{f"tens_{one}": f"FROM {one} SELECT loads WINDOW 10s COMPUTE count, max" for one in SERVERS[:10]},
    **{f"hops_{one}": f"FROM {one} SELECT loads WINDOW 10s EVERY 1s COMPUTE sum" for one in SERVERS[10:]},
}
# So many batches a second, about.
EVERY_S = 0.3

Lines = dict[tuple[str, ...], tuple[float, ...]]
"""values of labels -> values of functions"""


class Load:
    """Events that come now, and some that come late, counted as the pipeline would; and a plain model of them."""

    def __init__(self, stage: Stage, store: CassandraStore) -> None:
        self._stage, self._store = stage, store
        self._log = log.open_writer(stage.settings, "events")
        self._identity = log.open_reader(stage.settings, "events").identity
        self._meter = store.registry.put_meter("main", LOADS, now_ms=1)
        self._next = 0.0
        self.counted: dict[str, dict[int, list[float]]] = {server: {} for server in SERVERS}
        """server -> second -> values"""
        self.through_s = 0

    def go_on(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        now_s, number = int(time.time()), self._stage.applied
        events = [(server, now_s, number + place + 1.0) for place, server in enumerate(SERVERS)]
        events += [(SERVERS[(number + late_s) % len(SERVERS)], now_s - late_s, 0.5) for late_s in (2, 5, 9, 25)]
        self._log.append([Outgoing(0, b"frame", len(events))])
        rows = [(server, at_s, 1, 1, value, None, None, value, value) for server, at_s, value in events]
        self._stage.apply(self._store, self._meter, rows, log=self._identity)
        for server, at_s, value in events:
            self.counted[server].setdefault(at_s, []).append(value)
        self.through_s = now_s + 1

    def expected(self, text: str, start_s: int) -> Lines:
        query = definition.parse(text)
        servers = query.sources or query.where["server"]
        values: dict[tuple[str, ...], list[float]] = {}
        for server in servers:
            for at_s in range(start_s, start_s + (query.window_s or 0)):
                labels = (server,) if query.by else ()
                values.setdefault(labels, []).extend(self.counted[server].get(at_s, ()))
        functions = {"count": len, "sum": sum, "max": max}
        return {
            labels: tuple(functions[name](own) for name in query.compute or ()) for labels, own in values.items() if own
        }

    def close(self) -> None:
        self._log.close()


class Story:
    """What is saved, who holds which share, and what is stored."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        store = open_store(stage.settings)
        assert isinstance(store, CassandraStore)
        self.store, self.load = store, Load(stage, store)
        self.queries: dict[str, str] = {}

    def save(self, queries: Mapping[str, str]) -> None:
        for name, text in queries.items():
            status, told = self.stage.ask("q1", f"/v1/queries/{name}", put={"q": text})
            assert status == 201, told
        self.queries |= queries

    def holders(self) -> dict[int, str]:
        """Share -> the instance that has its lease."""
        heads = {share: self.store.windows.book(share).head(settled=True) for share in range(SHARES)}
        return {share: _instance(head.holder) for share, head in heads.items()}

    def leader(self) -> str:
        """The instance that folds."""
        return _instance(Book(self.store._link, self.store.address.name, POINTS).head(settled=True).holder)

    def until(self, condition: Any, what: str) -> Any:
        """While load goes on."""

        def holds() -> Any:
            self.load.go_on()
            return condition()

        return until(holds, what, deadline_s=DEADLINE_S)

    def stored_through(self, moment_s: int) -> bool:
        """Whether each query has stored all windows that were over by then."""
        lineages = self.store.windows.lineages()
        twice = [name for name, times in Counter(each.name for each in lineages).items() if times > 1]
        assert not twice, f"two keepers have begun with {twice}"
        return len(lineages) == len(self.queries) and all(each.due_s > moment_s for each in lineages)

    def differences(self, through_s: int) -> list[str]:
        """Between what is stored and the model, of all windows that were over by then."""
        lineages = self.store.windows.lineages()
        assert sorted(each.name for each in lineages) == sorted(self.queries)
        return [found for each in lineages for found in self._differences(each, through_s)]

    def _differences(self, lineage: Lineage, through_s: int) -> Iterator[str]:
        text = self.queries[lineage.name]
        query = definition.parse(text)
        windows = self.store.windows.read(lineage, 0, lineage.next_s)
        every_s = query.every_s or query.window_s
        assert every_s is not None
        # Each once, and no gap.
        starts = [start_s for start_s, _ in windows]
        if starts != list(range(lineage.from_s, lineage.next_s, every_s)) or len(starts) != lineage.windows:
            yield f"{lineage.name}: {lineage} has {starts}"
        for start_s, body in windows:
            if start_s + (query.window_s or 0) <= through_s:
                found, expected = _lines(body), self.load.expected(text, start_s)
                if found != expected:
                    yield f"{lineage.name} {start_s}: {found}, not {expected}"

    def close(self) -> None:
        self.load.close()
        self.store.close()


def _instance(holder: str) -> str:
    return holder.partition(" ")[0].removeprefix("keeper/")


def _lines(body: bytes) -> Lines:
    kept = content.decode(body)
    numbers = [tuple(each) for each in zip(*kept.values, strict=True)]
    labels = [tuple(each) for each in zip(*kept.labels, strict=True)] if kept.labels else [()] * len(numbers)
    return dict(zip(labels, numbers, strict=True))  # type: ignore[arg-type]


@pytest.fixture
def story(tmp_path: Path, cassandra: Cassandra) -> Iterator[Story]:
    stage = Stage(tmp_path, cassandra.port, lease_s=3)
    made = Story(stage)
    yield made
    stage.close()
    made.close()


def test_every_window_once_although_one_of_four_keepers_is_killed_and_one_sleeps(story: Story) -> None:
    stage = story.stage
    roles = [*(("query", each) for each in READERS), *(("keeper", each) for each in KEEPERS)]
    for role, instance in roles:
        stage.begin(role, instance)
    for role, instance in roles:
        stage.ready(role, instance)
    story.save(QUERIES)
    first_s = int(time.time())
    evenly = dict.fromkeys(KEEPERS, SHARES // len(KEEPERS))
    story.until(lambda: Counter(story.holders().values()) == evenly, "each keeper has its part")
    story.until(lambda: story.stored_through(first_s + 2), "windows of every query are stored")

    # The keeper that also folds is killed, another one sleeps: the other two have all shares when both are silent.
    before = story.holders()
    killed = story.leader()
    asleep, *awake = sorted(set(KEEPERS) - {killed})
    stage.processes[killed].kill()
    stage.processes[asleep].send_signal(signal.SIGSTOP)
    at_s = int(time.time())
    story.until(lambda: set(story.holders().values()) == set(awake), "their shares are taken over")
    story.until(lambda: story.stored_through(at_s + 5), "windows go on where they stood still")

    # It wakes and finds new queries in what it takes for its shares; others have begun with them meanwhile.
    lost = {share for share, holder in before.items() if holder == asleep}
    names = (f"new_{number}" for number in range(1_000))
    story.save({next(each for each in names if share_of("main", each) == share): QUERIES["tens_s0"] for share in lost})
    story.until(lambda: story.stored_through(at_s + 5), "the new ones have begun")
    stage.processes[asleep].send_signal(signal.SIGCONT)
    story.until(lambda: "another keeper has taken over share" in stage.said(asleep), "it knows that it has lost them")
    story.until(lambda: set(story.holders().values()) == {asleep, *awake}, "it has its part of all shares again")
    again_s = int(time.time())
    story.until(lambda: story.stored_through(again_s + 2), "windows of every query are stored")

    through_s = story.load.through_s
    until(lambda: story.stored_through(through_s), "all windows are stored", deadline_s=DEADLINE_S)
    left: list[str] = []

    def right() -> bool:
        left[:] = story.differences(through_s)
        return not left

    try:
        until(right, "late events are in the windows, too", deadline_s=30)
    except AssertionError as error:
        raise AssertionError(f"{error}: {len(left)} differences, {left[:5]}") from None
    assert all(each.from_s <= first_s for each in story.store.windows.lineages() if each.name in QUERIES)

    for reader in READERS:
        for lineage in story.store.windows.lineages():
            _check_answer(story, reader, lineage, through_s)


def _check_answer(story: Story, reader: str, lineage: Lineage, through_s: int) -> None:
    """All of its windows, and nothing that had to be computed for it."""
    text = story.queries[lineage.name]
    query = definition.parse(text)
    assert query.window_s is not None
    every_s = query.every_s or query.window_s
    to_s = through_s // every_s * every_s
    path = f"/v1/queries/{lineage.name}/series?from={lineage.from_s}000&to={to_s}000"
    status, answer = story.stage.ask(reader, path)
    assert status == 200, answer
    assert answer["stored_through"] >= rfc3339_s(to_s)
    starts = range(lineage.from_s, to_s - query.window_s + 1, every_s)
    found: dict[int, Lines] = {start_s: {} for start_s in starts}
    for line in answer["series"]:
        for point in line["points"]:
            values = tuple(point[function] for function in query.compute or ())
            if any(values):
                found[_second(point["time"])][tuple(line["labels"].values())] = values
    assert found == {start_s: story.load.expected(text, start_s) for start_s in starts}, lineage.name


def _second(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())
