"""Sketches: sparse maps from slot to number, for what no fixed set of columns can hold.

Two kinds share one map. The slots of a histogram are its buckets (`aggregates.histogram`), and numbers add. The slots
of a distinct count are registers (`aggregates.distinct`), and numbers merge by maximum. Either way the order of merging
never matters.

While they are counted and merged sketches are in long form, a line a slot. In deltas and points a sketch is one blob: a
version, then for each slot in order the distance from the slot before it and the number, both as varints.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

FIRST_REGISTER = 1 << 24
"""slots from here on merge by maximum, those below it by addition"""

_VERSION = 1
_MORE = 0x80
_LONGEST = 10
"""bytes of a varint of 64 bits"""

# What is read at a time: the arrays made of it fit into a processor's cache.
_CHUNK_BYTES = 256 * 1024
# Merged in a table while that is no more than so many times as large as what is merged, else by sorting.
_ROOMY, _SMALL_TABLE = 4, 1 << 18
_MOST_SLOTS = 1 << 20
# Floats add whole numbers exactly below it.
_EXACT = 1 << 53

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


class SketchError(Exception):
    """A blob that this version cannot read; the message says why."""


class Slots(NamedTuple):
    """The long form of many sketches, as columns."""

    row: Integers
    """whose slot it is"""
    slot: Integers
    number: Integers

    def where(self, chosen: npt.NDArray[np.bool_]) -> "Slots":
        return Slots(self.row[chosen], self.slot[chosen], self.number[chosen])

    @property
    def buckets(self) -> "Slots":
        """Those of histograms."""
        return self.where(self.slot < FIRST_REGISTER)

    @property
    def registers(self) -> "Slots":
        """Those of distinct counts."""
        return self.where(self.slot >= FIRST_REGISTER)


def merge_blobs(blobs: pl.Series, group: Integers, groups: int) -> pl.Series:
    """One blob for each of the groups, null for one without any. Fastest if each group's blobs are neighbours."""
    is_blob = blobs.is_not_null().to_numpy()
    has_one = np.bincount(group[is_blob], minlength=groups) == 1
    is_alone = is_blob & has_one[group]
    is_other = is_blob & ~is_alone
    found: list[bytes | None] = [None] * groups
    # A few groups at a time: the long form of a sketch takes ten times as much memory as its blob, or more.
    for slots in _merged_slots(blobs.filter(is_other), group[is_other]):
        first, last = int(slots.row[0]), int(slots.row[-1])
        found[first : last + 1] = _written(slots._replace(row=slots.row - first), last - first + 1)
    # What has nothing to merge with stays as it is.
    for place, blob in zip(group[is_alone].tolist(), blobs.filter(is_alone).to_list(), strict=True):
        found[place] = blob
    return pl.Series("sketch", found, dtype=pl.Binary)


def _merged_slots(blobs: pl.Series, group: Integers) -> Iterator[Slots]:
    """Those of the first groups, then those of the next, and so on."""
    if (group[1:] < group[:-1]).any():
        order = np.argsort(group, kind="stable")
        blobs, group = blobs[order], group[order]
    waiting: list[Slots] = []
    for start, end in _chunks(blobs, group):
        found = read(blobs[start:end])
        part = merge(found._replace(row=group[start + found.row]))
        if not len(part.row):
            continue
        # A group may reach from one chunk into the next.
        if waiting and waiting[-1].row[-1] < part.row[0]:
            yield _together(waiting)
            waiting = []
        waiting.append(part)
    if waiting:
        yield _together(waiting)


def _together(parts: Sequence[Slots]) -> Slots:
    return parts[0] if len(parts) == 1 else merge(_concat(parts))


def merge(slots: Slots) -> Slots:
    """Each slot of each row once, in the order of rows and slots."""
    is_register = slots.slot >= FIRST_REGISTER
    if not is_register.any():
        return _merged(slots, is_register=False)
    if is_register.all():
        return _merged(slots, is_register=True)
    return side_by_side(
        _merged(slots.where(~is_register), is_register=False), _merged(slots.where(is_register), is_register=True)
    )


def side_by_side(buckets: Slots, registers: Slots) -> Slots:
    """Both kinds in the order of rows and slots, each being so already."""
    both = _concat([buckets, registers])
    order = np.argsort(both.row, kind="stable")
    return Slots(both.row[order], both.slot[order], both.number[order])


