"""Which roles are alive, from this machine's run folder and from the heartbeats in the store."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

ROLES = ("collector", "pipeline", "keeper", "query")
SILENT_AFTER_MS = 15_000
FORGOTTEN_AFTER_MS = 3_600_000

Beats = Mapping[str, tuple[int, dict[str, Any]]]


def roles(run_folder: Path, beats: Beats, *, now_ms: int) -> list[dict[str, Any]]:
    """One entry per instance, in the order of the data flow: running, silent or absent.

    An instance that stopped or has been silent for an hour is left out while another one of its role runs.
    """
    found = []
    for role in ROLES:
        instances = [_entry(role, *each, now_ms) for each in _instances(role, run_folder, beats)]
        running = any(each["state"] == "running" for each in instances)
        kept = [each for each in instances if not (running and _is_gone(each))]
        found += kept[:1] if not running and all(each["state"] == "absent" for each in kept) else kept
    return found


def full_name(entry: Mapping[str, Any]) -> str:
    """`keeper`, or `keeper a` if the instance has a name."""
    return f"{entry['role']} {entry['instance']}" if entry["instance"] else str(entry["role"])


def _instances(
    role: str, run_folder: Path, beats: Beats
) -> Iterator[tuple[str | None, dict[str, Any] | None, tuple[int, dict[str, Any]] | None]]:
    """(name, what it announced on this machine, its last heartbeat)"""
    own = {name: beat for name, beat in beats.items() if name.partition("/")[0] == role}
    files = [run_folder / f"{role}.json", *sorted(run_folder.glob(f"{role}-*.json"))]
    seen = False
    for file in files:
        announced = _announced(file)
        if announced is None:
            continue
        seen = True
        named = announced.get("beat")
        name = named if isinstance(named, str) and named in own else role
        instance = file.stem.removeprefix(role).removeprefix("-") or name.partition("/")[2] or None
        yield instance, announced, own.pop(name, None)
    for name, beat in own.items():
        seen = True
        yield name.partition("/")[2] or None, None, beat
    if not seen:
        yield None, None, None


def _entry(
    role: str,
    instance: str | None,
    found: dict[str, Any] | None,
    beat: tuple[int, dict[str, Any]] | None,
    now_ms: int,
) -> dict[str, Any]:
    # A heartbeat from the future was sent before the clock was set back, and says nothing about now.
    is_from_the_future = beat is not None and beat[0] > now_ms + SILENT_AFTER_MS
    beat_age_ms = None if beat is None or is_from_the_future else max(0, now_ms - beat[0])
    heard = beat_age_ms is not None and beat_age_ms <= SILENT_AFTER_MS
    facts = {} if beat is None else beat[1]
    if found is not None:
        # It announced itself here and its process is alive; if it sent heartbeats, they must go on.
        excused = beat is None or is_from_the_future or found["ready_ms"] > beat[0]
        state = "running" if heard or excused else "silent"
    elif facts.get("stopped"):
        state = "absent"
    elif heard:
        state = "running"  # on another machine
    else:
        state = "absent" if beat is None else "silent"
    return {
        "role": role,
        "instance": instance,
        "state": state,
        "address": facts.get("address") if found is None else found.get("address"),
        "since_ms": None if found is None else found.get("ready_ms"),
        "beat_age_ms": beat_age_ms,
        "facts": facts,
    }


def _is_gone(entry: Mapping[str, Any]) -> bool:
    age_ms = entry["beat_age_ms"]
    return entry["state"] == "absent" or (
        entry["state"] == "silent" and age_ms is not None and age_ms > FORGOTTEN_AFTER_MS
    )


def _announced(place: Path) -> dict[str, Any] | None:
    """What a role wrote when it became ready, if its process still exists."""
    try:
        found = msgspec.json.decode(place.read_bytes())
        os.kill(found["pid"], 0)
    except PermissionError:
        pass  # alive, but owned by another user
    except (OSError, msgspec.DecodeError, KeyError, TypeError, OverflowError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("ready_ms"), int) else None
