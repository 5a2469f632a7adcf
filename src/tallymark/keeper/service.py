"""The keeper's process."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from tallymark import log, telemetry
from tallymark import store as stores
from tallymark.evaluation.evaluator import Evaluator
from tallymark.fidelity.log_view import stream
from tallymark.keeper import dead_letters, points, retention
from tallymark.keeper.duties import Duty, Rota
from tallymark.keeper.evaluation import Evaluation
from tallymark.keeper.shares import Shares
from tallymark.keeper.streams import Stream
from tallymark.role import Role
from tallymark.role.heartbeat import INTERVAL_S, Heartbeat
from tallymark.role.lease_holder import LeaseHolder
from tallymark.role.loop import Background
from tallymark.settings import Settings
from tallymark.store.grains import DAY_S, HOUR_S
from tallymark.store.protocol import Store
from tallymark.store.queried import Watch
from tallymark.tables import Tables

logger = logging.getLogger(__name__)

FOLD_SHARE = 0.1
# In a heartbeat: those with the most series, which are the ones that anybody asks about.
MOST_SETS = 100
SWEEP_TABLES_S = 600.0


def run(settings: Settings) -> int:
    """Keeps the store until it is told to stop, or stands by while another keeper does."""
    with Role(settings, "keeper") as role, closing(stores.open_store(settings)) as store:
        lease = LeaseHolder(store, "keeper", name=role.heartbeat_name, lease_s=settings.keeper.lease_s)
        heartbeat = Heartbeat(role.heartbeat_name, lambda: store.heartbeats)
        events = Stream(partial(log.open_reader, settings, "events"))
        dead = Stream(partial(log.open_reader, settings, "dead"))
        with closing(events), closing(dead):
            rota = make_rota(settings, store, events=events, dead=dead, lease=lease, heartbeat=heartbeat)
            is_shared = stores.address(settings).is_shared
            role.announce()
            role.publish_metrics()
            logger.info("keeping %s", settings.store.hosts if is_shared else settings.store_file)
            shares = Shares(store, store.heartbeats.beats, name=role.heartbeat_name, lease_s=settings.keeper.lease_s)
            with lease.kept(), Background(shares.run, name="shares"), evaluated(settings, store, shares):
                rota.run(role.stopping)
            if is_shared:
                heartbeat.say_goodbye()
    return 0


@contextmanager
def evaluated(settings: Settings, store: Store, shares: Shares) -> Iterator[None]:
    """Evaluates saved queries meanwhile, in a thread of its own."""
    with closing(stream(settings, "events")) as events:
        evaluator = Evaluator(store, events, accept_past_s=settings.events.accept_past_s, clock_ms=now_ms)
        with Background(Evaluation(evaluator, lambda: shares.held).run, name="evaluation"):
            yield


def make_rota(
    settings: Settings, store: Store, *, events: Stream, dead: Stream, lease: LeaseHolder, heartbeat: Heartbeat
) -> Rota:
    """All duties; those that are short and frequent come first. Only the keeper that holds the lease does them.

    Whoever runs the rota keeps the lease.
    """
    keeping = settings.keeper
    rota, queried = Rota(lease=lease), Watch(store)
    duties = [
        # Many series are folded less often: each of their points is then written once for more batches.
        Duty("fold", keeping.fold_interval_s, lambda: points.fold(store.upkeep, keeping), share=FOLD_SHARE),
        Duty("beat", INTERVAL_S, lambda: heartbeat.beat(facts(store, rota, standby=not lease.is_ours)), always=True),
        Duty("queried", 1.0, lambda: queried.look(now_ms=now_ms())),
        Duty("letters", 1.0, lambda: dead_letters.take_in_letters(store.dead_letters, dead)),
        Duty("roll", 10.0, lambda: points.roll(store.upkeep, keeping, now_ms())),
        Duty("prune", 10.0, lambda: retention.prune(store, settings, now_ms())),
        Duty("checkpoint", 15.0, lambda: retention.checkpoint(store.upkeep)),
        Duty("sweep tables", SWEEP_TABLES_S, lambda: sweep_tables(store, now_ms())),
    ]
    if not log.address(settings, "events").retains_by_itself:
        duties += [
            Duty("retain events", 60.0, lambda: retention.retain_events(store, events, settings, now_ms(), log.retain)),
            Duty("drop old letters", 5.0, lambda: retention.drop_old_letters(dead, settings, log.drop_oldest)),
        ]
    for duty in duties:
        rota.add(duty)
    return rota


def sweep_tables(store: Store, at_ms: int) -> None:
    """Deletes what uploads that broke off have left behind."""
    swept = Tables(store.documents, store.table_parts).sweep(now_ms=at_ms)
    if swept:
        logger.info("deleted %d parts of tables that no table names", swept)


def facts(store: Store, rota: Rota, *, standby: bool) -> dict[str, Any]:
    """What the keeper's heartbeat says: how far it has come, and what fails."""
    marks = store.upkeep.marks()
    series = {} if standby else store.upkeep.series()
    telemetry.KEEPER_SERIES.set(sum(series.values()))
    return {
        "folded": marks.folded,
        "hours_through": marks.rolled[HOUR_S],
        "days_through": marks.rolled[DAY_S],
        "waiting": marks.journal_end - marks.folded,
        "series": {str(set_id): count for set_id, count in Counter(series).most_common(MOST_SETS)},
        "failing": rota.failing(),
        "standby": standby,
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000
