"""The measuring loop: at the end of every interval, one snapshot of all sources goes to the client."""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from tallymark.agent.heartbeat import Heartbeat
from tallymark.agent.listening import Listener, bind
from tallymark.agent.machine import Machine, Reading, figures
from tallymark.agent.refusals import Refusals
from tallymark.agent.scraping import Endpoint, Scraper
from tallymark.agent.snapshot import events, merge
from tallymark.agent.statsd import Aggregator
from tallymark.settings import AgentSettings

logger = logging.getLogger(__name__)

EVENT = "metrics"
_EARLY = 0.25
"""part of an interval by which a wait may end before its boundary and still belong to it"""


class Sender(Protocol):
    """The part of a client that the agent uses."""

    def event(
        self, name: str, /, *, id: str, time: int, values: Mapping[str, float], props: Mapping[str, str]
    ) -> str: ...
    def stats(self) -> Any: ...


class Clock(Protocol):
    def wall_s(self) -> float: ...
    def running_s(self) -> float:
        """Seconds that stand still while the machine sleeps."""
        ...

    def wait(self, seconds: float) -> bool:
        """True once the agent should stop."""
        ...


class SystemClock:
    def __init__(self, stopping: threading.Event) -> None:
        self.wait = stopping.wait

    def wall_s(self) -> float:
        return time.time()

    def running_s(self) -> float:
        return time.monotonic()


@dataclass
class Sources:
    """Where values come from."""

    read_machine: Callable[[], Reading]
    refusals: Refusals
    aggregator: Aggregator | None = None
    listener: Listener | None = None
    endpoints: list[Endpoint] = field(default_factory=list)

    def stop_listening(self) -> None:
        """Afterwards, everything that has arrived is in the aggregator."""
        if self.listener is not None:
            self.listener.stop()

    def of_applications(self, now_s: float) -> list[dict[str, float]]:
        said = [self.aggregator.take(now_s)] if self.aggregator else []
        return said + [endpoint.take() for endpoint in self.endpoints]


