"""Tables: what an upload, a patch and questions by a column cost. In one process, on SQLite; CPU besides the time."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from bench.figure import Conditions, Figure, Reach, at_most
from tallymark.fidelity.log_view import StreamView
from tallymark.fidelity.rates import Rates
from tallymark.ledger import Ledger
from tallymark.meters.model import Meter
from tallymark.query import api
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.settings import Settings
from tallymark.store import deltas
from tallymark.store.model import Stretch, StretchResult
from tallymark.store.sqlite.store import SqliteStore
from tallymark.tables import Tables
from tallymark.testing import MemoryLog

BENCHMARK = "tables"
KEYS = 10_000
"""of the meter; the table has more"""
VIEWS = Meter("views", ("view",), by=("video",))
QUESTIONS: dict[str, tuple[str, dict[str, str], Reach | None]] = {
    "by key": ("top", {"by": "video"}, None),
    "by key, with a title": ("top", {"by": "video", "with": "videos.title"}, at_most(30)),
    "by a column": ("top", {"by": "videos.channel"}, at_most(30)),
    "of one channel": ("total", {"videos.channel": "channel 7"}, at_most(30)),
}


class Asked:
    """A query service without HTTP."""

    def __init__(self, conditions: Conditions) -> None:
        folder = conditions.folder / BENCHMARK
        self.store = SqliteStore(folder / "store.db")
        self._count()
        log = MemoryLog(1)
        sources = Sources(
            self.store,
            StreamView(lambda: log),
            StreamView(lambda: log),
            Settings(data=str(folder)),
            clock_ms=lambda: int(time.time() * 1000),
            cache=AnswerCache(ttl_s=0),
            last_known=LastKnown(most_bytes=0),
            tables=Tables(self.store.documents, self.store.table_parts),
        )
        self._routes = api.routes(sources, Rates(sources))

    def send(self, method: str, path: str, pairs: dict[str, str], body: Any = None) -> None:
        route, arguments = self._routes.find(method, path)
        named = dict(zip(route.names, arguments, strict=True))
        content = b"" if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"}
        assert route.answer is not None, urlencode(pairs)
        route.answer(Request(method, path, list(pairs.items()), content, named, headers.get))

    def _count(self) -> None:
        meter = self.store.registry.put_meter("main", VIEWS, now_ms=0)
        minute_s = int(time.time()) // 60 * 60 - 600
        rows = [
            (meter.set_id, f"v{number}", minute_s, number % 50 + 1, 0, None, None, None, None, None)
            for number in range(KEYS)
        ]
        encoded = deltas.encode(deltas.merge([deltas.from_rows(rows)]))
        result = StretchResult(
            Stretch(0, 0, 1), "log", meters_revision=2, meter_ids=(meter.meter_id,), deltas=encoded, ledger=Ledger()
        )
        self.store.sink.apply([result], now_ms=minute_s * 1000)


def measure(conditions: Conditions) -> Iterator[Figure]:
    rows = conditions.choose(full=200_000, quick=20_000)
    asked = Asked(conditions)
    table = "/v1/tables/videos"

    def put(word: str) -> None:
        body = [
            {"video": f"v{number}", "title": f"{word} {number}", "channel": f"channel {number % 100}", "views": number}
            for number in range(rows)
        ]
        asked.send("PUT", table, {"key": "video"}, body)

    yield _figure(f"put {rows:,} rows", [_timed(lambda: put("The title of video"))])
    yield _figure("put them again, every title changed", [_timed(lambda: put("A title of video"))])
    patches = [
        _timed(lambda each=f"title {number}": asked.send("PATCH", table, {}, [{"video": "v7", "title": each}]))  # type: ignore[misc]
        for number in range(20)
    ]
    yield _figure("patch one row", patches)
    fresh = Tables(asked.store.documents, asked.store.table_parts)
    yield _figure("read all of it from the store", [_timed(lambda: fresh.get("main", "videos"))])
    for what, (kind, pairs, reach) in QUESTIONS.items():
        ask = [_timed(lambda: asked.send("GET", f"/v1/meters/views/{kind}", pairs)) for _ in range(31)]  # noqa: B023
        yield _figure(f"{kind} over {KEYS:,} keys {what}", ask[1:], reach)
    asked.store.close()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of time and of CPU."""
    begun, used = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000


def _figure(what: str, times: list[tuple[float, float]], reach: Reach | None = None) -> Figure:
    taken, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    return Figure(BENCHMARK, what, taken, "ms", reach, f"CPU {cpu:.1f} ms")
