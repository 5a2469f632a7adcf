"""What saved queries select of meters with `keep: queried`."""

import logging
from dataclasses import replace

import msgspec
import pytest

from fake_store import FakeStore
from tallymark.evaluation.plan import plan
from tallymark.meters.model import Meter
from tallymark.store.queried import Watch, select_queried

SERVERS = Meter("servers", ("host",), ("server",), ("count", "avg"), each="values", keep="queried")


@pytest.fixture
def store() -> FakeStore:
    store = FakeStore()
    store.registry.put_meter("main", SERVERS, now_ms=1)
    return store


def save(store: FakeStore, name: str, q: str, *, tenant: str = "main") -> None:
    store.documents.put("query", tenant, name, msgspec.json.encode({"q": q}).decode(), now_ms=1)


def stored(store: FakeStore, name: str = "servers", *, tenant: str = "main") -> set[str] | None:
    metrics = store.registry.meter(tenant, name).stored_metrics
    return None if metrics is None else set(metrics)


@pytest.mark.parametrize(
    ("q", "metrics"),
    [
        ("FROM * SELECT servers.cpu WINDOW 1m", {"cpu"}),
        ("FROM s1 SELECT servers.'disk free' WINDOW 1m BY server", {"disk free"}),
        ("FROM * SELECT servers WINDOW 1m WHERE metric IN ('cpu', 'load')", {"cpu", "load"}),
        ("FROM * SELECT cpu WINDOW 1m", {"cpu"}),
        ("FROM * SELECT servers WINDOW 1m", None),
        ("FROM * SELECT servers WINDOW 1m BY metric", None),
        ("FROM * SELECT events WINDOW 1m", set()),
        ("FROM * SELECT metrics.cpu WINDOW 1m", set()),
        ("FROM * SELECT gone.'cpu' WINDOW 1m", set()),
        ("FROM * SELECT gone.cpu WINDOW 1m", {"gone.cpu"}),
    ],
)
def test_what_a_saved_query_selects(store, q, metrics):
    save(store, "one", q)
    assert select_queried(store, now_ms=2) is (metrics != set())
    assert stored(store) == metrics
    assert not select_queried(store, now_ms=3)


def test_all_queries_of_the_tenant_together_and_of_no_other(store):
    store.registry.put_meter("shop", SERVERS, now_ms=1)
    save(store, "one", "FROM * SELECT servers.cpu WINDOW 1m")
    save(store, "two", "FROM * SELECT servers.cpu WINDOW 5m")
    save(store, "three", "FROM * SELECT servers.disk WINDOW 1m")
    save(store, "one", "FROM * SELECT servers.load WINDOW 1m", tenant="shop")
    select_queried(store, now_ms=2)
    assert (stored(store), stored(store, tenant="shop")) == ({"cpu", "disk"}, {"load"})
    store.documents.delete("query", "main", "one")
    assert not select_queried(store, now_ms=3)
    store.documents.delete("query", "main", "two")
    assert select_queried(store, now_ms=4)
    assert stored(store) == {"disk"}


def test_another_selection_leaves_the_stored_windows_of_other_queries_alone(store):
    def lineage() -> str:
        document = store.documents.get("query", "main", "one")
        return plan(document, store.registry.meters("main")).digest

    save(store, "one", "FROM * SELECT servers.'cpu' WINDOW 1m COMPUTE avg")
    select_queried(store, now_ms=2)
    before = lineage()
    save(store, "two", "FROM * SELECT servers.'disk' WINDOW 1m")
    assert select_queried(store, now_ms=3)
    assert lineage() == before
    store.registry.put_meter("main", replace(SERVERS, by=("zone",)), now_ms=4)
    assert lineage() != before


def test_a_query_that_cannot_be_read_drops_nothing(store, caplog):
    store.documents.put("query", "main", "new", '{"q": "FROM THE FUTURE"}', now_ms=1)
    with caplog.at_level(logging.WARNING):
        select_queried(store, now_ms=2)
    assert stored(store) is None
    assert "the saved query new cannot be read" in caplog.text


def test_a_broken_meter_is_left_alone(store):
    store.break_meter("servers", "it failed")
    save(store, "one", "FROM * SELECT servers.cpu WINDOW 1m")
    assert not select_queried(store, now_ms=2)
    assert store.registry.meter("main", "servers").broken
    store.registry.resume_meter("main", "servers")
    assert select_queried(store, now_ms=3)


def test_the_keeper_heals_what_a_crash_left_and_looks_no_more_than_it_must(store, monkeypatch):
    watch, looks = Watch(store), []
    read = store.documents.of_tenant
    monkeypatch.setattr(store.documents, "of_tenant", lambda *given: looks.append(given) or read(*given))
    save(store, "one", "FROM * SELECT servers.cpu WINDOW 1m")  # and whoever saved it died
    watch.look(now_ms=2)
    assert stored(store) == {"cpu"}
    watch.look(now_ms=3)  # the version that it made is a change too
    seen = len(looks)
    for _ in range(5):
        watch.look(now_ms=4)
    assert len(looks) == seen
    save(store, "two", "FROM * SELECT servers.disk WINDOW 1m")
    watch.look(now_ms=5)
    assert stored(store) == {"cpu", "disk"}
