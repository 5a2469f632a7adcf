"""Parts of tables: how a body is cut into chunks, and how a name tells whether all of them are there."""

import uuid
from collections.abc import Sequence

# A row well below the 16 MB at which Cassandra refuses a write. SQLite writes each on its own, so that the sink waits
# for one of them and not for a whole table.
CHUNK_BYTES = 512_000


def cut(body: bytes) -> tuple[str, list[bytes]]:
    """A fresh name, which says how many chunks there are, and the chunks."""
    chunks = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)] or [b""]
    return f"{uuid.uuid4().hex}/{len(chunks)}", chunks


def joined(part: str, chunks: Sequence[bytes]) -> bytes | None:
    """The body; None if chunks are missing."""
    return b"".join(chunks) if len(chunks) == int(part.partition("/")[2]) else None
