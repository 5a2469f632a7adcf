"""The product as the story drives it: its log, its counting and its store, without a Spark and without a clock.

The only module here that knows how the stages are called; it goes with them when they are renamed.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tallymark import log as logs
from tallymark import store as stores
from tallymark.collector.dead_letters import dead_records
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import Accepted, validate
from tallymark.keeper.dead_letters import take_in_letters
from tallymark.keeper.streams import Stream
from tallymark.log.protocol import Appended, Outgoing
from tallymark.meters import from_mapping
from tallymark.pipeline.counting import plan as planning
from tallymark.pipeline.counting.plan import Plan, Task
from tallymark.pipeline.counting.salvage import burial
from tallymark.pipeline.counting.task import count_task
from tallymark.settings import Settings
from tallymark.store.address import StoreAddress
from tallymark.store.documents import Kind
from tallymark.store.grains import HOUR_S, MINUTE_S, floor
from tallymark.store.model import LiveMeters, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.store.windows import Lineage, ShareChange, StoredWindow
from tallymark.tables import Tables
from tallymark.tables import read as read_table
from upgrades.story import MAIN, Definition, Event

CLOCKS = Clocks(accept_past_ms=7 * 86_400_000, accept_future_ms=300_000, tolerance_ms=5_000)
HORIZON_MS = 600_000
WHY = "InvalidOperationError: this meter was made to fail"
# Few points at a time, so that a fold or a roll can be left half done.
SLICE_SERIES = 5
ROLL_DELAY_S = 120
# So that a small log has several.
SEGMENT_BYTES = 20_000


class Product:
    """See `story.Teller`. `deposits` is where tasks bring their deltas, if not with their result."""

    def __init__(self, folder: Path, store: Store, *, deposits: StoreAddress | None = None) -> None:
        self.store = store
        settings = Settings(data=str(folder))
        settings.log.segment_bytes = SEGMENT_BYTES
        self._writers = {stream: logs.open_writer(settings, stream) for stream in ("events", "dead")}
        self._log = logs.open_reader(settings, "events")
        self._dead = Stream(lambda: logs.open_reader(settings, "dead"))
        self._plan = Plan(
            log=logs.address(settings, "events"),
            store=stores.address(settings),
            claims_folder=str(settings.claims_folder.absolute()),
            horizon_ms=HORIZON_MS,
            max_events=1_000_000,
            max_bytes=1_000_000_000,
        )
        self._deposits = deposits
        self._batches = 0

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._log.close()
        self._dead.close()
        self.store.close()
        for cached in (planning.open_log, planning.open_deposits):
            cached.cache_clear()

    def put_meter(self, definition: Definition, *, now_ms: int, tenant: str = MAIN) -> None:
        self.store.registry.put_meter(tenant, from_mapping(definition.mapping), now_ms=now_ms)

    def delete_meter(self, name: str, *, now_ms: int) -> None:
        self.store.registry.delete_meter("main", name, now_ms=now_ms)

    def resume_meter(self, name: str) -> None:
        self.store.registry.resume_meter("main", name)

    def append(self, partition: int, received_ms: int, events: Sequence[Event], *, tenant: str = MAIN) -> None:
        accepted = _validated(events, received_ms, tenant)
        assert not accepted.refusals, accepted.refusals
        ((count, content),) = frame.frames(columns.batch([accepted]))
        self._append("events", Outgoing(partition, content, count))

    def append_garbage(self, partition: int, events: int) -> None:
        self._append("events", Outgoing(partition, b"no frame at all", events))

    def refuse(self, received_ms: int, events: Mapping[str, Event], *, tenant: str = MAIN) -> None:
        accepted = _validated(list(events.values()), received_ms, tenant)
        assert [refusal.code for refusal in accepted.refusals] == list(events)
        for each in dead_records([accepted]):
            self._append("dead", each.record)

    def apply(self, *, now_ms: int, breaks: Mapping[str, int] | None = None) -> None:
        applied = self.store.sink.applied(self._log.identity)
        ends = {partition: at.synced for partition, at in self._log.positions().items()}
        stretches = [Stretch(partition, applied.get(partition, 0), end) for partition, end in ends.items()]
        broken = {
            self.store.registry.meter("main", name).meter_id: partition for name, partition in (breaks or {}).items()
        }
        self._batches += 1
        results = [self._count(stretch, broken) for stretch in stretches if stretch.start < stretch.end]
        assert self.store.sink.apply(results, now_ms=now_ms) == results

    def bury(self, partition: int, *, now_ms: int) -> None:
        at = self.store.sink.applied(self._log.identity)[partition]
        buried = burial(Stretch(partition, at, at + 1), RuntimeError("the worker is gone"), self._log)
        assert self.store.sink.apply([buried], now_ms=now_ms) == [buried]

    def take_in_letters(self) -> None:
        while take_in_letters(self.store.dead_letters, self._dead):
            pass

    def fold(self, *, most_points: int = 100_000, slices: int | None = None) -> None:
        if slices is None:
            while self.store.upkeep.fold(most_points=most_points).more:
                pass
        else:
            assert all(self.store.upkeep.fold(most_points=most_points).more for _ in range(slices))

    def roll(self, *, now_ms: int, slices: int | None = None, of_hours: bool = True) -> None:
        if slices is None:
            while self._roll_slice(now_ms):
                pass
            return
        hours_s = floor(now_ms // 1000 - ROLL_DELAY_S, HOUR_S)
        while of_hours and self.store.upkeep.marks().rolled[MINUTE_S] < hours_s:
            assert self._roll_slice(now_ms)
        assert all(self._roll_slice(now_ms) for _ in range(slices))

    def _roll_slice(self, now_ms: int) -> bool:
        return self.store.upkeep.roll(now_ms=now_ms, delay_s=ROLL_DELAY_S, slice_series=SLICE_SERIES)

    def prune(self, *, now_ms: int) -> None:
        assert self.store.upkeep.prune(now_ms=now_ms, journal_keep_ms=3_600_000, letter_bytes=1_000_000).journal

    def beat(self, role: str, *, now_ms: int) -> None:
        self.store.heartbeats.beat(role, {"pid": 1}, now_ms=now_ms)

    def save(self, kind: Kind, name: str, body: str, *, now_ms: int) -> None:
        self.store.documents.put(kind, MAIN, name, body, now_ms=now_ms)

    def put_table(self, name: str, rows: Sequence[Event], *, key: str, now_ms: int) -> None:
        body = read_table(msgspec.json.encode(rows), "json", key=key)
        Tables(self.store.documents, self.store.table_parts).put(MAIN, name, key, body, now_ms=now_ms)

    def store_windows(self, query: str, windows: Mapping[int, bytes]) -> None:
        first, last = min(windows), max(windows)
        lineage = Lineage(7, MAIN, query, "digest", 6_000, first, last + 60, last + 120, last + 60, len(windows))
        stored = [StoredWindow(lineage, start_s, body) for start_s, body in windows.items()]
        self.store.windows.write([ShareChange(lineage.share, 1, 1, [lineage], windows=stored)])

    def _count(self, stretch: Stretch, broken: Mapping[int, int]) -> StretchResult:
        """As a task counts it; meters in `broken` fail in the partition that is named with them."""
        live = self.store.registry.live_meters()
        failing = {meter: WHY for meter, partition in broken.items() if partition == stretch.partition}
        counting = tuple(each for each in live.meters if each.meter_id not in failing)
        stopped = (*live.broken, *(each for each in live.meters if each.meter_id in failing))
        # Every other batch brings its deltas itself, so that a journal has both kinds of entries.
        is_deposited = self._deposits is not None and self._batches % 2 == 0
        plan = dataclasses.replace(self._plan, store=self._deposits) if is_deposited else self._plan
        skip = frozenset(self.store.sink.buried(stretch.partition))
        encoded = count_task(Task(stretch, plan, LiveMeters(live.revision, counting, stopped), skip))
        return dataclasses.replace(msgspec.msgpack.decode(encoded, type=StretchResult), broken=failing)

    def _append(self, stream: str, record: Outgoing) -> None:
        (outcome,) = self._writers[stream].append([record])
        assert isinstance(outcome, Appended), outcome


def _validated(events: Sequence[Event], received_ms: int, tenant: str) -> Accepted:
    accepted = validate(Delivery(msgspec.json.encode(events), received_ms), CLOCKS, max_events=100_000)
    accepted.tenant = tenant
    return accepted
