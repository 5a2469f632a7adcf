"""The events of a frame as people read them; in a process of its own for a frame that may kill whoever reads it."""

import subprocess
import sys
from typing import Any

import msgspec
import pyarrow as pa

from tallymark.events import columns, frame
from tallymark.events.tenants import MAIN

MOST_BYTES = 1_000_000
"""of the events of one answer, as JSON"""
CHILD_TIMEOUT_S = 20.0
CHILD_MEMORY_BYTES = 4_000_000_000
# Only what the sender gave or may want to know; the rest is made from it.
_LEFT_OUT = ("hash_high", "hash_low")


def rows(payload: bytes, *, limit: int, tenant: str = MAIN) -> list[dict[str, Any]]:
    """The first events, in the form in which events are sent, as many as fit; raises FrameError.

    A frame may mix tenants. `main`, the operator, is shown all of its events; any other tenant only its own.
    """
    batch = frame.decode(payload)
    try:
        if tenant != MAIN:
            batch = batch.filter(pa.array([each == tenant for each in batch.column("tenant").to_pylist()], pa.bool_()))
        return _shown(batch.slice(0, limit))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # A whole frame whose columns do not hold what they should: it is a letter because something was wrong with it.
        raise frame.FrameDamaged(f"{len(payload):,} bytes are a frame, but not of events: {error}") from error


def _shown(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    size = 0
    for row in columns.rows(batch):
        event = {name: value for name, value in row.items() if value not in (None, {}) and name not in _LEFT_OUT}
        if not event.get("shift"):
            event.pop("shift", None)
        if event.get("tenant") == MAIN:
            del event["tenant"]
        size += len(msgspec.json.encode(event))
        if found and size > MOST_BYTES:
            break
        found.append(event)
    return found


def rows_in_a_child(payload: bytes, *, limit: int, tenant: str = MAIN) -> list[dict[str, Any]]:
    """Like `rows`, in a process of its own; if that dies, it is a FrameError too."""
    command = [sys.executable, "-m", __name__, str(limit), tenant]
    try:
        done = subprocess.run(command, input=payload, capture_output=True, timeout=CHILD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise frame.FrameError(f"reading it takes longer than {CHILD_TIMEOUT_S:g} s") from None
    if done.returncode == 0:
        return list(msgspec.json.decode(done.stdout))
    said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
    raise frame.FrameError(f"the process that read it ended with code {done.returncode}{said and f': {said}'}")


def main() -> int:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY_BYTES, CHILD_MEMORY_BYTES))
    _, limit, tenant = sys.argv
    sys.stdout.buffer.write(msgspec.json.encode(rows(sys.stdin.buffer.read(), limit=int(limit), tenant=tenant)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
