"""The saved queries of all tenants as plans, read again only when a query or a meter has changed."""

from collections.abc import Mapping

from tallymark.evaluation.plan import NoPlan, Plan, plan
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Store

Key = tuple[str, str]
"""tenant and name"""


class Definitions:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[int, int] | None = None
        self._plans: dict[Key, Plan | NoPlan] = {}

    def current(self) -> Mapping[Key, Plan | NoPlan]:
        state = self._store.documents.changes("query"), self._store.registry.live_meters().revision
        if state != self._known:
            self._plans = self._read()
            # Read before: whatever has changed since then is read next time.
            self._known = state
        return self._plans

    def _read(self) -> dict[Key, Plan | NoPlan]:
        meters: dict[str, list[RegisteredMeter]] = {}
        for each in self._store.registry.all_meters():
            meters.setdefault(each.tenant, []).append(each)
        found: dict[Key, Plan | NoPlan] = {}
        for document in self._store.documents.all("query"):
            try:
                made: Plan | NoPlan = plan(document, meters.get(document.tenant, []))
            except NoPlan as error:
                made = error
            found[document.tenant, document.name] = made
        return found
