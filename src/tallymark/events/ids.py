"""Ids that the server makes, and the hash under which an event is recognised when it comes again."""

import secrets
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from tallymark.events.model import Event

MAX_IDEMPOTENCY_KEY_CHARS = 240


def from_key(idempotency_key: str, content: bytes, occurrence: int) -> str:
    """The id of an event that has none: the same whenever, and in whatever company, it is sent under this key.

    `occurrence` tells equal events of one request apart: 0 for the first of them.
    """
    # Neither a header nor JSON contains a NUL, so no two triples give one text.
    return xxh3_128_hexdigest(b"%b\0%b\0%d" % (idempotency_key.encode(), content, occurrence))


def content(event: Event) -> bytes:
    """What makes an event this one and no other, as bytes: all but its id and what each attempt renews.

    The order of keys makes no difference, and null is the same as absent. `time` is as sent, not the time of receipt.
    """
    return _contents.encode((event.event, event.time, event.value, _present(event.values), _present(event.props)))


_contents = msgspec.json.Encoder(order="deterministic")


def _present(mapping: Mapping[str, object] | None) -> Mapping[str, object] | None:
    if mapping and None in mapping.values():
        mapping = {key: value for key, value in mapping.items() if value is not None}
    return mapping or None


def random_ids(count: int) -> list[str]:
    """Fresh ids; one call to the kernel for all of them."""
    text = secrets.token_hex(16 * count)
    return [text[start : start + 32] for start in range(0, 32 * count, 32)]


def hashes(
    tenant: str | Sequence[str], names: Sequence[str], ids: Sequence[str]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """96 bits of xxh3_128 over tenant, event name and id, joined by NUL: (high 64, low 32). `high` is never 0.

    `tenant` is the one of all these events, or each event's own.
    """
    digests: list[bytes]
    # A NUL is in none of the parts (validation refuses it), so no two triples give one text.
    if not isinstance(tenant, str):
        parts = zip(tenant, names, ids, strict=True)
        digests = [xxh3_128_digest(f"{whose}\0{name}\0{each}".encode()) for whose, name, each in parts]
    elif len(prefixes := {name: f"{tenant}\0{name}\0" for name in set(names)}) == 1:
        (prefix,) = prefixes.values()
        digests = [xxh3_128_digest((prefix + each).encode()) for each in ids]
    else:
        digests = [xxh3_128_digest((prefixes[name] + each).encode()) for name, each in zip(names, ids, strict=True)]
    words = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 2)
    high = words[:, 0].astype(np.uint64)
    high[high == 0] = 1  # 0 marks a free slot in the claim table
    return high, words[:, 1].astype(np.uint32)
