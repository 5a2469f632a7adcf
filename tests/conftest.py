"""What several kinds of tests build with: events, records, servers, and waiting for a condition."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import hypothesis
import msgspec
import pytest

import cassandras
import kafkas
import lanes
from lab.cassandra import Cassandra
from lab.kafka import KafkaCluster
from running import Running
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.tenants import MAIN
from tallymark.events.validation import Accepted, validate
from tallymark.log.protocol import Record
from tallymark.meters import from_mapping
from tallymark.meters.model import EVENTS
from tallymark.store.model import RegisteredMeter

# How long an example takes says how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("tallymark", deadline=None)
hypothesis.settings.load_profile("tallymark")

DAY = "2026-11-15"
_TENANT = "tenant"
CLOCKS = Clocks(accept_past_ms=7 * 86_400_000, accept_future_ms=300_000, tolerance_ms=5_000)


def at_ms(clock: str) -> int:
    """12:00:01 of the tests' day, in epoch milliseconds."""
    return int(datetime.fromisoformat(f"{DAY}T{clock}+00:00").timestamp() * 1000)


def event(
    number: str, clock: str = "12:00:00", *, name: str = "view", value: float | None = None, **props: Any
) -> dict:
    """An event as a client sends it."""
    sent = {"event": name, "id": number, "time": at_ms(clock), "props": props}
    return sent if value is None else {**sent, "value": value}


def payload(events: Iterable[dict], *, received: str = "12:30:00") -> tuple[int, bytes]:
    """(number of events, frame) as the collector would write them."""
    requests = [
        _accepted([without_tenant for _, without_tenant in sent], tenant, at_ms(received))
        for tenant, sent in groupby(map(_parted, events), key=itemgetter(0))
    ]
    ((count, content),) = frame.frames(columns.batch(requests or [_accepted([], MAIN, at_ms(received))]))
    return count, content


def of_tenant(tenant: str, *events: dict) -> list[dict]:
    """The events, for `payload`: neighbours of one tenant come in one request."""
    return [{**each, _TENANT: tenant} for each in events]


def _parted(sent: dict) -> tuple[str, dict]:
    return sent.get(_TENANT, MAIN), {key: value for key, value in sent.items() if key != _TENANT}


def _accepted(events: list[dict], tenant: str, received_ms: int) -> Accepted:
    accepted = validate(Delivery(msgspec.json.encode(events), received_ms), CLOCKS, max_events=1_000_000)
    assert not accepted.refusals, accepted.refusals
    accepted.tenant = tenant
    return accepted


def record(events: Iterable[dict], offset: int = 0, *, partition: int = 0, append_ms: int | None = None) -> Record:
    count, content = payload(events)
    appended = at_ms("12:30:00") + offset if append_ms is None else append_ms
    return Record(partition, offset, appended, count, instance=1, sequence=offset, payload=content)


def meters(*definitions: dict, tenant: str = MAIN, first: int = 1) -> tuple[RegisteredMeter, ...]:
    """The built-in meter `events` as number 1, or `first`, then these."""
    chosen = [EVENTS, *(from_mapping(definition) for definition in definitions)]
    return tuple(
        RegisteredMeter(number, 1, meter, 0, tenant=tenant) for number, meter in enumerate(chosen, start=first)
    )


def wait_until(condition: Callable[[], Any], *, seconds: float = 60.0, what: str = "the condition") -> Any:
    """The condition's first true value; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"{what} did not come true within {seconds:g} s")


class Build:
    """The builders above, as a fixture, since test folders do not import each other."""

    at_ms = staticmethod(at_ms)
    event = staticmethod(event)
    payload = staticmethod(payload)
    of_tenant = staticmethod(of_tenant)
    record = staticmethod(record)
    meters = staticmethod(meters)
    wait_until = staticmethod(wait_until)


@pytest.fixture(scope="session")
def build() -> type[Build]:
    return Build


@pytest.fixture(scope="session")
def cassandra() -> Cassandra:
    """The run's only one; `lanes` keeps all its users together."""
    return cassandras.server()


@pytest.fixture(scope="session")
def kafka_cluster() -> KafkaCluster:
    """This process' only three brokers; `lanes` keeps their users together."""
    return kafkas.cluster()


@pytest.fixture
def kafka(kafka_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """The brokers for a test that hurts them: all are up and in sync again afterwards."""
    yield kafka_cluster
    kafka_cluster.heal()


@pytest.fixture(scope="session")
def tallymark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One `tallymark up` for all tests that do not hurt it: each has event names and meters of its own."""
    running = Running(tmp_path_factory.mktemp("up"), settings={"log.partition_by": "key:video"})
    assert not running.data.exists(), "`up` makes its folder"
    try:
        yield running.start()
        running.stop()
    finally:
        running.close()


@pytest.hookimpl(wrapper=True)  # a wrapper comes before xdist's own hook, which reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    lanes.arrange(items)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """A server ends with the last test that needs it: idle, they take half a core from the tests that follow."""
    yield
    still_needed = lanes.servers(nextitem) if nextitem else set()
    if "kafka" not in still_needed:
        kafkas.stop()
    if "cassandra" not in still_needed:
        cassandras.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure of a test with a real Tallymark shows what that printed and logged."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            running = getattr(value, "running", value)
            if isinstance(running, Running):
                report.sections.append(("Tallymark", running.describe()))
    return report
