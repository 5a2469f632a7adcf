"""Side files: the ids of the last stretch that a partition counted, until the next one proves that it was applied."""

import os
from pathlib import Path
from zlib import crc32

import numpy as np

from tallymark.pipeline.counting.ids import Ids

MAGIC = b"TMSIDE1\0"


def write(path: Path, identity: str, start: int, end: int, ids: Ids) -> None:
    """Each id once. A file that cannot be written costs a catch-up from the log, not a count."""
    body = b"".join(
        (
            np.array([start, end, len(ids.high)], np.int64).tobytes(),
            identity.encode().ljust(64, b"\0"),
            ids.high.tobytes(),
            ids.low.tobytes(),
            ids.append_ms.astype(np.int64, copy=False).tobytes(),
        )
    )
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(MAGIC + crc32(body).to_bytes(8, "little") + body)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)


def read(path: Path, identity: str) -> tuple[int, int, Ids] | None:
    """(start, end, ids) of the last stretch, or None if it is missing, damaged or of another log."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[:8] != MAGIC or len(content) < 16 + 24 + 64:
        return None
    body = memoryview(content)[16:]
    if crc32(body) != int.from_bytes(content[8:16], "little"):
        return None
    start, end, count = (int(number) for number in np.frombuffer(body[:24], np.int64))
    if bytes(body[24:88]).rstrip(b"\0").decode(errors="replace") != identity or len(body) != 88 + count * 20:
        return None
    high = np.frombuffer(body, np.uint64, count, 88)
    low = np.frombuffer(body, np.uint32, count, 88 + count * 8)
    append_ms = np.frombuffer(body, np.int64, count, 88 + count * 12)
    return start, end, Ids(high, low, append_ms)
