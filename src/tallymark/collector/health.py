"""What operators ask of the public port: is it alive, can it work, and its numbers."""

import asyncio
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallymark import telemetry
from tallymark.collector.commit import Committer
from tallymark.collector.forward import Forwarder
from tallymark.log.protocol import LogWriter

OTHERS = ("pipeline", "keeper")
_FAMILY = re.compile(rb"^# HELP (\S+)", re.MULTILINE)


class Readiness:
    """Whether a write can be made durable now and, where everything runs together, whether the others can work."""

    def __init__(
        self,
        writer: LogWriter,
        committer: Committer,
        forwarder: Forwarder,
        *,
        log_folder: Path,
        run_folder: Path,
        min_free_bytes: int,
        together: bool,
    ) -> None:
        self._writer, self._committer, self._forwarder = writer, committer, forwarder
        self._log_folder, self._run_folder = log_folder, run_folder
        self._min_free_bytes, self._together = min_free_bytes, together

    async def report(self) -> tuple[int, dict[str, Any]]:
        """The status of `/readyz` and what stands behind it."""
        parts: dict[str, Any] = {"collector": _part(self._troubles())}
        if self._together:
            for role in OTHERS:
                up = (self._run_folder / f"{role}.json").exists()
                parts[role] = _part([] if up else [f"{role} has not said that it is ready"])
            parts["query"] = await self._query()
        ready = all(part["ready"] for part in parts.values())
        return (200 if ready else 503), {"ready": ready, **parts}

    def _troubles(self) -> list[str]:
        troubles = list(self._writer.sealed().values())
        free = shutil.disk_usage(self._log_folder).free
        if free < self._min_free_bytes:
            troubles.append(f"{free:,} bytes of disk are free; collector.min_free_bytes = {self._min_free_bytes:,}")
        if self._committer.failing:
            troubles.append(f"the last commit failed: {self._committer.failing}")
        return troubles

    async def _query(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(2):
                status, content = await self._forwarder.get("/readyz")
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


def metrics(run_folder: Path) -> bytes:
    """This process' metrics and those the other roles left in the run folder."""
    files = {path.stem: path for path in sorted(run_folder.glob("*.prom"))}
    texts = {"collector": telemetry.exposition()}
    for role, path in files.items():
        try:
            texts.setdefault(role, path.read_bytes())
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