def _merged(slots: Slots, *, is_register: bool) -> Slots:
    """Of slots that are all of one kind."""
    if not len(slots.slot):
        return slots
    lowest, first_row = int(slots.slot.min()), int(slots.row.min())
    span, rows = int(slots.slot.max()) - lowest + 1, int(slots.row.max()) - first_row + 1
    if span <= _MOST_SLOTS:
        is_used = np.zeros(span, np.bool_)
        is_used[slots.slot - lowest] = True
        used = np.flatnonzero(is_used)
        if rows * len(used) <= max(_ROOMY * len(slots.slot), _SMALL_TABLE):
            place = (np.cumsum(is_used) - 1)[slots.slot - lowest]
            place += (slots.row - first_row) * len(used)
            table = _table(place, slots.number, rows * len(used), is_register=is_register)
            filled = np.flatnonzero(table)
            row, column = np.divmod(filled, len(used))
            return Slots(row + first_row, used[column] + lowest, table[filled])
    return _sorted(slots, is_register=is_register)


def _table(place: Integers, number: Integers, size: int, *, is_register: bool) -> Integers:
    if is_register:
        table = np.zeros(size, np.int64)
        np.maximum.at(table, place, number)
        return table
    if int(number.max()) * len(number) < _EXACT:
        return np.bincount(place, weights=number, minlength=size).astype(np.int64)
    table = np.zeros(size, np.int64)
    np.add.at(table, place, number)
    return table


def _sorted(slots: Slots, *, is_register: bool) -> Slots:
    lowest, first_row = int(slots.slot.min()), int(slots.row.min())
    span, bits = int(slots.slot.max()) - lowest + 1, int(slots.number.max()).bit_length()
    rows = int(slots.row.max()) - first_row + 1
    if (rows * span << bits) < 1 << 63:
        # Row, slot and number as one: sorting that is several times as fast as finding an order and following it.
        whole = np.sort(((slots.row - first_row) * span + (slots.slot - lowest) << bits) + slots.number)
        place, number = whole >> bits, whole & (1 << bits) - 1
        first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
        row, above = np.divmod(place[first], span)
        row, slot = row + first_row, above + lowest
    else:
        order = np.lexsort((slots.slot, slots.row))
        row, slot, number = slots.row[order], slots.slot[order], slots.number[order]
        first = np.flatnonzero(np.concatenate(([True], (row[1:] != row[:-1]) | (slot[1:] != slot[:-1]))))
        row, slot = row[first], slot[first]
    rule = np.maximum if is_register else np.add
    return Slots(row, slot, rule.reduceat(number, first))


def write(slots: Slots, rows: int) -> pl.Series:
    """A blob for each row, null where a row has no slots. The slots are as `merge` gives them."""
    return pl.Series("sketch", _written(slots, rows), dtype=pl.Binary)


def _written(slots: Slots, rows: int) -> list[bytes | None]:
    counts = np.bincount(slots.row, minlength=rows)
    filled = np.flatnonzero(counts)
    ends = np.cumsum(counts)[filled]
    starts = ends - counts[filled]
    distance = np.diff(slots.slot, prepend=np.int64(0))
    distance[starts] = _zigzag(slots.slot[starts])
    pairs = np.empty(2 * len(distance), np.int64)
    pairs[0::2], pairs[1::2] = distance, slots.number
    body, offsets = _varints(pairs)
    version = bytes([_VERSION])
    blobs: list[bytes | None] = [None] * rows
    spans = zip(filled.tolist(), offsets[2 * starts].tolist(), offsets[2 * ends].tolist(), strict=True)
    for row, start, end in spans:
        blobs[row] = version + body[start:end]
    return blobs


def read(blobs: pl.Series) -> Slots:
    """The long form of these sketches, by their place; a null has no slots. Each one's slots are in order."""
    sizes = blobs.bin.size().fill_null(0).to_numpy().astype(np.int64)
    whose = np.flatnonzero(blobs.is_not_null().to_numpy())
    sizes = sizes[whose]
    joined = np.frombuffer(b"".join(blobs.drop_nulls().to_list()), np.uint8)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    if not sizes.all() or (joined[starts] != _VERSION).any():
        version = joined[starts][joined[starts] != _VERSION][0] if sizes.all() else "none"
        raise SketchError(f"a sketch of version {version}, this version of Tallymark knows up to {_VERSION}")
    numbers, last_bytes = _numbers(joined)
    # How many slots each blob has: the varints that end within it, in pairs, after that of the version.
    through = np.searchsorted(last_bytes, ends, side="left")
    varints = np.diff(through, prepend=0)
    if (varints % 2 == 0).any() or (joined[ends - 1] & _MORE).any():
        raise SketchError("a sketch ends in the middle of a slot: it is damaged")
    counts = varints // 2
    is_version = np.zeros(len(numbers), np.bool_)
    is_version[through - varints] = True
    pairs = numbers[~is_version]
    distance, number = pairs[0::2], pairs[1::2]
    filled = counts > 0
    first = (np.cumsum(counts) - counts)[filled]
    slot = distance.copy()
    slot[first] = _unzigzag(distance[first])
    # Within a blob distances add up to slots; what earlier blobs added is taken off again.
    slot = np.cumsum(slot)
    if len(first):
        before = slot[first - 1]
        before[0] = 0
        slot -= np.repeat(before, counts[filled])
    return Slots(np.repeat(whose, counts), slot, number)


