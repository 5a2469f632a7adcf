"""Random meters, events and questions, through counting, store and query: equal to plain Python, on every store.

Events come late, twice, and with odd values. Between two batches the keeper folds and rolls, in slices that are left
off anywhere, or dies and another one goes on. What the answers should be is in `asking_model`.
"""

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from asking_model import Asked, Model, is_close
from stores.conftest import Died, Fuse, Stores
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate
from tallymark.fidelity.log_view import StreamView
from tallymark.fidelity.rates import Rates
from tallymark.log.protocol import Outgoing
from tallymark.meters import from_mapping
from tallymark.meters.model import Meter
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.count import count
from tallymark.pipeline.counting.history import LogHistory
from tallymark.query import api
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.parameters import read_pairs
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.settings import Settings
from tallymark.store import deltas
from tallymark.store.model import Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.tables import Tables
from tallymark.testing import MemoryLog

DAY_S, HOUR_S = 86_400, 3_600
NOON_S = 20_400 * DAY_S + DAY_S // 2
SERVERS, METRICS = ("web-1", "web-2", "db", "", "ü"), ("cpu", "rss")
ODD = (0, -0.0, 1e-300, -1e-310, 5e-324, 1e279, -1e281, 2.0**-1022, 1.0, -1.0, 1024.0, 0.1)
CLOCKS = Clocks(accept_past_ms=30 * DAY_S * 1000, accept_future_ms=300_000, tolerance_ms=5_000)

MENU: list[dict[str, Any]] = [
    {"name": "calls", "event": "rpc", "by": ["server"], "compute": ["count", "sum", "min", "max", "avg", "last"]},
    {"name": "latency", "event": "rpc", "by": ["server"], "value": "ms", "compute": ["count", "p50", "p99"]},
    {"name": "fine", "event": "rpc", "by": ["server"], "grain": "1s", "compute": ["count", "max", "p95"]},
    {"name": "tens", "event": ["rpc", "view"], "by": ["event"], "grain": "10s", "compute": ["count", "sum", "rate"]},
    {"name": "money", "event": "sale", "by": ["server"], "decimals": 2, "compute": ["count", "sum", "avg"]},
    {"name": "visitors", "event": "view", "by": ["server"], "distinct": "user"},
    {"name": "trend", "event": ["view", "sale"], "weights": {"view": 1, "sale": 2.5}, "by": ["user"]},
    {
        "name": "aside",
        "event": "rpc",
        "by": ["server"],
        "late": {"after": "1h", "then": "aside"},
        "compute": ["count", "sum"],
    },
    {"name": "dropped", "event": "rpc", "by": ["server"], "late": {"after": "10m", "then": "drop"}},
    {"name": "kept", "event": "rpc", "late": {"after": "10m", "then": "count"}},
    {"name": "few", "event": "view", "by": ["user", "server"], "max_series": 4},
    {"name": "fewest", "event": "rpc", "by": ["server"], "max_series": 2, "grain": "10s", "compute": ["count", "p90"]},
    {
        "name": "some",
        "event": "rpc",
        "where": "ms > 10",
        "by": ["server"],
        "distinct": "user",
        "compute": ["count", "p75"],
    },
    {"name": "many", "event": "metrics", "by": ["server"], "each": "values", "compute": ["min", "max", "avg", "p95"]},
]


