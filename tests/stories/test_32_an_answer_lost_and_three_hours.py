"""Story 32: an event whose answer was lost is resent by the client's spill three hours later: counted once."""

from collections.abc import Iterator

import msgspec
import pytest

from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.validation import validate
from tallymark.log.protocol import Outgoing
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.count import count
from tallymark.pipeline.counting.history import LogHistory
from tallymark.settings import Settings
from tallymark.store import deltas
from tallymark.store.model import MAYBE_DUPLICATE, Ledger, Stretch, StretchResult
from tallymark.store.read_plan import Question
from tallymark.store.sqlite.store import SqliteStore
from tallymark.testing import MemoryLog

NOON_MS = 1_794_744_000_000  # 2026-11-15 12:00
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
HORIZON_MS = Settings().pipeline.horizon_s * 1000
CLOCKS = Clocks(accept_past_ms=7 * 24 * HOUR_MS, accept_future_ms=300_000, tolerance_ms=5_000)


class Path:
    """From a request to the store on a clock that the story sets: the collector's judgement, a log, the counting."""

    def __init__(self, folder) -> None:
        self.now_ms = NOON_MS
        self.folder = folder
        self.log = MemoryLog(1, clock=lambda: self.now_ms)
        self.store = SqliteStore(folder / "store.db")

    def at(self, now_ms: int, *events: dict) -> None:
        """These events are received, made durable and counted."""
        self.now_ms = now_ms
        accepted = validate(Delivery(msgspec.json.encode(events), now_ms, sent_at=now_ms), CLOCKS, max_events=100)
        assert not accepted.refusals
        ((number, payload),) = frame.frames(columns.batch([accepted]))
        self.log.append([Outgoing(0, payload, number)])
        start, end = self.store.sink.applied("memory").get(0, 0), self.log.positions()[0].synced
        meters = self.store.registry.live_meters()
        history = LogHistory(self.log, 0)
        with Claims(self.folder, 0, start=start, end=end, horizon_ms=HORIZON_MS, history=history) as claims:
            counted = count(self.log.read(0, start, end), claims=claims, meters=meters.meters)
        result = StretchResult(
            Stretch(0, start, end),
            "memory",
            meters.revision,
            tuple(meter.meter_id for meter in meters.meters),
            deltas.encode(counted.deltas) if counted.deltas.height else b"",
            counted.ledger,
            received=counted.received,
            dead=counted.dead,
        )
        self.store.sink.apply([result], now_ms=now_ms)

    def total(self) -> int:
        question = Question(self.store.registry.meter("main", "events"))
        with self.store.snapshots.take() as snapshot:
            return int(snapshot.read(question)["n"].sum())

    def ledger(self) -> Ledger:
        with self.store.snapshots.take() as snapshot:
            return sum(snapshot.ledger().values(), Ledger())


@pytest.fixture
def path(tmp_path) -> Iterator[Path]:
    made = Path(tmp_path)
    yield made
    made.store.close()


def view(number: str, **more: int) -> dict:
    return {"event": "view", "id": number, "time": NOON_MS, "props": {"video": "A"}, **more}


def test_counted_once(path):
    #  12:00:00                               15:00:00
    #  a: durable, counted, answer lost       a again, from the spill: "first tried at 12:00:00"
    path.at(NOON_MS, view("a"))
    path.at(NOON_MS + 3 * HOUR_MS, view("a", resent=NOON_MS))
    assert path.total() == 1
    ledger = path.ledger()
    assert (ledger.accepted, ledger.counted, ledger.aside, ledger.missing) == (2, 1, 1, 0)


def test_what_nobody_can_tell_is_kept_whole_and_not_counted(path):
    """The first try never arrived. Until the archive can say so, the event waits: not counted, not lost."""
    path.at(NOON_MS + 3 * HOUR_MS, view("a", resent=NOON_MS), view("b"))
    assert path.total() == 1
    assert path.ledger().aside == 1
    ((_, letter),) = path.store.dead_letters.newest()
    assert (letter.reason, letter.events) == (MAYBE_DUPLICATE, 1)
    (kept,) = columns.rows(frame.decode(letter.raw))
    assert (kept["id"], kept["time"], kept["resent"], kept["props"]) == ("a", NOON_MS, NOON_MS, {"video": "A"})


def test_an_answer_lost_for_some_minutes_costs_nothing(path):
    """Within the horizon it is known whether the first try arrived."""
    path.at(NOON_MS, view("a"))
    path.at(NOON_MS + 5 * MINUTE_MS, view("a", resent=NOON_MS), view("b", resent=NOON_MS))
    assert path.total() == 2
    ledger = path.ledger()
    assert (ledger.duplicate, ledger.aside, ledger.missing) == (1, 0, 0)