class Agent:
    """Measures until the clock says stop. A second that could not be measured is a gap; none is invented later."""

    def __init__(self, sources: Sources, *, server: str, every_s: int, clock: Clock) -> None:
        self._sources, self._server, self._every_s, self._clock = sources, server, every_s, clock
        self._life = secrets.token_hex(4)
        self._again = 0
        self._is_heard = True
        self._own = _Own(sources)
        self._before = sources.read_machine()
        self._before_s = clock.running_s()

    def run(self, sender: Sender, heartbeat: Heartbeat) -> None:
        heartbeat.beat(0)
        while not self._clock.wait(self._until_boundary()):
            self._require_listener()
            stats = sender.stats()
            self._say_whether_heard(stats)
            self._send(self.snapshot(stats), self._begin_of_last(), sender, heartbeat)
        begin = int(self._clock.wall_s() // self._every_s) * self._every_s
        self._sources.stop_listening()
        # What applications said since the last boundary; the machine's rates over a part of an interval would mislead.
        said = merge(self._sources.of_applications(self._clock.running_s()), self._sources.refusals)
        if said:
            self._send({**said, **self._own.figures(sender.stats(), 0.0)}, begin, sender, heartbeat)

    def snapshot(self, stats: Any = None) -> dict[str, float]:
        """Everything since the last snapshot."""
        now, now_s = self._sources.read_machine(), self._clock.running_s()
        elapsed_s = now_s - self._before_s
        machine = figures(self._before, now, elapsed_s=elapsed_s)
        self._before, self._before_s = now, now_s
        values = merge([machine, *self._sources.of_applications(now_s)], self._sources.refusals)
        return {**values, **self._own.figures(stats, elapsed_s)}

    def _until_boundary(self) -> float:
        return max(0.0, self._begin_of_last() + 2 * self._every_s - self._clock.wall_s())

    def _begin_of_last(self) -> int:
        """When the interval began that ended at the last boundary."""
        boundary = int((self._clock.wall_s() + _EARLY * self._every_s) // self._every_s)
        return (boundary - 1) * self._every_s

    def _send(self, values: dict[str, float], second: int, sender: Sender, heartbeat: Heartbeat) -> None:
        id = f"{self._server}/{second}"
        if second <= heartbeat.last:
            # A clock set back, or a restart within the second: another measurement, so it must not be a duplicate.
            self._again += 1
            id = f"{id}/{self._life}-{self._again}"
        heartbeat.beat(second)
        for event in events(values, id=id, time_ms=second * 1000):
            sender.event(EVENT, id=event.id, time=event.time_ms, values=event.values, props={"server": self._server})

    def _say_whether_heard(self, stats: Any) -> None:
        """Logs once when all addresses are down, and once when one is back."""
        is_heard = not stats.breakers or "closed" in stats.breakers.values()
        if is_heard != self._is_heard:
            self._is_heard = is_heard
            if is_heard:
                logger.info("%s answers again", ", ".join(stats.breakers))
            else:
                logger.warning("no answer from %s; measurements are kept until there is one", ", ".join(stats.breakers))

    def _require_listener(self) -> None:
        listener = self._sources.listener
        if listener is not None and not listener.is_alive:
            raise RuntimeError("the StatsD listener thread died; the supervisor will restart the agent")


class _Own:
    """The agent's figures about itself: growth since the last snapshot, or levels."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._process = psutil.Process()
        self._before: dict[str, int] = {}
        self._cpu_s = _cpu_s()

    def figures(self, stats: Any, elapsed_s: float) -> dict[str, float]:
        refused = self._sources.refusals.take()
        totals = self._totals(stats)
        values = {
            "agent_refused": float(sum(refused.values())),
            **{f'agent_refused{{reason="{reason}"}}': float(count) for reason, count in refused.items()},
            **{name: float(max(0, total - self._before.get(name, 0))) for name, total in totals.items()},
            "agent_mem_bytes": float(self._process.memory_info().rss),
        }
        self._before = totals
        if stats is not None:
            values["agent_events_queued"] = float(stats.queued + stats.in_flight)
            values["agent_events_spilled"] = float(stats.spilled)
        cpu_s = _cpu_s()
        if elapsed_s > 0:
            values["agent_cpu"] = (cpu_s - self._cpu_s) / elapsed_s
        self._cpu_s = cpu_s
        return values

    def _totals(self, stats: Any) -> dict[str, int]:
        totals: dict[str, int] = {}
        if self._sources.aggregator is not None:
            totals["agent_statsd_lines"] = self._sources.aggregator.lines
        if self._sources.listener is not None:
            totals["agent_statsd_dropped"] = self._sources.listener.dropped()
        if self._sources.endpoints:
            totals["agent_scrapes_failed"] = sum(endpoint.failures for endpoint in self._sources.endpoints)
        if stats is not None:
            totals["agent_events_refused"] = stats.refused
            totals["agent_events_dropped"] = stats.dropped
        return totals


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def open_sources(settings: AgentSettings, stack: ExitStack, *, listen: bool = True) -> Sources:
    """All sources that the settings name, at work until the stack is closed."""
    refusals = Refusals()
    sources = Sources(Machine(disks=settings.disks, processes=settings.processes).read, refusals)
    if listen and settings.statsd != "off":
        sources.aggregator = Aggregator(refusals, max_metrics=settings.max_metrics, gauge_keep_s=settings.gauge_keep_s)
        sources.listener = stack.enter_context(Listener(bind(settings.statsd), sources.aggregator.feed))
    sources.endpoints = [Endpoint(each, refusals, max_metrics=settings.max_metrics) for each in settings.scrape]
    return sources


def measure(
    settings: AgentSettings, sender: Sender, *, stopping: threading.Event, heartbeat: Path, ready: Callable[[], None]
) -> None:
    """Measure and send until `stopping` is set."""
    with ExitStack() as stack:
        sources = open_sources(settings, stack)
        stack.enter_context(Scraper(sources.endpoints, every_s=settings.scrape_every_s))
        agent = Agent(sources, server=settings.server, every_s=settings.every_s, clock=SystemClock(stopping))
        beats = Heartbeat(heartbeat)
        ready()
        agent.run(sender, beats)


def once(settings: AgentSettings, *, listen: bool) -> tuple[dict[str, float], dict[str, int]]:
    """One snapshot over one interval, and what was refused by reason; nothing is sent."""
    stopping = threading.Event()
    with ExitStack() as stack:
        sources = open_sources(settings, stack, listen=listen)
        for endpoint in sources.endpoints:
            endpoint.scrape()
        agent = Agent(sources, server=settings.server, every_s=settings.every_s, clock=SystemClock(stopping))
        stopping.wait(settings.every_s)
        for endpoint in sources.endpoints:
            endpoint.scrape()
        sources.stop_listening()
        return agent.snapshot(), dict(sources.refusals.totals)
