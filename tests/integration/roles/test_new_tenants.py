"""A tenant that appears while the pipeline's driver counts into a real Cassandra."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counting import CountingPath, CountsHere, NoSpark
from lab.cassandra import Cassandra
from tallymark.pipeline.counting import plan as plans
from tallymark.settings import Settings
from tallymark.store.model import Ledger


@pytest.fixture
def path(build, cassandra: Cassandra, tmp_path: Path) -> Iterator[CountingPath]:
    settings = Settings(data=str(tmp_path))
    settings.store.kind, settings.store.port = "cassandra", cassandra.port
    settings.store.name, settings.store.timeout_s = f"test{time.monotonic_ns()}", 4
    made = CountingPath(build, NoSpark(), settings)
    yield made
    made.close()
    for cached in (plans.open_log, plans.open_deposits, plans._sink, plans._registry):
        cached.cache_clear()


def test_a_tenant_is_counted_from_its_first_event_on(path, build):
    lease = path.store.lease("pipeline", "here", lease_s=30)
    assert lease.take()
    job = path.job()
    job._placement = CountsHere()
    job.prepare()
    path.append([build.event(str(number)) for number in range(3)])
    path.start(job)
    path.wait_for(3)
    theirs = build.of_tenant("demo", *(build.event(str(number)) for number in range(5)))
    path.append([build.event("3"), *theirs])
    path.append(theirs[:2], partition=1)
    path.wait_for(11)
    assert path.ledgers() == {"main": Ledger(4, 4), "demo": Ledger(7, 7)}
    assert (path.total(), path.total(tenant="demo")) == (4, 7)
    assert path.store.registry.tenants() == ["demo", "main"]
