"""A counting path without Spark: records go in, cut into stretches as the test likes; counts come out."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import polars as pl
import pytest

from tallymark.log.protocol import Record
from tallymark.pipeline.counting.claims import Claims, Ids
from tallymark.pipeline.counting.count import Counted, count, count_without_those_that_fail
from tallymark.pipeline.counting.decode import ids_of
from tallymark.store import deltas
from tallymark.store.model import Ledger


class RecordedHistory:
    """`claims.History` over a list of records."""

    identity = "recorded"
    first = 0
    slack_ms = 0
    has_wall_times = False

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def append_ms(self, offset: int) -> int | None:
        return self.records[offset].append_ms if offset < len(self.records) else None

    def offset_at(self, append_ms: int) -> int:
        return next((r.offset for r in self.records if r.append_ms >= append_ms), len(self.records))

    def ids(self, start: int, end: int) -> Iterator[Ids]:
        yield from ids_of(self.records[start:end])

    def is_whole(self, start: int, end: int) -> bool:
        return True


class Path:
    """Every inner list is a frame; `cuts` says after how many frames each stretch ends."""

    def __init__(self, build, folder) -> None:
        self.build = build
        self.folder = folder
        self.records: list[Record] = []
        self.results: list[Counted] = []
        self.meters = build.meters()
        self.broken = ()
        self.has_wall_times = False

    def process(self, frames: list[list[dict]], *, cuts: list[int] | None = None, gap_ms: int = 1) -> "Path":
        start = len(self.records)
        for number, events in enumerate(frames, start=start):
            append_ms = self.build.at_ms("12:30:00") + number * gap_ms
            self.records.append(self.build.record(events, number, append_ms=append_ms))
        for end in [*(start + cut for cut in cuts or []), len(self.records)]:
            self.results.append(self.stretch(start, end))
            start = end
        return self

    def stretch(self, start: int, end: int) -> Counted:
        history = RecordedHistory(self.records)
        history.has_wall_times = self.has_wall_times

        def count_with(meters, broken) -> Counted:
            with Claims(self.folder, 0, start=start, end=end, horizon_ms=600_000, history=history) as claims:
                return count(self.records[start:end], claims=claims, meters=meters, broken=broken)

        return count_without_those_that_fail(count_with, meters=self.meters, broken=self.broken)

    def deltas(self, meter: int = 1) -> pl.DataFrame:
        return deltas.merge(result.deltas for result in self.results).filter(pl.col("meter") == meter).sort("series")

    def counts(self, meter: int = 1) -> dict[str, int]:
        """Events per minute: {"12:00": 3}."""
        found: Counter[str] = Counter()
        for row in self.deltas(meter).iter_rows(named=True):
            found[datetime.fromtimestamp(row["bucket_s"], UTC).strftime("%H:%M")] += row["n"]
        return dict(found)

    def series(self, meter: int) -> dict[tuple[str, ...], int]:
        found: Counter[tuple[str, ...]] = Counter()
        for row in self.deltas(meter).iter_rows(named=True):
            found[tuple(row["series"].split("\0"))] += row["n"]
        return dict(found)

    def ledger(self) -> Ledger:
        total = Ledger()
        for result in self.results:
            total += result.ledger
        return total

    def ledgers(self) -> dict[str, Ledger]:
        """By tenant."""
        found: dict[str, Ledger] = {}
        for result in self.results:
            for tenant, ledger in result.ledgers.items():
                found[tenant] = found.get(tenant, Ledger()) + ledger
        return found


@pytest.fixture
def path(build, tmp_path) -> Path:
    return Path(build, tmp_path / "claims")