class WholePath:
    """The whole path but for HTTP: events go in, answers come out, and a keeper can be killed in between."""

    def __init__(self, stores: Stores, folder: Path, meters: list[Meter], dice: random.Random) -> None:
        self.dice = dice
        self.fuse = Fuse()
        self.stores = stores
        self.now_s = NOON_S
        self.store: Store = stores.open()
        # So that nearly every question by labels has a block made, at once and by the time of the test.
        hot = self.store.snapshots.hot  # type: ignore[attr-defined]
        hot.run, hot.clock = lambda work: work(), lambda: self.now_s
        hot.many_series, hot.span_s = 0, 12 * HOUR_S
        self.registered = [self.store.registry.put_meter("main", meter, now_ms=0) for meter in meters]
        self.log = MemoryLog(1, clock=lambda: self.now_s * 1000)
        self.folder = folder
        self.applied = 0
        self.model = Model(meters)
        sources = Sources(
            self.store,
            StreamView(lambda: self.log),
            StreamView(lambda: MemoryLog(1)),
            Settings(data=str(folder)),
            clock_ms=lambda: self.now_s * 1000,
            cache=AnswerCache(ttl_s=0),
            last_known=LastKnown(most_bytes=0),
            tables=Tables(self.store.documents, self.store.table_parts),
        )
        self.routes = api.routes(sources, Rates(sources))

    def send(self, events: list[dict[str, Any]]) -> None:
        """One batch: a record, counted and applied."""
        body = json.dumps([{key: each[key] for key in each if key != "received"} for each in events]).encode()
        accepted = validate(Delivery(body, self.now_s * 1000), CLOCKS, max_events=100_000)
        assert not accepted.refusals, accepted.refusals
        ((number, content),) = frame.frames(columns.batch([accepted]))
        self.log.append([Outgoing(0, content, number)])
        start, end = self.applied, self.applied + 1
        history = LogHistory(self.log, 0)
        with Claims(self.folder, 0, start=start, end=end, horizon_ms=10**9, history=history) as claims:
            counted = count(self.log.read(0, start, end), claims=claims, meters=self.registered)
        result = StretchResult(
            Stretch(0, start, end),
            self.log.identity,
            1,
            tuple(each.meter_id for each in self.registered),
            deltas.encode(counted.deltas),
            counted.ledger,
        )
        self.store.sink.apply([result], now_ms=self.now_s * 1000)
        self.applied = end
        self.model.now_s = self.now_s
        self.model.apply(events)

    def keep(self) -> None:
        """Some of a keeper's work, in small slices; it may die at any statement, and then another goes on."""
        keeper = self.stores.open(fuse=self.fuse)
        if self.dice.random() < 0.5:
            self.fuse.light(self.dice.randint(1, 60), after=self.dice.random() < 0.5)
        try:
            for _ in range(self.dice.randint(1, 6)):
                what = self.dice.random()
                if what < 0.55:
                    keeper.upkeep.fold(most_points=self.dice.choice((1, 5, 1000)))
                elif what < 0.65:
                    keeper.upkeep.prune(now_ms=self.now_s * 1000 + 1, journal_keep_ms=0, letter_bytes=0)
                else:
                    slice_series = self.dice.choice((1, 3, 1000))
                    keeper.upkeep.roll(now_ms=self.now_s * 1000, delay_s=0, slice_series=slice_series)
        except Died:
            pass
        finally:
            self.fuse.quench()
            keeper.close()

    def ask(self, target: str) -> Any:
        parts = urlsplit(target)
        route, arguments = self.routes.find("GET", parts.path)
        assert route.answer is not None
        named = dict(zip(route.names, arguments, strict=True))
        answer = route.answer(Request("GET", parts.path, read_pairs(parts.query), b"", named))
        return json.loads(answer.body, parse_float=Decimal)  # type: ignore[union-attr]


