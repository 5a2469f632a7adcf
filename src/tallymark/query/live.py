"""`live`: what each applied batch adds to a meter."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from tallymark.evaluation.values import values
from tallymark.events.moments import rfc3339_s
from tallymark.query import parsing
from tallymark.query.meters_api import known_meter
from tallymark.query.routes import Request
from tallymark.query.sources import Sources
from tallymark.query.streams import News, Opening, Source, message
from tallymark.store import deltas
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Store

INTERVAL_S = 0.2
MOST_CHANGES = 1000

Where = tuple[tuple[str, tuple[str, ...]], ...]


class Wanted(NamedTuple):
    """What one listens to, and the sequence in the journal up to which it was told."""

    tenant: str
    name: str
    where: Where
    sequence: int


class Live:
    """The feed of changes."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._feed = Source("live", lambda groups: news(sources.store, groups), interval_s=INTERVAL_S)

    def opening(self, request: Request) -> Opening:
        """The changes of a meter from now on, or from where the client was."""
        store = self._sources.store
        meter = known_meter(store.registry, request.tenant, request.arguments["name"])
        where = parsing.live(meter, request.pairs)
        since = _resume(request, store.snapshots.journal_end())
        picked = tuple((key, tuple(values)) for key, values in where.items())
        wanted = Wanted(request.tenant, meter.meter.name, picked, since)
        return Opening(self._feed, wanted, hello(wanted, meter.version))


def hello(wanted: Wanted, version: int) -> bytes:
    return message("start", {"meter": wanted.name, "version": version}, sequence=wanted.sequence)


def _resume(request: Request, end: int) -> int:
    """Where to resume: after the last message that the client has seen, if it says so."""
    seen = request.headers("last-event-id") or ""
    return min(int(seen), end) if seen.isascii() and seen.isdigit() and len(seen) < 19 else end


def news(store: Store, groups: Sequence[Wanted]) -> dict[Wanted, News[Wanted]]:
    """What is new for each; the journal is read once for all of them."""
    start = min(wanted.sequence for wanted in groups)
    batches = store.snapshots.journal_since(start)
    if not batches:
        return {}
    through = batches[-1][0]
    meters = {
        (tenant, registered.meter.name): registered
        for tenant in {wanted.tenant for wanted in groups}
        for registered in store.registry.meters(tenant)
    }
    found: dict[Wanted, News[Wanted]] = {}
    for wanted in groups:
        registered = meters.get((wanted.tenant, wanted.name))
        if registered is None:
            found[wanted] = News(ended=("deleted", f"the meter {wanted.name} was deleted"))
            continue
        frames = [frame for sequence, frame in batches if sequence > wanted.sequence]
        gap = wanted.sequence + 1 < batches[0][0]
        text = _changes(registered, wanted.where, frames, through, gap=gap)
        found[wanted] = News(text, then=wanted._replace(sequence=max(wanted.sequence, through)))
    return found


def _changes(
    registered: RegisteredMeter, where: Where, frames: Sequence[pl.DataFrame], through: int, *, gap: bool
) -> bytes:
    own = [frame.filter(pl.col("meter") == registered.set_id) for frame in frames]
    added = deltas.merge(own) if own else deltas.empty()
    changes = []
    added = added.sort("n", descending=True)
    found = values(added, registered.meter.compute, registered)
    for (series, bucket_s), value in zip(added.select("series", "bucket_s").iter_rows(), found, strict=True):
        labels = dict(zip(registered.labels, series.split("\0"), strict=True)) if registered.labels else {}
        if all(labels[key] in wanted for key, wanted in where):
            changes.append({"labels": labels, "time": rfc3339_s(bucket_s), **value})
    if not changes and not gap:
        return b""
    data = {"meter": registered.meter.name, "version": registered.version, "changes": changes[:MOST_CHANGES]}
    if registered.meter.decimals is not None:
        data["decimals"] = registered.meter.decimals
    if len(changes) > MOST_CHANGES:
        data["left_out"] = len(changes) - MOST_CHANGES
    if gap:
        data["gap"] = True  # older batches are folded and gone: ask for the total, then follow
    return message("change", data, sequence=through)
