"""Keeps what meters with `keep: queried` store in step with the saved queries."""

import logging
from collections.abc import Iterable, Sequence

import msgspec

from tallymark.meters import language
from tallymark.meters.model import QUERIED, Meter
from tallymark.meters.selection import Asked, asked_metrics
from tallymark.store.documents import Document
from tallymark.store.protocol import Store
from tallymark.store.selections import Selection

logger = logging.getLogger(__name__)


class _Body(msgspec.Struct):
    """What matters here of the document of a saved query."""

    q: str


def select_queried(store: Store, *, now_ms: int, tenant: str | None = None) -> bool:
    """Tells each such meter, of a tenant or of all, which metrics saved queries select now; True if one did not know.

    Whoever changed a query or a meter calls it, and the keeper does in case one of them died before. Any number may do
    so at once: a selection made of older queries never replaces one made of newer ones.
    """
    registry = store.registry
    meters = registry.all_meters() if tenant is None else registry.meters(tenant)
    # A broken meter stores nothing, and a version of it would count again, which is for people to say.
    waiting = [each for each in meters if each.meter.keep == QUERIED and each.broken is None]
    changed = False
    for owner in {each.tenant for each in waiting}:
        own = [each.meter for each in meters if each.tenant == owner]
        for meter, selection in selections(store, owner, own).items():
            if any(each.tenant == owner and each.meter.name == meter for each in waiting):
                changed |= registry.select(owner, meter, selection, now_ms=now_ms)
    return changed


def selections(store: Store, tenant: str, meters: Sequence[Meter]) -> dict[str, Selection]:
    """By name, of those of the tenant's meters that store what is queried."""
    # The number first: what is read after it is as new or newer.
    as_of = store.documents.changes("query")
    asked = [each for document in store.documents.of_tenant("query", tenant) for each in _asked(document, meters)]
    return {meter.name: _selection(asked, meter, as_of) for meter in meters if meter.keep == QUERIED}


def _selection(asked: Iterable[Asked], meter: Meter, as_of: int) -> Selection:
    own = [each.metrics for each in asked if each.meter == meter]
    metrics = frozenset().union(*(each for each in own if each is not None))
    return Selection(metrics, every=None in own, as_of=as_of)


def _asked(document: Document, meters: Sequence[Meter]) -> list[Asked]:
    try:
        return asked_metrics(language.parse(msgspec.json.decode(document.body, type=_Body).q), meters)
    except (language.QueryError, msgspec.DecodeError) as error:
        # Perhaps a newer version of Tallymark can read it. Until then nothing is dropped that it may select.
        logger.warning("the saved query %s cannot be read: %s", document.name, error)
        return [Asked(meter, None) for meter in meters if meter.each is not None]


class Watch:
    """The keeper's share: looks only at two numbers while neither queries nor meters change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: tuple[int, int] | None = None

    def look(self, *, now_ms: int) -> None:
        now = self._store.documents.changes("query"), self._store.registry.live_meters().revision
        if now != self._seen:
            if select_queried(self._store, now_ms=now_ms):
                logger.info("what meters store is what saved queries select, again")
            self._seen = now
