"""The keeper as a process: it works by itself, says so, and stops when asked."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tallymark.log import Outgoing, open_writer
from tallymark.settings import Settings
from tallymark.store import deltas, open_store
from tallymark.store.grains import HOUR_S
from tallymark.store.model import DeadLetter, Ledger, Stretch, StretchResult
from tallymark.store.read_plan import Question

PROGRAM = """
import sys
from tallymark.keeper.service import run
from tallymark.settings import Settings
settings = Settings(data=sys.argv[1])
settings.keeper.fold_interval_s = 0.05
sys.exit(run(settings))
"""


def until(holds: Callable[[], bool], *, deadline_s: float = 30.0) -> None:
    give_up = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)


def test_it_folds_rolls_takes_in_letters_and_stops_cleanly(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path))
    two_hours_ago = int(time.time()) // 3600 * 3600 - 2 * 3600
    store = open_store(settings)
    with_letters = open_writer(settings, "dead")
    row = (1, "view", two_hours_ago, 5, 0, None, None, None, None, None)
    rows = deltas.from_rows([row])
    store.sink.apply(
        [StretchResult(Stretch(0, 0, 5), "log", 1, (1,), deltas.encode(rows), Ledger(accepted=5, counted=5))], now_ms=0
    )
    letter = DeadLetter("collector", "bad_time", "why", 1, b"{}", 7)
    with_letters.append([Outgoing(0, msgspec.msgpack.encode([letter]), 1)])

    keeper = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=os.environ | {"POLARS_MAX_THREADS": "1"}
    )
    try:
        until(lambda: store.upkeep.marks().folded == 1 and store.upkeep.marks().rolled[HOUR_S] > two_hours_ago)
        until(lambda: [found for _, found in store.dead_letters.newest()] == [letter])
        until(lambda: store.heartbeats.beats().get("keeper", (0, {}))[1].get("folded") == 1)
        assert store.heartbeats.beats()["keeper"][1] | {"hours_through": 0, "days_through": 0} == {
            "folded": 1,
            "hours_through": 0,
            "days_through": 0,
            "waiting": 0,
            "series": {"1": 1},
            "failing": [],
            "standby": False,
        }
        place = settings.run_folder / "keeper.json"
        assert json.loads(place.read_text())["pid"] == keeper.pid
        until((settings.run_folder / "keeper.prom").exists)
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(timeout=10) == 0
        assert not place.exists()
    finally:
        keeper.kill()
        keeper.wait()
    with store.snapshots.take() as snapshot:
        events = store.registry.meter("main", "events")
        total = snapshot.read(Question(events, where={"event": ["view"]}))
        assert total["n"].item() == 5
    with_letters.close()
    store.close()
