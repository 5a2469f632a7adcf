"""Ids that the server makes, and the hash under which an event is recognised when it comes again."""

import secrets
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest

MAX_IDEMPOTENCY_KEY_CHARS = 240


def from_key(idempotency_key: str, index: int) -> str:
    """The id of the event at `index` of a request: the same whenever the request is sent again."""
    return f"{idempotency_key}/{index}"


def random_ids(count: int) -> list[str]:
    """Fresh ids; one call to the kernel for all of them."""
    text = secrets.token_hex(16 * count)
    return [text[start : start + 32] for start in range(0, 32 * count, 32)]


def hashes(
    tenant: str, names: Sequence[str], ids: Sequence[str]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """96 bits of xxh3_128 over tenant, event name and id, joined by NUL: (high 64, low 32). `high` is never 0."""
    # A NUL is in none of the parts (validation refuses it), so no two triples give one text.
    prefixes = {name: f"{tenant}\0{name}\0" for name in set(names)}
    if len(prefixes) == 1:
        (prefix,) = prefixes.values()
        digests = [xxh3_128_digest((prefix + each).encode()) for each in ids]
    else:
        digests = [xxh3_128_digest((prefixes[name] + each).encode()) for name, each in zip(names, ids, strict=True)]
    words = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2)
    high = words[:, 0].astype(np.uint64)
    high[high == 0] = 1  # 0 marks a free slot in the claim table
    return high, words[:, 1].astype(np.uint32)
