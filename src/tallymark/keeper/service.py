"""The keeper's process."""

import logging
import time
from contextlib import closing
from functools import partial

from tallymark import log
from tallymark.keeper import letters, points, retention
from tallymark.keeper.duties import Duty, Rota
from tallymark.keeper.streams import Stream
from tallymark.keeper.turn import Turn, holder
from tallymark.role import Role
from tallymark.settings import Settings
from tallymark.store import open_store
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.protocol import Store, StoreError

logger = logging.getLogger(__name__)

BEAT_S = 2.0
FOLD_SHARE = 0.1


def run(settings: Settings) -> int:
    """Keeps the store until it is told to stop, or stands by while another keeper does."""
    with Role(settings, "keeper") as role, closing(open_store(settings)) as store:
        turn = Turn(store, lease_s=settings.keeper.lease_s, holder=holder(role.beat_name))
        events = Stream(partial(log.open_reader, settings, "events"))
        dead = Stream(partial(log.open_reader, settings, "dead"))
        with closing(events), closing(dead):
            rota = make_rota(settings, store, events=events, dead=dead, turn=turn, name=role.beat_name)
            role.announce()
            role.publish_metrics()
            logger.info("keeping %s", settings.store_file if settings.store.kind == "sqlite" else settings.store.hosts)
            with turn.kept():
                rota.run(role.stopping)
            if settings.store.kind != "sqlite":
                say_goodbye(store, role.beat_name)
    return 0


def make_rota(
    settings: Settings, store: Store, *, events: Stream, dead: Stream, turn: Turn | None = None, name: str = "keeper"
) -> Rota:
    """All duties; those that are short and frequent come first. Only the keeper whose turn it is does them.

    Whoever runs the rota keeps the turn.
    """
    keeping = settings.keeper
    turn = turn or Turn(store, lease_s=keeping.lease_s, holder=holder(name))
    rota = Rota(turn=turn)
    duties = [
        # Many series are folded less often: each of their points is then written once for more batches.
        Duty("fold", keeping.fold_interval_s, lambda: points.fold(store, keeping), share=FOLD_SHARE),
        Duty("beat", BEAT_S, lambda: beat(store, rota, name, standby=not turn.ours), always=True),
        Duty("letters", 1.0, lambda: letters.take_in_letters(store, dead)),
        Duty("roll", 10.0, lambda: points.roll(store, keeping, now_ms())),
        Duty("prune", 10.0, lambda: retention.prune(store, settings, now_ms())),
        Duty("checkpoint", 15.0, lambda: retention.checkpoint(store)),
    ]
    if settings.log.kind == "local":  # Kafka deletes what is old by itself
        duties += [
            Duty("retain events", 60.0, lambda: retention.retain_events(store, events, settings, now_ms(), log.retain)),
            Duty("drop old letters", 5.0, lambda: retention.drop_old_letters(dead, settings, log.drop_oldest)),
        ]
    for duty in duties:
        rota.add(duty)
    return rota


def beat(store: Store, rota: Rota, name: str, *, standby: bool) -> None:
    """Says that the keeper is alive, and how far it has come."""
    marks = store.marks()
    facts = {
        "folded": marks.folded,
        "hours_through": marks.rolled[HOUR_S],
        "days_through": marks.rolled[DAY_S],
        "waiting": marks.journal_end - marks.folded,
        "failing": rota.failing(),
        "standby": standby,
    }
    store.beat(name, facts, now_ms=now_ms())


def say_goodbye(store: Store, name: str) -> None:
    try:
        store.beat(name, {"stopped": True}, now_ms=now_ms())
    except StoreError as error:
        logger.warning("cannot say in the store that this keeper stops: %s", error)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
