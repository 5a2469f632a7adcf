"""A query service without HTTP, for tests of what it answers."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from fake_store import FakeStore
from tallymark.fidelity.log_view import StreamView
from tallymark.fidelity.rates import Rates
from tallymark.http import Problem
from tallymark.meters.model import Meter
from tallymark.query import api
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.moments import to_ms
from tallymark.query.newest import LogGlances
from tallymark.query.parameters import read_pairs
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.settings import Settings
from tallymark.tables import Tables
from tallymark.tenants import tenant_of
from tallymark.testing import MemoryLog

VIEWS = Meter("views", ("view",), by=("video", "country"))
LATENCY = Meter("latency", ("rpc",), by=("server",), compute=("count", "sum", "min", "max", "avg"))
REVENUE = Meter("revenue", ("sale",), compute=("count", "sum", "avg"), decimals=2)


class Desk:
    """A query service without HTTP: a fake store, a log in memory, a clock that stands at 12:30:30."""

    def __init__(self, folder: Path, *, cache_ttl_s: float = 0.0) -> None:
        """Every answer is of the moment in which it is asked for, unless they are to be kept."""
        self.now_ms = at("12:30:30") * 1000
        self.store = FakeStore()
        self.log, self.dead = MemoryLog(2, clock=lambda: self.now_ms), MemoryLog(1)
        self.settings = Settings(data=str(folder))
        self.sources = Sources(
            self.store,
            StreamView(lambda: self.log),
            StreamView(lambda: self.dead),
            self.settings,
            clock_ms=lambda: self.now_ms,
            cache=AnswerCache(ttl_s=cache_ttl_s, clock=lambda: self.now_ms / 1000),
            last_known=LastKnown(most_bytes=100_000),
            newest=LogGlances(lambda: self.log),
            tables=Tables(self.store.documents, self.store.table_parts),
        )
        self.rates = Rates(self.sources)
        self.routes = api.routes(self.sources, self.rates)
        for meter in (VIEWS, LATENCY, REVENUE):
            self.store.registry.put_meter("main", meter, now_ms=self.now_ms)

    def send(self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        parts = urlsplit(target)
        route, arguments = self.routes.find(method, parts.path)
        assert route.answer is not None
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        pairs = read_pairs(parts.query)
        named = dict(zip(route.names, arguments, strict=True))
        scope: Any = SimpleNamespace(query_string=parts.query, headers=headers or {})
        return route.answer(Request(method, parts.path, pairs, content, named, (headers or {}).get, tenant_of(scope)))

    def ask(self, target: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The answer's JSON."""
        return msgspec.json.decode(self.send(method, target, body, headers).body)

    def refused(self, target: str, method: str = "GET", body: Any = None) -> Problem:
        with pytest.raises(Problem) as found:
            self.send(method, target, body)
        return found.value


def at(clock: str, day: str = "2026-11-15") -> int:
    """Epoch seconds of a time of the day on which the tests play."""
    return to_ms(datetime.fromisoformat(f"{day}T{clock}+00:00")) // 1000