def events(dice: random.Random, now_s: int, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for _ in range(dice.randint(1, 60)):
        if known and dice.random() < 0.1:
            yield dice.choice(known)
            continue
        age_s = dice.choice((0, dice.uniform(0, 60), dice.uniform(0, 3 * HOUR_S), dice.uniform(0, 3 * DAY_S)))
        name = dice.choice(("rpc", "rpc", "view", "sale", "metrics", "other"))
        props: dict[str, Any] = {"server": dice.choice(SERVERS), "user": f"u{dice.randint(0, 30)}"}
        if dice.random() < 0.1:
            props = {key: each for key, each in props.items() if dice.random() < 0.5}
        props["ms"] = dice.choice(
            (dice.lognormvariate(3, 2), dice.randint(-5, 50), "12.5", "fast", None, dice.choice(ODD))
        )
        event = {
            "event": name,
            "id": f"{len(known)}-{dice.random()}",
            "time": int((now_s - age_s) * 1000),
            "received": now_s * 1000,
            "props": {key: each for key, each in props.items() if each is not None},
        }
        if dice.random() < 0.8:
            event["value"] = dice.choice((round(dice.uniform(-100, 1000), 2), dice.choice(ODD), dice.randint(0, 9)))
        if name == "metrics":
            event["values"] = {each: dice.gauss(50, 20) for each in METRICS}
        known.append(event)
        yield event


def question(dice: random.Random, meter: Meter, now_s: int) -> Asked:
    kind = dice.choice(("total", "series", "top"))
    grain = meter.grain_s
    step = grain * dice.choice((1, 2, 5, 60)) if dice.random() < 0.7 else HOUR_S
    end = now_s - dice.choice((0, 0, HOUR_S, dice.randint(0, DAY_S)))
    start = end - dice.choice((step * 3, HOUR_S, 6 * HOUR_S, dice.randint(grain * 10, 7200)))
    if kind == "series":
        start = max(start, end - 100 * step)
    window = None
    if dice.random() < 0.4:
        window = (step if kind == "series" else grain) * dice.randint(1, 8)
        start = (
            min(start, end - window - step) if kind == "series" else max(end - 200 * grain, min(start, end - window))
        )
    functions = tuple(dice.sample(meter.compute, dice.randint(1, len(meter.compute))))
    if any(each.startswith("p") for each in meter.compute) and dice.random() < 0.5:
        functions = (dice.choice(("p10", "p50", "p99.9")),)
    bounds = kind != "total" or window is not None or "rate" in functions or dice.random() < 0.6
    by = tuple(dice.sample(meter.labels, dice.randint(0, len(meter.labels))))
    where = {}
    if meter.labels and dice.random() < 0.4:
        values = {
            "server": SERVERS,
            "user": ["u1", "u2", "u3", "__other__"],
            "event": ["rpc", "view"],
            "metric": METRICS,
        }
        key = dice.choice(meter.labels)
        where = {key: tuple(dice.sample(values[key], 2))}
    if kind == "top":
        if not meter.labels:
            return question(dice, meter, now_s)
        by, functions = by or meter.labels, functions[:1]
    compare = dice.choice((None, None, "previous", HOUR_S, DAY_S)) if bounds else None
    late = dice.choice(("without", "only", "with")) if meter.late and meter.late.then == "aside" else "without"
    return Asked(
        kind,
        meter.name,
        functions,
        where,
        by,
        start if bounds else None,
        end if bounds else None,
        step,
        window,
        # Estimates of both signs may cancel each other out, and then their error is not that of the average.
        dice.choice(("max", "min") if any(each.startswith("p") for each in functions) else ("max", "min", "avg")),
        compare,
        dice.choice(("value", "growth")) if kind == "top" else "value",
        dice.randint(1, 4),
        late,
    )


class Judge:
    """Compares an answer with what the model says."""

    def __init__(self, asked: Asked, meter: Meter, scale: float) -> None:
        self.asked, self.meter, self.scale = asked, meter, scale

    def value(self, found: dict[str, Any], true: dict[str, Any]) -> bool:
        chosen = {name: found.get(name) for name in true}
        averaged = self.asked.window_s is not None and self.asked.over == "avg"
        return all(is_close(name, chosen[name], true[name], scale=self.scale, averaged=averaged) for name in true)

    def item(self, found: dict[str, Any], true: Any, *, at: str | None = "value") -> bool:
        """`found` is a total, an item of a top, or (without `at`) a point of a series."""
        now = found if at is None else found[at]
        if not isinstance(true, tuple):
            return self.value(now, true)
        return self.value(now, true[0]) and self.value(found["before"], true[1])

    def answer(self, found: dict[str, Any], true: Any) -> bool:
        by = self.asked.by
        if self.asked.kind == "total" and not by:
            return self.item(found, true)
        if self.asked.kind == "total":
            items = {tuple(each["labels"][key] for key in by): each for each in found["items"]}
            return items.keys() == true.keys() and all(self.item(items[key], true[key]) for key in true)
        if self.asked.kind == "series":
            lines = {tuple(each["labels"][key] for key in by): each["points"] for each in found["series"]}
            return lines.keys() == true.keys() and all(self.line(lines[key], true[key]) for key in true)
        return self.top(found["items"], true)

    def line(self, points: list[dict[str, Any]], true: dict[int, Any]) -> bool:
        return len(points) == len(true) and all(
            self.item(point, expected, at=None) for point, expected in zip(points, true.values(), strict=True)
        )

    def top(self, items: list[dict[str, Any]], true: list[tuple[Any, Any]]) -> bool:
        """Each with its value, none twice, and none left out that is larger by more than the error."""
        expected = dict(true)
        by = self.asked.by
        labels = [tuple(each["labels"][key] for key in by) for each in items]
        if len(items) != min(self.asked.k, len(true)) or len(set(labels)) != len(labels):
            return False
        if not all(key in expected and self.item(each, expected[key]) for key, each in zip(labels, items, strict=True)):
            return False
        name = self.asked.functions[0]
        if name.startswith("p") or name == "distinct" or (name in ("sum", "avg") and self.meter.decimals is None):
            return True  # two that are nearly the same may change places

        def rank(labels: Any) -> Any:
            found = expected[labels]
            now = found[0][name] if isinstance(found, tuple) else found[name]
            if self.asked.rank == "growth":
                then = found[1][name]
                # An average over windows is a float, also of exact sums.
                exact = isinstance(now, Decimal) and isinstance(then, Decimal)
                now = None if now is None or then is None else now - then if exact else float(now) - float(then)
            return (now is None, 0 if now is None else -now, labels)

        return labels == sorted(expected, key=rank)[: self.asked.k]


def play(stores: Stores, folder: Path, seed: int, *, batches: int) -> tuple[int, int]:
    """How many questions were asked, three times each, and how often a hot block answered."""
    dice = random.Random(seed)
    chosen = dice.sample(MENU, 5)
    path = WholePath(stores, folder, [from_mapping(each) for each in chosen], dice)
    known: list[dict[str, Any]] = []
    asked = 0
    for _ in range(batches):
        path.now_s += dice.choice((1, 20, 90, HOUR_S))
        path.send(list(events(dice, path.now_s, known)))
        scale = sum(abs(each.get("value", 0)) for each in known)
        for _ in range(dice.randint(0, 2)):
            path.keep()
        for registered in path.registered:
            wanted = question(dice, registered.meter, path.now_s)
            true = path.model.answer(wanted)
            for again in range(3):
                found = path.ask(wanted.target())
                is_right = Judge(wanted, registered.meter, scale).answer(found, true)
                assert is_right, f"seed {seed}, {again}: {wanted.target()}\nfound {found}\ntrue {true}"
            asked += 1
    return asked, path.store.snapshots.hot.answered  # type: ignore[attr-defined]


def histories(first: int, **many: int) -> pytest.MarkDecorator:
    """So many seeds for each kind of store."""
    pairs = [(kind, first + number) for kind, count in many.items() for number in range(count)]
    return pytest.mark.parametrize(("stores", "seed"), pairs, indirect=["stores"])


@histories(0, sqlite=12, memory=8, cassandra=2)
def test_any_history_gives_the_answers_of_plain_python(stores, tmp_path, seed):
    asked, hot = play(stores, tmp_path, seed, batches=6)
    assert asked == 30
    assert hot > 0


@pytest.mark.long
@histories(1000, sqlite=40, memory=24, cassandra=4)
def test_any_longer_history(stores, tmp_path, seed):
    asked, _ = play(stores, tmp_path, seed, batches=15)
    assert asked == 75
