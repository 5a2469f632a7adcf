"""Sketches: sparse maps from slot to number, for what no fixed set of columns can hold.

Two kinds share one map. The slots of a histogram are its buckets, and numbers add. The slots of a distinct count are
registers, and numbers merge by maximum. Either way the order of merging never matters.

While they are counted and merged sketches are in long form, a row a slot. In deltas and points a sketch is one blob: a
version, then for each slot in order the distance from the slot before it and the number, both as varints.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

SLOT_TYPES = {"slot": pl.Int32(), "number": pl.Int64()}
"""columns of the long form beside its keys"""

FIRST_REGISTER = 1 << 24
"""slots from here on merge by maximum, those below it by addition"""

_VERSION = 1
_MORE, _BITS = np.uint8(0x80), np.uint64(7)
_LONGEST = 10
"""bytes of a varint of 64 bits"""

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.uint64]


class SketchError(Exception):
    """A blob that this version cannot read; the message says why."""


def merge(slots: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Long form in which each slot of each key stands once, in the order of keys and slots.

    Sorting takes half the time of grouping where keys are numbers, and the blobs want the slots in order anyway.
    """
    ordered = slots.select(*keys, *SLOT_TYPES).sort(*keys, "slot")
    if ordered.is_empty():
        return ordered
    is_new = [pl.col(name).ne_missing(pl.col(name).shift()) for name in (*keys, "slot")]
    first = ordered.select(pl.any_horizontal(is_new) | (pl.int_range(pl.len()) == 0)).to_series().arg_true().to_numpy()
    merged, number = ordered[first], ordered["number"].to_numpy()
    is_register = merged["slot"].to_numpy() >= FIRST_REGISTER
    number = np.where(is_register, np.maximum.reduceat(number, first), np.add.reduceat(number, first))
    return merged.with_columns(pl.Series("number", number))


def encode(slots: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """A row a key with its blob, `sketch`. The slots are as `merge` gives them."""
    numbered = slots.select(*keys).with_row_index("end")
    ends = numbered.group_by(*keys, maintain_order=True).agg(pl.col("end").max() + 1)
    last = ends["end"].to_numpy().astype(np.int64)
    first = np.concatenate(([0], last[:-1]))[: len(last)]
    slot = slots["slot"].to_numpy().astype(np.int64)
    distance = np.diff(slot, prepend=np.int64(0))
    distance[first] = _zigzag(slot[first])
    pairs = np.empty(2 * len(slot), np.uint64)
    pairs[0::2], pairs[1::2] = distance, slots["number"].to_numpy()
    body, offsets = _varints(pairs)
    version = bytes([_VERSION])
    spans = zip(offsets[2 * first].tolist(), offsets[2 * last].tolist(), strict=True)
    blobs = [version + body[start:end] for start, end in spans]
    return ends.select(*keys, pl.Series("sketch", blobs, dtype=pl.Binary))


def decode(sketches: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The long form of the rows whose `sketch` is not null."""
    found = sketches.select(*keys, "sketch").filter(pl.col("sketch").is_not_null())
    blobs = found["sketch"].to_list()
    for blob in blobs:
        if blob[:1] != bytes([_VERSION]):
            version = blob[0] if blob else "none"
            raise SketchError(f"a sketch of version {version}, this version of Tallymark knows up to {_VERSION}")
    joined = np.frombuffer(b"".join(blob[1:] for blob in blobs), np.uint8)
    numbers, ends = _numbers(joined)
    # How many slots each blob has: the varints that end within it, in pairs.
    borders = np.cumsum([len(blob) - 1 for blob in blobs], dtype=np.int64)
    counts = np.diff(np.searchsorted(ends, borders, side="left"), prepend=0) // 2
    if 2 * int(counts.sum()) != len(numbers) or (joined[borders[borders > 0] - 1] & _MORE).any():
        raise SketchError("a sketch ends in the middle of a slot: it is damaged")
    distance, number = numbers[0::2].astype(np.int64), numbers[1::2].astype(np.int64)
    filled = counts > 0
    first = np.concatenate(([0], np.cumsum(counts)[:-1]))[: len(counts)][filled]
    distance[first] = _unzigzag(distance[first])
    # Within a blob distances add up to slots; what earlier blobs added is taken off again.
    slot = np.cumsum(distance)
    before = np.where(first > 0, slot[first - 1], 0) if len(first) else first
    slot -= np.repeat(before, counts[filled])
    rows = np.repeat(np.arange(len(blobs)), counts)
    return found.select(*keys)[rows].with_columns(
        pl.Series("slot", slot, dtype=pl.Int64).cast(SLOT_TYPES["slot"]), pl.Series("number", number, dtype=pl.Int64)
    )


def of_two(left: bytes, right: bytes) -> bytes:
    """Two blobs as one, slot by slot."""
    merged = merge(decode(_column([left, right]), ["key"]), ["key"])
    return bytes(encode(merged, ["key"])["sketch"].item()) if merged.height else left


def from_map(slots: Mapping[int, int]) -> bytes:
    """The blob of a map from slot to number."""
    long = pl.DataFrame([(0, *pair) for pair in slots.items()], schema={"key": pl.Int32(), **SLOT_TYPES}, orient="row")
    return bytes(encode(merge(long, ["key"]), ["key"])["sketch"].item()) if slots else bytes([_VERSION])


def to_map(blob: bytes) -> dict[int, int]:
    return dict(decode(_column([blob]), ["key"]).select("slot", "number").rows())


def _column(blobs: Sequence[bytes]) -> pl.DataFrame:
    return pl.DataFrame({"key": pl.repeat(0, len(blobs), dtype=pl.Int32, eager=True), "sketch": pl.Series(blobs)})


def _zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Small numbers of either sign as small numbers without one."""
    return (numbers << 1) ^ (numbers >> 63)


def _unzigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (numbers >> 1) ^ -(numbers & 1)


def _varints(numbers: Numbers) -> tuple[bytes, npt.NDArray[np.int64]]:
    """All of them in a row, seven bits a byte, the lowest first; and where each begins, with the end as the last."""
    lengths = np.ones(len(numbers), np.int64)
    for place in range(1, _LONGEST):
        lengths += numbers >> (_BITS * np.uint64(place)) > 0
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    body = np.zeros(int(offsets[-1]), np.uint8)
    for place in range(int(lengths.max(initial=0))):
        reached = np.flatnonzero(lengths > place)
        part = (numbers[reached] >> (_BITS * np.uint64(place))).astype(np.uint8) & ~_MORE
        body[offsets[reached] + place] = np.where(lengths[reached] > place + 1, part | _MORE, part)
    return body.tobytes(), offsets


def _numbers(body: Bytes) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """The numbers, and the place of each one's last byte."""
    ends = np.flatnonzero(body & _MORE == 0)
    if not len(ends):
        return np.empty(0, np.uint64), ends
    starts = np.concatenate(([0], ends[:-1] + 1))
    place = np.arange(ends[-1] + 1) - np.repeat(starts, ends - starts + 1)
    parts = (body[: ends[-1] + 1] & ~_MORE).astype(np.uint64) << (_BITS * place.astype(np.uint64))
    return np.add.reduceat(parts, starts), ends
