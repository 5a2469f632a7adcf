"""A memory-mapped hash table: 96 bits of an id's hash -> when it was last appended. Numpy, 16 bytes a slot.

Crash rules: a slot's time and tail are written before its head, so that a reader never meets a half slot; the header
says which boot wrote it and whether a merge was under way (either wrong: rebuild); a running sum over all slots is
checked when a process first opens the file, so that damage is found. Space comes from `posix_fallocate`: a full disk
under a sparse map would be SIGBUS; when there is none, the table lives in memory and the next process rebuilds it.
"""

import mmap
import os
from collections import OrderedDict
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

Heads = npt.NDArray[np.uint64]
Tails = npt.NDArray[np.uint32]
Ticks = npt.NDArray[np.uint32]

SLOT = np.dtype([("high", "<u8"), ("low", "<u4"), ("time", "<u4")])
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("boot", "S40"),
        ("identity", "S64"),
        ("horizon_ms", "<i8"),
        ("base_ms", "<i8"),
        ("through", "<i8"),
        ("bits", "<i8"),
        ("used", "<i8"),
        ("sum", "<u8"),
        ("merging", "<i8"),
        ("check", "<u8"),
    ]
)
HEADER_BYTES = 4096
MAGIC = b"TMCLAIM1"
SMALLEST_BITS = 16
FULL = 0.6
AFTER_GROWTH = 0.3
IN_MEMORY = -1

_opened: OrderedDict[str, "ClaimTable"] = OrderedDict()
_MOST_OPEN = 64


class TableUnusable(Exception):
    """The file exists but says nothing that can be trusted: rebuild from the log."""


