"""The events of the benchmarks, the same for all of them: as request bodies, as frames, as lines of JSON.

10,000 videos of Zipf popularity, three event names, eight countries, a value; 2 % of the ids come again soon after.
Event time goes on at 100,000 events a second, out of order by up to 3 s.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tallymark.events import columns, frame, ids
from tallymark.events.tenants import MAIN
from tallymark.log.protocol import Outgoing

VIDEOS = 10_000
SKEW = 0.8
NAMES = ("view", "click", "like")
COUNTRIES = ("KR", "US", "JP", "DE", "FR", "GB", "BR", "IN")
REPEATED = 0.02
REPEATED_WITHIN = 20_000
EVENTS_PER_SECOND = 100_000
# What the collector makes of 100,000 events a second: a commit of about two requests of 1,000, cut over two partitions.
FRAME_EVENTS = 1_000

METERS_ONE = [
    {"name": "videos", "event": list(NAMES), "by": ["video"], "compute": ["count", "sum", "min", "max"]},
]
METERS_THREE = [
    *METERS_ONE,
    {"name": "countries", "event": list(NAMES), "by": ["event", "country"], "compute": ["count", "sum", "min", "max"]},
    {"name": "clicks", "event": "click", "by": ["video", "country"], "compute": ["count", "sum", "min", "max"]},
]

_LINE = '{"event":"%s","id":"%s","time":%d,"value":%s,"props":{"video":"video-%d","country":"%s"}}'


@dataclass(frozen=True)
class Traffic:
    """Events as columns; `names`, `videos` and `countries` are numbers."""

    ids: list[str]
    times_ms: npt.NDArray[np.int64]
    names: npt.NDArray[np.int64]
    videos: npt.NDArray[np.int64]
    countries: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def distinct(self) -> int:
        # `events` is part of an event's identity, and a copy carries the same.
        return len(set(self.ids))

    def part(self, start: int, end: int) -> "Traffic":
        return replace(self, **{name: getattr(self, name)[start:end] for name in self.__dataclass_fields__})

    def lines(self) -> list[str]:
        """One JSON text an event, as a client sends it."""
        names = [NAMES[name] for name in self.names.tolist()]
        countries = [COUNTRIES[country] for country in self.countries.tolist()]
        fields = (names, self.ids, self.times_ms.tolist(), self.values.tolist(), self.videos.tolist(), countries)
        return [_LINE % event for event in zip(*fields, strict=True)]

    def frames(self, partitions: int, *, received_ms: int) -> Iterator[Outgoing]:
        """The frames the collector would write, in log order, `FRAME_EVENTS` each."""
        batch, high = self._batch(received_ms)
        assigned = (high % np.uint64(partitions)).astype(np.int64)
        pieces = []
        for partition in range(partitions):
            mine = batch.take(pa.array(np.flatnonzero(assigned == partition)))
            starts = range(0, mine.num_rows, FRAME_EVENTS)
            pieces.append([(partition, mine.slice(start, FRAME_EVENTS)) for start in starts])
        longest = max(len(each) for each in pieces)
        for number in range(longest):
            for partition, piece in (each[number] for each in pieces if number < len(each)):
                yield Outgoing(partition, frame.encode(piece), piece.num_rows)

    def _batch(self, received_ms: int) -> tuple[pa.RecordBatch, npt.NDArray[np.uint64]]:
        """Straight from numpy: the collector's way, through JSON, would take longer than what is measured."""
        names = pa.array(NAMES).take(pa.array(self.names))
        high, low = ids.hashes(MAIN, names.to_pylist(), self.ids)
        count = len(self)
        texts = pa.array([f"video-{video}" for video in range(VIDEOS)])
        found = {
            "id": pa.array(self.ids),
            "hash_high": pa.array(high),
            "hash_low": pa.array(low),
            "tenant": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([MAIN])),
            "event": pa.DictionaryArray.from_arrays(self.names.astype(np.int32), pa.array(NAMES)),
            "time": pa.array(self.times_ms),
            "received": pa.array(np.full(count, received_ms)),
            "shift": pa.array(np.zeros(count, np.int64)),
            "resent": pa.nulls(count, pa.int64()),
            "value": pa.array(self.values),
            columns.PROP + "country": pa.array(COUNTRIES).take(pa.array(self.countries)),
            columns.PROP + "video": texts.take(pa.array(self.videos)),
            "rest": pa.nulls(count, pa.string()),
        }
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found)), high


def traffic(events: int, *, seed: int, start_ms: int) -> Traffic:
    """This many events; another seed gives other ids."""
    chance = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, VIDEOS + 1) ** SKEW
    source = np.arange(events)
    copies = np.flatnonzero(chance.random(events) < REPEATED)
    copies = copies[copies > 0]
    source[copies] -= np.minimum(copies, chance.integers(1, REPEATED_WITHIN, len(copies)))
    # A copy of a copy is a copy of what that one copied: every event's source is then an original.
    source = source[source]
    texts = chance.integers(1, 2**63, events, dtype=np.uint64).astype(">u8").tobytes().hex()
    late = chance.integers(0, 3_000, events)
    return Traffic(
        ids=[texts[16 * place : 16 * place + 16] for place in source.tolist()],
        times_ms=(start_ms + np.arange(events) * 1000 // EVENTS_PER_SECOND - late)[source],
        names=chance.choice(len(NAMES), events, p=[0.8, 0.15, 0.05])[source],
        videos=chance.choice(VIDEOS, events, p=popularity / popularity.sum())[source],
        countries=chance.integers(0, len(COUNTRIES), events)[source],
        values=np.round(chance.lognormal(3, 1, events), 3)[source],
    )
