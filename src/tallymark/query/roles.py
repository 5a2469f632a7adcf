"""Which roles are alive: from the run folder of this machine and from their beats in the store."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ROLES = ("collector", "pipeline", "keeper", "query")
SILENT_AFTER_MS = 15_000


def roles(run_folder: Path, beats: Mapping[str, tuple[int, dict[str, Any]]], *, now_ms: int) -> list[dict[str, Any]]:
    """One entry a role, in the order of the data's way: running, silent or absent."""
    return [_role(name, run_folder / f"{name}.json", beats.get(name), now_ms) for name in ROLES]


def _role(name: str, place: Path, beat: tuple[int, dict[str, Any]] | None, now_ms: int) -> dict[str, Any]:
    found = _announced(place)
    # A beat from the future was made before the clock was set back, and says nothing about now.
    is_from_the_future = beat is not None and beat[0] > now_ms + SILENT_AFTER_MS
    beat_age_ms = None if beat is None or is_from_the_future else max(0, now_ms - beat[0])
    heard = beat_age_ms is not None and beat_age_ms <= SILENT_AFTER_MS
    if found is not None:
        # It announced itself here and its process lives; one that beats must also go on beating.
        excused = beat is None or is_from_the_future or found["ready_ms"] > beat[0]
        state = "running" if heard or excused else "silent"
    elif heard:
        state = "running"  # on another machine
    else:
        state = "absent" if beat is None else "silent"
    return {
        "role": name,
        "state": state,
        "address": None if found is None else found.get("address"),
        "since_ms": None if found is None else found.get("ready_ms"),
        "beat_age_ms": beat_age_ms,
        "facts": {} if beat is None else beat[1],
    }


def _announced(place: Path) -> dict[str, Any] | None:
    """What a role wrote when it became ready, if its process is still there."""
    try:
        found = msgspec.json.decode(place.read_bytes())
        os.kill(found["pid"], 0)
    except PermissionError:
        pass  # alive, and somebody else's
    except (OSError, msgspec.DecodeError, KeyError, TypeError, OverflowError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("ready_ms"), int) else None
