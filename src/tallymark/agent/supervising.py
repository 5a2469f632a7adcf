"""`tallymark agent` itself: a small supervisor that starts the measuring process again when it dies or falls silent."""

import dataclasses
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tallymark.agent.heartbeat import LOOK_S, Watch
from tallymark.agent.listening import bind
from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.role.loop import Background, repeat
from tallymark.role.outage import Outage
from tallymark.settings import AgentSettings
from tallymark.supervisor.child import ChildSpec
from tallymark.supervisor.console import Console
from tallymark.supervisor.lock import read_place
from tallymark.supervisor.processes import is_same
from tallymark.supervisor.supervisor import Plan, Supervisor

logger = logging.getLogger(__name__)

NAME = "agent"
SILENT_S = 10.0
STARTING_S = 30.0
PROBE_S = 2.0
STOP_S = 12.0
"""the client's five seconds to deliver, and some to write down what is left"""


def heartbeat_file(folder: Path) -> Path:
    return folder / "run" / "heartbeat"


def supervise(settings: AgentSettings, folder: Path, console: Console, *, silent_s: float = SILENT_S) -> int:
    """Runs until asked to stop; returns the exit code. FolderTaken and CannotListen come before anything starts."""
    facts = json.dumps({"folder": str(folder), "agent": dataclasses.asdict(settings)})
    # Silence has to be longer than an interval, however long that is.
    silent_s = max(silent_s, 3.0 * settings.every_s)
    plan = Plan(
        children=[ChildSpec(NAME, (sys.executable, "-m", "tallymark.agent", facts), stop_s=STOP_S)],
        stop_order=[NAME],
        before_start=lambda: _require_port(settings.statsd),
        on_ready=lambda: _greet(settings, folder, console),
    )
    watchman = Watchman(
        Watch(heartbeat_file(folder), silent_s=silent_s, starting_s=max(STARTING_S, silent_s)),
        folder,
        say=lambda line: console.say(f"{NAME} {line}"),
    )
    with watchman.in_background():
        return Supervisor(plan, folder, console).run()


class Watchman:
    """Kills a process whose heartbeat has stopped; the supervisor starts it again."""

    def __init__(self, watch: Watch, folder: Path, *, say: Callable[[str], None]) -> None:
        self._watch, self._folder, self._say = watch, folder, say

    def in_background(self) -> Background:
        """`with watchman.in_background():` looks at the heartbeat every second until the block is left."""
        outage = Outage(logger, "cannot look at the agent's heartbeat", expected=OSError)
        return Background(
            lambda wait: repeat(
                lambda: self.look(now_s=time.monotonic()), every_s=lambda: LOOK_S, wait=wait, outage=outage
            ),
            name="watchman",
        )

    def look(self, *, now_s: float) -> None:
        children = read_place(self._folder).get("children", {})
        pid, started = children.get(NAME, (0, 0))
        if self._watch.is_silent((pid, started), now_s=now_s) and pid and is_same(pid, started):
            self._say(f"(pid {pid}) is not responding; killing it")
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def _require_port(statsd: str) -> None:
    if statsd != "off":
        bind(statsd).close()


def _greet(settings: AgentSettings, folder: Path, console: Console) -> None:
    statsd = "" if settings.statsd == "off" else f", StatsD on {settings.statsd}"
    scraped = f", scraping {', '.join(settings.scrape)}" if settings.scrape else ""
    whose = f" as tenant {settings.tenant}" if settings.tenant else ""
    console.say(
        f"measuring {settings.server} every {settings.every_s} s for {', '.join(settings.urls)}{whose}{statsd}{scraped}"
        f"  (Ctrl-C stops it; its log and unsent measurements are in {folder})"
    )
    for url in settings.urls:
        transport = HttpTransport(url, timeout_s=PROBE_S)
        try:
            transport.exchange(Request("GET", "/healthz"), timeout_s=PROBE_S)
        except NoAnswer as error:
            console.say(f"{error}; measurements are kept on this machine until it does")
        finally:
            transport.close()
