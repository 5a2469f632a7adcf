"""One `up` a data folder: the lock, and who holds it."""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tallymark.role import file_stem, write_atomically


class FolderTaken(Exception):
    """Another `tallymark up` runs on this data folder."""


class FolderLock:
    """Held from `with` to its end, or to the death of the process, whatever kills it."""

    def __init__(self, folder: Path, instance: str = "") -> None:
        self._folder = folder
        self._instance = instance
        self._file: IO[str] | None = None
        self._place = _place(folder, instance)

    def __enter__(self) -> "FolderLock":
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._folder / f"{self._place.stem}.lock", "a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise FolderTaken(_refusal(self._folder, read_place(self._folder, self._instance))) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._place.unlink(missing_ok=True)
        assert self._file is not None
        self._file.close()

    def write(self, *, address: str, children: dict[str, list[int]]) -> None:
        """Tell who asks: the public address, and the pid and start time of each child."""
        facts = {"pid": os.getpid(), "address": address, "children": children}
        write_atomically(self._place, json.dumps(facts).encode())


def _place(folder: Path, instance: str) -> Path:
    return folder / "run" / f"{file_stem('up', instance)}.json"


def read_place(folder: Path, instance: str = "") -> dict[str, Any]:
    """What the present, or the last killed, `up` on this folder wrote; empty if nothing."""
    try:
        facts = json.loads(_place(folder, instance).read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _refusal(folder: Path, holder: dict[str, Any]) -> str:
    where = f", http://{holder['address']}" if holder.get("address") else ""
    who = f" (pid {holder['pid']}{where})" if "pid" in holder else ""
    return (
        f"Tallymark already runs on {folder}{who}; use that one, stop it, choose another folder with --data,"
        " or name this one with --set instance=…"
    )
