"""What an agent needs around it, without sockets, threads or waiting."""

from types import SimpleNamespace

import pytest

from tallymark.agent.heartbeat import Heartbeat
from tallymark.agent.machine import Reading
from tallymark.agent.refusals import Refusals
from tallymark.agent.service import Agent, Sources
from tallymark.agent.statsd import Aggregator


class ManualClock:
    """Time passes when somebody waits for it; after `waits` of them it says stop, in the middle of the last."""

    def __init__(self) -> None:
        self.waits = 3
        self._wall_s, self._running_s = 1000.0, 50.0
        self.asleep: dict[int, float] = {}
        """wait number -> seconds the machine slept in it, which only the wall clock sees"""
        self.late: dict[int, float] = {}
        """wait number -> seconds by which the wait ended late (or early)"""
        self.before_wait = lambda number: None
        self._number = 0

    def wall_s(self) -> float:
        return self._wall_s

    def running_s(self) -> float:
        return self._running_s

    def wait(self, seconds: float) -> bool:
        self._number += 1
        self.before_wait(self._number)
        if self._number > self.waits:
            self._pass(seconds / 2)
            return True
        self._pass(seconds + self.late.get(self._number, 0.0))
        self._wall_s += self.asleep.get(self._number, 0.0)
        return False

    def set(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def _pass(self, seconds: float) -> None:
        self._wall_s += seconds
        self._running_s += seconds


class Sent:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[SimpleNamespace] = []
        self.breakers = {"http://x": "closed"}

    def event(self, name, *, id, time, values, props):
        self.events.append(SimpleNamespace(name=name, id=id, time=time, values=dict(values), props=dict(props)))
        return id

    def stats(self):
        return SimpleNamespace(queued=1, in_flight=2, spilled=3, refused=0, dropped=0, breakers=self.breakers)

    @property
    def ids(self):
        return [event.id for event in self.events]


class Disk:
    """A machine that reads 100 bytes in each second that it is awake."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def read(self) -> Reading:
        return Reading(levels={"load1": 0.5}, totals={"disk_read_bytes": 100.0 * self._clock.running_s()})


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sources(clock, refusals) -> Sources:
    """A small machine and a StatsD that nobody but the test speaks to."""
    return Sources(Disk(clock).read, refusals, Aggregator(refusals, max_metrics=10_000, gauge_keep_s=60))


@pytest.fixture
def heartbeat(tmp_path) -> Heartbeat:
    return Heartbeat(tmp_path / "run" / "heartbeat")


@pytest.fixture
def measure(sources, clock, sent, heartbeat):
    """Runs an agent until its clock says stop."""

    def run(*, every_s: int = 1) -> None:
        Agent(sources, server="web-1", every_s=every_s, clock=clock).run(sent, heartbeat)

    return run
