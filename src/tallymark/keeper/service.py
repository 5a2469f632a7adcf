"""The keeper's process."""

import logging
import time
from contextlib import closing
from functools import partial

from tallymark import log
from tallymark.keeper import letters, points, retention
from tallymark.keeper.duties import Duty, Rota
from tallymark.keeper.streams import Stream
from tallymark.role import Role
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.protocol import Store

logger = logging.getLogger(__name__)

BEAT_S = 2.0
FOLD_SHARE = 0.1


def run(settings: Settings) -> int:
    """Keeps the store until it is told to stop."""
    with Role(settings, "keeper") as role, closing(open_store(settings)) as store:
        events = Stream(partial(log.open_reader, settings, "events"))
        dead = Stream(partial(log.open_reader, settings, "dead"))
        with closing(events), closing(dead):
            rota = make_rota(settings, store, events=events, dead=dead)
            role.announce()
            role.publish_metrics()
            logger.info("keeping %s", settings.store_file)
            rota.run(role.stopping)
    return 0


def make_rota(settings: Settings, store: Store, *, events: Stream, dead: Stream) -> Rota:
    """All duties; those that are short and frequent come first."""
    keeping = settings.keeper
    rota = Rota()
    for duty in (
        # Many series are folded less often: each of their points is then written once for more batches.
        Duty("fold", keeping.fold_interval_s, lambda: points.fold(store, keeping), share=FOLD_SHARE),
        Duty("beat", BEAT_S, lambda: beat(store, rota)),
        Duty("letters", 1.0, lambda: letters.take_in_letters(store, dead)),
        Duty("roll", 10.0, lambda: points.roll(store, keeping, now_ms())),
        Duty("prune", 10.0, lambda: retention.prune(store, settings, now_ms())),
        Duty("checkpoint", 15.0, lambda: retention.checkpoint(store)),
        Duty("retain events", 60.0, lambda: retention.retain_events(store, events, settings, now_ms(), log.retain)),
        Duty("drop old letters", 5.0, lambda: retention.drop_old_letters(dead, settings, log.drop_oldest)),
    ):
        rota.add(duty)
    return rota


def beat(store: Store, rota: Rota) -> None:
    """Says that the keeper is alive, and how far it has come."""
    marks = store.marks()
    facts = {
        "folded": marks.folded,
        "hours_through": marks.hours_through,
        "days_through": marks.days_through,
        "waiting": marks.journal_end - marks.folded,
        "failing": rota.failing(),
    }
    store.beat("keeper", facts, now_ms=now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000