def read_in_parts(blobs: pl.Series) -> Iterator[tuple[Slots, int]]:
    """The same for some of them at a time, with how many these are: all at once took 30 times their memory."""
    for start, end in _chunks(blobs, np.arange(len(blobs))):
        yield read(blobs[start:end]), end - start


def of_two(left: bytes, right: bytes) -> bytes:
    """Two blobs as one, slot by slot."""
    merged = merge_blobs(pl.Series([left, right], dtype=pl.Binary), np.zeros(2, np.int64), 1).item()
    return left if merged is None else bytes(merged)


def from_map(slots: Mapping[int, int]) -> bytes:
    """The blob of a map from slot to number."""
    if not slots:
        return bytes([_VERSION])
    slot, number = (np.array(list(each), np.int64) for each in (slots.keys(), slots.values()))
    return bytes(write(merge(Slots(np.zeros(len(slot), np.int64), slot, number)), 1).item())


def to_map(blob: bytes) -> dict[int, int]:
    found = read(pl.Series([blob], dtype=pl.Binary))
    return dict(zip(found.slot.tolist(), found.number.tolist(), strict=True))


def _chunks(blobs: pl.Series, group: Integers) -> Iterator[tuple[int, int]]:
    """(start, end) of pieces of about _CHUNK_BYTES; between two groups where one ends near enough."""
    size = int(blobs.bin.size().sum() or 0)
    length = max(1, len(blobs) * _CHUNK_BYTES // max(size, 1))
    start = 0
    while start < len(blobs):
        end = min(start + length, len(blobs))
        if end < len(blobs) and start < (border := int(np.searchsorted(group, group[end]))) < end:
            end = border
        yield start, end
        start = end


def _concat(parts: Sequence[Slots]) -> Slots:
    if len(parts) == 1:
        return parts[0]
    nothing = np.zeros(0, np.int64)
    return Slots(
        *(np.concatenate([nothing, *columns]) for columns in zip(*parts, strict=True)) if parts else [nothing] * 3
    )


def _zigzag(numbers: Integers) -> Integers:
    """Small numbers of either sign as small numbers without one."""
    return (numbers << 1) ^ (numbers >> 63)


def _unzigzag(numbers: Integers) -> Integers:
    return (numbers >> 1) ^ -(numbers & 1)


def _varints(numbers: Integers) -> tuple[bytes, Integers]:
    """All of them in a row, seven bits a byte, the lowest first; and where each begins, with the end as the last.

    Most take one byte: only the others are looked at further.
    """
    lengths = np.ones(len(numbers), np.int64)
    long = np.flatnonzero(numbers >= _MORE)
    while len(long):
        lengths[long] += 1
        long = long[numbers[long] >> (7 * lengths[long]) > 0]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    body = np.zeros(int(offsets[-1]), np.uint8)
    body[offsets[:-1]] = numbers & (_MORE - 1)
    long = np.flatnonzero(lengths > 1)
    place = 0
    while len(long):
        body[offsets[long] + place] |= np.uint8(_MORE)
        place += 1
        body[offsets[long] + place] = (numbers[long] >> (7 * place)) & (_MORE - 1)
        long = long[lengths[long] > place + 1]
    return body.tobytes(), offsets


def _numbers(body: Bytes) -> tuple[Integers, Integers]:
    """The numbers, and the place of each one's last byte. Most have one byte: only the others are looked at further."""
    ends = np.flatnonzero(body < _MORE)
    numbers = body[ends].astype(np.int64)
    lengths = np.diff(ends, prepend=-1)
    long = np.flatnonzero(lengths > 1)
    if (lengths[long] > _LONGEST).any():
        raise SketchError("a sketch with a number of more than 64 bits: it is damaged")
    back = 0
    while len(long):
        back += 1
        numbers[long] = (numbers[long] << 7) | (body[ends[long] - back] & (_MORE - 1))
        long = long[lengths[long] > back + 1]
    return numbers, ends
