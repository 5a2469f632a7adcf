"""Starts the children, restarts what dies, stops them in order."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallymark.supervisor.child import Child, ChildSpec, Death
from tallymark.supervisor.console import Console
from tallymark.supervisor.lock import FolderLock, read_place
from tallymark.supervisor.processes import await_leftovers
from tallymark.supervisor.signals import Signals

POLL_STARTING_S = 0.1
COMPLAIN_S = 60.0
POLL_RUNNING_S = 1.0
POLL_STOPPING_S = 0.05


def _nothing() -> None:
    return None


def _at_once() -> bool:
    return True


@dataclass(frozen=True)
class Plan:
    """What to supervise, and the few questions about it that only its owner can answer."""

    children: Sequence[ChildSpec]
    """in the order in which they are started"""
    stop_order: Sequence[str]
    before_start: Callable[[], None] = _nothing
    """called with the folder's lock held and the last run gone; what it raises ends the attempt"""
    why_not_ready: Callable[[], str] = str
    """asked once every child has announced itself; empty when all can work"""
    on_ready: Callable[[], None] = _nothing
    """called once, the first time everything is ready"""
    companions: Sequence[ChildSpec] = ()
    """started when everything is ready, stopped first"""
    is_drained: Callable[[], bool] = _at_once
    """asked after the first of `stop_order` has ended: has the rest worked off what it was given?"""
    drain_s: float = 5.0
    leftover_s: float = 10.0
    """how long children of a killed supervisor may take to go"""
    address: str = ""
    instance: str = ""
    """its name, where several share a data folder"""


class Supervisor:
    """`Supervisor(plan, folder, console).run()` returns the exit code once everything has stopped."""

    def __init__(self, plan: Plan, folder: Path, console: Console) -> None:
        self._plan = plan
        self._folder = folder
        self._console = console
        self._children = [Child(spec, folder=folder) for spec in plan.children]
        self._companions = [Child(spec, folder=folder) for spec in plan.companions]
        self._ready = False
        self._failed = False
        self._begun = time.monotonic()
        self._complain_at_s = COMPLAIN_S

    def run(self) -> int:
        with FolderLock(self._folder, self._plan.instance) as lock, Signals() as signals:
            self._await_the_last_run()
            self._plan.before_start()
            for child in self._children:
                child.due = time.monotonic()
            try:
                while not signals.stop_requests and not self._failed:
                    self._look_after(lock)
                    signals.wait(self._pause())
            finally:
                self._stop(signals)
        return 1 if self._failed else 0

    def _await_the_last_run(self) -> None:
        left = read_place(self._folder, self._plan.instance).get("children", {})
        for name in await_leftovers(left, patience_s=self._plan.leftover_s):
            self._console.say(f"killed {name}, left over from the last run")

    def _look_after(self, lock: FolderLock) -> None:
        started = False
        for child in (*self._children, *self._companions):
            death = child.died()
            if death is not None:
                self._after(child, death)
            if child.due is not None and child.due <= time.monotonic():
                started |= self._start(child)
            child.keep_log_small()
        if started:
            everyone = {
                child.spec.name: child.identity for child in (*self._children, *self._companions) if child.running
            }
            lock.write(address=self._plan.address, children=everyone)
        if not self._ready:
            self._become_ready()

    def _start(self, child: Child) -> bool:
        try:
            child.start()
        except OSError as error:
            self._after(child, Death(f"could not be started ({error})", "", 0.0, wrong_usage=False))
            return False
        return True

    def _after(self, child: Child, death: Death) -> None:
        name, said = child.spec.name, f": {death.last_line}" if death.last_line else ""
        if death.wrong_usage and not self._ready:
            # Wrong settings do not heal by themselves.
            self._console.say(f"{name} cannot start{said} (see {child.log_file})")
            self._failed = True
            return
        wait_s = child.back_off.after_death(lived_s=death.lived_s)
        child.due = time.monotonic() + wait_s
        line = f"{name} {death.reason} after {_seconds(death.lived_s)}{said}; restarting in {_seconds(wait_s)}"
        if child.back_off.hopeless:
            line = (
                f"{name} has died {child.back_off.deaths} times in a row, last {death.reason}{said}; "
                f"trying again every {_seconds(wait_s)}, see {child.log_file}"
            )
        self._console.say(line)

    def _become_ready(self) -> None:
        missing = [
            child.spec.title or child.spec.name
            for child in self._children
            if child.spec.announces and child.announced() is None
        ]
        waiting = f"starting {', '.join(missing)}" if missing else self._plan.why_not_ready()
        if not waiting:
            self._ready = True
            for child in self._companions:
                child.due = time.monotonic()
            self._plan.on_ready()
            return
        passed_s = time.monotonic() - self._begun
        self._console.progress(f"{waiting} … {passed_s:.0f} s")
        if passed_s >= self._complain_at_s:
            self._console.say(f"not ready after {passed_s:.0f} s: {waiting}; see {self._folder / 'logs'}")
            self._complain_at_s *= 2

    def _pause(self) -> float:
        if not self._ready:
            return POLL_STARTING_S
        due = [child.due for child in (*self._children, *self._companions) if child.due is not None]
        return min([POLL_RUNNING_S, *(moment - time.monotonic() for moment in due)])

    def _stop(self, signals: Signals) -> None:
        """In order, each given its time; a second request to stop ends all at once."""
        requests = signals.stop_requests
        self._console.progress("stopping …")

        def hurry() -> bool:
            return signals.stop_requests > requests

        for child in self._companions:
            self._stop_one(child, signals, hurry)
        ordered = [next(child for child in self._children if child.spec.name == name) for name in self._plan.stop_order]
        for place, child in enumerate(ordered):
            self._stop_one(child, signals, hurry)
            if place == 0 and self._ready and not hurry():
                self._drain(signals, hurry)
        if hurry():
            self._console.say("stopped at once; accepted events are in the log and will be counted at the next start")
        else:
            self._console.say("stopped")

    def _stop_one(self, child: Child, signals: Signals, hurry: Callable[[], bool]) -> None:
        child.ask_to_stop()
        deadline = time.monotonic() + child.spec.stop_s
        while child.running and child.died() is None:
            if hurry() or time.monotonic() > deadline:
                if not hurry():
                    self._console.say(f"{child.spec.name} did not stop within {child.spec.stop_s:.0f} s and was killed")
                child.kill()
                deadline = float("inf")
            signals.wait(POLL_STOPPING_S)

    def _drain(self, signals: Signals, hurry: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._plan.drain_s
        while time.monotonic() < deadline and not hurry() and not self._plan.is_drained():
            signals.wait(POLL_STOPPING_S)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
