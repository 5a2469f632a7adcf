"""What several kinds of tests build with: events, records, and waiting for a condition."""

import time
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any

import msgspec
import pytest

from running import Running
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate
from tallymark.log.protocol import Record
from tallymark.meters import from_mapping
from tallymark.meters.model import EVENTS
from tallymark.store.model import RegisteredMeter

DAY = "2026-11-15"
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
    delivery = Delivery(msgspec.json.encode(list(events)), at_ms(received))
    accepted = validate(delivery, CLOCKS, max_events=1_000_000)
    assert not accepted.refusals, accepted.refusals
    ((count, content),) = frame.frames(columns.batch([accepted]))
    return count, content


def record(events: Iterable[dict], offset: int = 0, *, partition: int = 0, append_ms: int | None = None) -> Record:
    count, content = payload(events)
    appended = at_ms("12:30:00") + offset if append_ms is None else append_ms
    return Record(partition, offset, appended, count, instance=1, sequence=offset, payload=content)


def meters(*definitions: dict) -> tuple[RegisteredMeter, ...]:
    """The built-in meter `events` as number 1, then these."""
    chosen = [EVENTS, *(from_mapping(definition) for definition in definitions)]
    return tuple(RegisteredMeter(number, 1, meter, 0) for number, meter in enumerate(chosen, start=1))


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
    record = staticmethod(record)
    meters = staticmethod(meters)
    wait_until = staticmethod(wait_until)


@pytest.fixture(scope="session")
def build() -> type[Build]:
    return Build


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
