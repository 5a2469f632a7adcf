"""`/readyz` and `/healthz`: whether this node should be asked."""

import pytest

from tallymark.http import Problem
from tallymark.query import api
from tallymark.query.routes import Request


def test_ready_is_seeing_the_store(desk):
    assert desk.ask("/readyz")["ready"] is True
    desk.store.failure = OSError("disk I/O error")
    with pytest.raises(Problem, match="disk I/O error") as found:
        desk.ask("/readyz")
    assert found.value.status == 503
    assert desk.ask("/healthz") == {"status": "alive"}


def test_one_that_stops_says_so_before_it_closes_its_port(desk):
    routes = api.routes(desk.sources, desk.rates, is_stopping=lambda: True)
    route, _ = routes.find("GET", "/readyz")
    with pytest.raises(Problem, match="stopping") as found:
        route.answer(Request("GET", "/readyz"))
    assert (found.value.status, found.value.code) == (503, "stopping")
