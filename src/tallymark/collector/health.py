"""What operators ask of the public port: is it alive, can it work, and its numbers."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tallymark import log as logs
from tallymark import store as stores
from tallymark import telemetry
from tallymark.collector.commit import Committer
from tallymark.collector.forward import Forwarder
from tallymark.log.protocol import LogWriter
from tallymark.role import file_stem
from tallymark.settings import Settings

PROBE_PATIENCE_S = 3.0
PROBED_S = 1.0
# Under `up` the answer waits for the query service; a balancer of a cluster often waits for a second only.
QUERY_PATIENCE_S = 2.0
QUERY_PATIENCE_OF_SEVERAL_S = 0.8
_FAMILY = re.compile(rb"^# HELP (\S+)", re.MULTILINE)


class LogProbe:
    """Asks a log that is elsewhere whether it answers: one question at a time, however often readiness is asked for."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._task: asyncio.Task[object] | None = None
        self._begun = 0.0

    async def troubles(self) -> list[str]:
        now = time.monotonic()
        if self._task is None or (self._task.done() and now - self._begun > PROBED_S):
            self._begun = now
            self._task = asyncio.create_task(asyncio.to_thread(self._ask), name="probe")
        await asyncio.wait({self._task}, timeout=PROBE_PATIENCE_S)
        if not self._task.done():
            return [f"the log has not answered for {time.monotonic() - self._begun:.0f} s"]
        error = self._task.exception()
        return [] if error is None else [f"the log does not answer: {error}"]


class Readiness:
    """Whether a write can be made durable now and, where roles run together, whether the others can work.

    On one machine all are one service, ready together. On a cluster a balancer asks, and it must not take a collector
    away because the store is: events are still taken. So there the others are told of, and do not decide.
    """

    def __init__(
        self,
        writer: LogWriter,
        committer: Committer,
        forwarder: Forwarder,
        *,
        settings: Settings,
        stop: asyncio.Event,
        together: Collection[str],
    ) -> None:
        self._writer, self._committer, self._forwarder = writer, committer, forwarder
        self._settings, self._stop, self._together = settings, stop, together
        log_is_shared = logs.address(settings, "events").is_shared
        self._one_of_several = log_is_shared or stores.address(settings).is_shared
        # A local log is a matter of this machine's disk, another one of an answer.
        self._probe = None if not log_is_shared else LogProbe(lambda: writer.positions())

    async def report(self) -> tuple[int, dict[str, Any]]:
        """The status of `/readyz` and what stands behind it."""
        asked = [self._query()] if "query" in self._together else []
        troubles, *query = await asyncio.gather(self._troubles(), *asked)
        parts: dict[str, Any] = {"collector": _part(troubles)}
        for role in self._together:
            if role == "query":
                (parts[role],) = query
            elif role != "collector":
                place = self._settings.run_folder / f"{file_stem(role, self._settings.instance)}.json"
                parts[role] = _part([] if place.exists() else [f"{role} has not reported ready"])
        deciding = [parts["collector"]] if self._one_of_several else parts.values()
        ready = all(part["ready"] for part in deciding)
        return (200 if ready else 503), {"ready": ready, **parts}

    async def _troubles(self) -> list[str]:
        if self._stop.is_set():
            return ["stopping"]
        troubles = list(self._writer.sealed().values())
        if self._probe is not None:
            troubles += await self._probe.troubles()
        else:
            free, least = shutil.disk_usage(self._settings.folder).free, self._settings.collector.min_free_bytes
            if free < least:
                troubles.append(f"only {free:,} bytes of disk are free; collector.min_free_bytes = {least:,}")
        if self._committer.failing:
            troubles.append(f"the last commit failed: {self._committer.failing}")
        return troubles

    async def _query(self) -> dict[str, Any]:
        within_s = QUERY_PATIENCE_OF_SEVERAL_S if self._one_of_several else QUERY_PATIENCE_S
        try:
            status, content = await self._forwarder.get("/readyz", within_s=within_s)
        except (OSError, EOFError, TimeoutError) as error:
            return _part([f"query does not answer: {error or type(error).__name__}"])
        try:
            facts = json.loads(content)
        except ValueError:
            facts = {}
        facts = facts if isinstance(facts, dict) else {}
        return {**facts, "ready": status == 200}


def _part(troubles: list[str]) -> dict[str, Any]:
    return {"ready": not troubles, **({"troubles": troubles} if troubles else {})}


def metrics(run_folder: Path, instance: str) -> bytes:
    """This process' metrics and those that one process of each other role left in the run folder.

    Where a role has several, it is the one with the same name, if there is; each serves or leaves its own.
    """
    texts = {"collector": telemetry.exposition()}
    files = sorted(run_folder.glob("*.prom"), key=lambda path: (not path.stem.endswith(f"-{instance}"), path.stem))
    for path in files:
        try:
            texts.setdefault(path.stem.partition("-")[0], path.read_bytes())
        except FileNotFoundError:
            continue  # the role has just stopped
    return merged(texts)


def merged(texts: Mapping[str, bytes]) -> bytes:
    """Expositions of several roles as one: each metric once, from the role it is named after if that has it.

    All roles register all metrics (they are in one module), so most are zero in most files.
    """
    families: dict[bytes, dict[str, bytes]] = {}
    for role, text in texts.items():
        starts = [match.start() for match in _FAMILY.finditer(text)]
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            family = text[start:end]
            name = family.split(b" ", 3)[2]
            families.setdefault(name, {})[role] = family
    chosen = []
    for name, owners in families.items():
        stage = name.decode().removeprefix("tallymark_").partition("_")[0]
        # The log is written by the collector.
        chosen.append(owners.get(stage) or owners.get("collector") or next(iter(owners.values())))
    return b"".join(chosen)
