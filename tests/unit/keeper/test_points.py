"""The keeper's rota is told whether more is left to fold or roll."""

from pathlib import Path

from tallymark.keeper import points
from tallymark.settings import KeeperSettings
from tallymark.store import deltas
from tallymark.store.grains import HOUR_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.sqlite.store import SqliteStore


def test_it_says_whether_more_is_left_to_fold_and_to_roll(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    settings = KeeperSettings(fold_rows=1)
    rows = [(1, series, hour, 1, 0, *[None] * 5) for series in ("a", "b") for hour in (0, 3600)]
    frame = deltas.from_rows(rows)
    ledger = Ledger(accepted=4, counted=4)
    store.sink.apply([StretchResult(Stretch(0, 0, 4), "log", 1, (1,), deltas.encode(frame), ledger)], now_ms=0)
    assert points.fold(store.upkeep, settings)
    while points.fold(store.upkeep, settings):
        assert store.upkeep.marks().folded == 0
    assert store.upkeep.marks().folded == 1
    now_ms = 3 * 3_600_000
    assert points.roll(store.upkeep, settings, now_ms)
    while points.roll(store.upkeep, settings, now_ms):
        pass
    assert store.upkeep.marks().rolled[HOUR_S] == 2 * 3600
    store.close()
