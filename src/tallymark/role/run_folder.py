"""The run folder: where a role announces itself, and how its files there are named and written."""

import json
import os
import re
from pathlib import Path

from tallymark.settings import SettingsError

_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def file_stem(role: str, instance: str) -> str:
    """What the files of a role are called: `collector`, or `collector-a` where several share a data folder."""
    if not instance:
        return role
    if not _INSTANCE.fullmatch(instance):
        raise SettingsError(
            f"instance = {instance!r} becomes part of file names: use up to 64 letters, digits, dots, dashes and _,"
            " beginning with a letter or digit"
        )
    return f"{role}-{instance}"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` so that a reader sees the old or the new content, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)


def announced_pid(place: Path) -> int | None:
    """The process that announced itself in this file; None if none did."""
    try:
        return int(json.loads(place.read_bytes())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