class ClaimTable:
    """Use `open` or `create`. Times are append times in ms; -1 means not seen."""

    def __init__(
        self, path: Path | None, header: npt.NDArray[np.void], slots: npt.NDArray[np.void], inode: int
    ) -> None:
        self._path = path
        self._header = header
        self._inode = inode
        self._high, self._low, self._time = slots["high"], slots["low"], slots["time"]
        self._mask = np.uint64(len(slots) - 1)

    @classmethod
    def open(cls, path: Path, *, identity: str, horizon_ms: int) -> "ClaimTable":
        """The table on disk if it is whole, of this boot, this log and this horizon."""
        table = _opened.get(str(path))
        inode = path.stat().st_ino if table is None or not table.in_memory or path.exists() else IN_MEMORY
        if table is None or table._inode != inode:
            table = cls._map(path, inode)
            table._verify_sum()
            _remember(path, table)
        table.check(identity, horizon_ms)
        return table

    @classmethod
    def create(cls, path: Path | None, *, identity: str, horizon_ms: int, through: int) -> "ClaimTable":
        """An empty table that covers nothing before `through`, in place of what is there; without a path, private."""
        return cls._make(path, SMALLEST_BITS, identity=identity, horizon_ms=horizon_ms, through=through)

    @property
    def through(self) -> int:
        return int(self._header["through"][0])

    @property
    def used(self) -> int:
        return int(self._header["used"][0])

    @property
    def in_memory(self) -> bool:
        return self._inode == IN_MEMORY

    @property
    def capacity(self) -> int:
        return len(self._high)

    def find(self, high: Heads, low: Tails) -> npt.NDArray[np.int64]:
        """The last append time of each id, -1 where it was not seen."""
        found = np.full(len(high), -1, np.int64)
        base_ms = int(self._header["base_ms"][0])
        slot = self._home(high)
        # Most ids are new and most probes end at once at an empty slot: only the others are looked at further.
        index = np.flatnonzero(self._high[slot])
        slot = slot[index]
        while len(index):
            there = self._high[slot]
            hit = (there == high[index]) & (self._low[slot] == low[index])
            found[index[hit]] = self._time[slot[hit]].astype(np.int64) + base_ms
            on = ~hit & (there != 0)
            index, slot = index[on], (slot[on] + 1) & int(self._mask)
        return found

    def ids(self) -> tuple[Heads, Tails, npt.NDArray[np.int64]]:
        """All that the table holds: heads, tails and times."""
        filled = np.flatnonzero(self._high)
        times = self._time[filled].astype(np.int64) + int(self._header["base_ms"][0])
        return self._high[filled], self._low[filled], times

    def merge(self, high: Heads, low: Tails, append_ms: npt.NDArray[np.int64]) -> None:
        """Record distinct ids with their times; the later one stays. The table is not usable until `finish`."""
        self._header["merging"] = 1
        self._insert(high, low, (append_ms - int(self._header["base_ms"][0])).astype(np.uint32))

    def finish(self, through: int) -> None:
        """The table now covers exactly what lies before `through`."""
        self._header["merging"] = 0
        self._header["through"] = through
        self._header["check"] = self._header_check()

    def with_room(self, more: int, *, oldest_ms: int) -> "ClaimTable":
        """This table, or a new file with room for `more` ids, without those last seen before `oldest_ms`."""
        header = self._header[0]
        if (self.used + more) <= self.capacity * FULL and oldest_ms - int(header["base_ms"]) < 2**31:
            return self
        times = self._time.astype(np.int64) + int(header["base_ms"])
        live = np.flatnonzero((self._high != 0) & (times >= oldest_ms))
        bits = max(SMALLEST_BITS, int(np.ceil(np.log2((len(live) + more) / AFTER_GROWTH))))
        return self._make(
            self._path,
            bits,
            identity=header["identity"].decode(),
            horizon_ms=int(header["horizon_ms"]),
            through=self.through,
            base_ms=oldest_ms,
            ids=(self._high[live], self._low[live], times[live]),
            merging=bool(header["merging"]),
        )

    def _home(self, high: Heads) -> npt.NDArray[np.int64]:
        """The slot to look at first; not by the low bits, which chose the partition and so are alike here."""
        return ((high >> np.uint64(32)) & self._mask).astype(np.int64)

    def _insert(self, high: Heads, low: Tails, time: Ticks) -> None:
        index = np.arange(len(high))
        slot = self._home(high)
        used, total = self.used, int(self._header["sum"][0])
        while len(index):
            vacant = self._high[slot] == 0
            takers, free = index[vacant], slot[vacant]
            # Several ids may want one slot: numpy lets the last one win in all three columns alike.
            self._time[free] = time[takers]
            self._low[free] = low[takers]
            self._high[free] = high[takers]
            mine = (self._high[slot] == high[index]) & (self._low[slot] == low[index])
            fresh = index[mine & vacant]
            used += len(fresh)
            total += _sum(high[fresh], low[fresh], time[fresh])
            total += self._renew(slot[mine & ~vacant], time[index[mine & ~vacant]])
            index, slot = index[~mine], (slot[~mine] + 1) & int(self._mask)
        self._header["used"] = used
        self._header["sum"] = total & _MASK64

    def _renew(self, slot: npt.NDArray[np.int64], time: Ticks) -> int:
        """Move the times of known ids forward; what that adds to the sum."""
        if not len(slot):
            return 0
        old = self._time[slot]
        kept = np.maximum(old, time)
        self._time[slot] = kept
        return int((kept.astype(np.uint64) - old).sum()) * _TIME_FACTOR

    def _verify_sum(self) -> None:
        filled = np.flatnonzero(self._high)
        total = _sum(self._high[filled], self._low[filled], self._time[filled])
        if total & _MASK64 != int(self._header["sum"][0]) or len(filled) != self.used:
            raise TableUnusable(f"{self._path}: contents do not add up")

    def _header_check(self) -> int:
        """A checksum of all header fields before it."""
        return crc32(self._header.tobytes()[: -HEADER["check"].itemsize])

    def check(self, identity: str, horizon_ms: int) -> None:
        """Raises TableUnusable if the table is not whole, or not of this boot, this log and this horizon."""
        header = self._header[0]
        if int(header["check"]) != self._header_check():
            raise TableUnusable(f"{self._path}: the header does not add up")
        expected = (MAGIC, boot_id(), identity.encode(), 0)
        found = (header["magic"], header["boot"], header["identity"], int(header["merging"]))
        # Another horizon, shorter or longer, has forgotten by another rule.
        if found != expected or int(header["horizon_ms"]) != horizon_ms:
            raise TableUnusable(f"{self._path}: of another boot, log or horizon, or left in the middle of a merge")

    @classmethod
    def _map(cls, path: Path, inode: int) -> "ClaimTable":
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size < HEADER_BYTES + SLOT.itemsize:
                raise TableUnusable(f"{path}: {size} bytes are no table")
            mapped = mmap.mmap(file.fileno(), size)
        header = np.frombuffer(mapped, HEADER, 1)
        bits = int(header["bits"][0])
        if header["magic"][0] != MAGIC or not 1 <= bits <= 40 or size != HEADER_BYTES + (SLOT.itemsize << bits):
            raise TableUnusable(f"{path}: not a claim table")
        return cls(path, header, np.frombuffer(mapped, SLOT, 1 << bits, HEADER_BYTES), inode)

    @classmethod
    def _make(
        cls,
        path: Path | None,
        bits: int,
        *,
        identity: str,
        horizon_ms: int,
        through: int,
        base_ms: int = 0,
        ids: tuple[Heads, Tails, npt.NDArray[np.int64]] | None = None,
        merging: bool = False,
    ) -> "ClaimTable":
        size = HEADER_BYTES + (SLOT.itemsize << bits)
        draft = None if path is None else path.with_name(f"{path.name}.{os.getpid()}")
        buffer = mmap.mmap(-1, size) if draft is None else _allocate(draft, size)
        table = cls(
            path, np.frombuffer(buffer, HEADER, 1), np.frombuffer(buffer, SLOT, 1 << bits, HEADER_BYTES), IN_MEMORY
        )
        header = table._header
        header["magic"], header["boot"], header["identity"] = MAGIC, boot_id(), identity.encode()
        header["horizon_ms"], header["base_ms"], header["bits"] = horizon_ms, base_ms, bits
        if ids is not None:
            table._insert(ids[0], ids[1], (ids[2] - base_ms).astype(np.uint32))
        if merging:
            header["merging"], header["through"] = 1, through
        else:
            table.finish(through)
        if path is None or draft is None:
            return table
        if draft.exists():
            draft.replace(path)
            table._inode = path.stat().st_ino
        else:
            path.unlink(missing_ok=True)
        _remember(path, table)
        return table


_TIME_FACTOR = 0x9E3779B97F4A7C15
_MASK64 = 2**64 - 1


def _sum(high: Heads, low: Tails, time: Ticks) -> int:
    """An order-free checksum that can be kept up to date as slots change."""
    heads = int(high.sum(dtype=np.uint64))
    tails = int(low.sum(dtype=np.uint64)) * 0xC2B2AE3D27D4EB4F
    return heads + tails + int(time.sum(dtype=np.uint64)) * _TIME_FACTOR


def _allocate(path: Path, size: int) -> mmap.mmap:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError:
        path.unlink(missing_ok=True)
        return mmap.mmap(-1, size)


def _remember(path: Path, table: ClaimTable) -> None:
    _opened[str(path)] = table
    _opened.move_to_end(str(path))
    while len(_opened) > _MOST_OPEN:
        _opened.popitem(last=False)


def boot_id() -> bytes:
    """Changes with every start of the machine: what was only in its memory is then gone."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b"unknown"
