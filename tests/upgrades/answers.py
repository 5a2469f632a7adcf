"""What a store answers, as JSON: asked of the version that wrote a fixture, then of every later one."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tallymark.aggregates.functions import Context, function
from tallymark.events.tenants import MAIN
from tallymark.meters.definition import to_mapping
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.store.protocol import Snapshot, Store
from tallymark.store.read_plan import Question as StoreQuestion
from tallymark.store.windows import Lineage
from tallymark.tables import Tables

Question = dict[str, Any]
"""meter, by, where, start_s, end_s, step_s; `late` where those that came late are asked for"""

STEPS_S = (60, 3_600, 86_400)
# From within an hour to within another, over rolled days, rolled hours and minutes.
PART = {"start_s": 1_794_218_220, "end_s": 1_794_406_680}
WHOLE = {"start_s": None, "end_s": None}
AGGREGATES = ["n", "n_value", "sum", "exact", "min", "max"]


def questions(
    meter: str, labels: Sequence[str], one_series: Mapping[str, str], *, grain_s: int = 60
) -> Iterator[Question]:
    """Totals, top and series of a meter, with and without labels; `one_series` is one that there is."""
    groupings = [[], *([name] for name in labels), *([list(labels)] if len(labels) > 1 else [])]
    filters = [{name: [value]} for name, value in one_series.items()]
    for by in groupings:
        for bounds in (WHOLE, PART):
            yield {"meter": meter, "by": by, "where": {}, **bounds, "step_s": None}
    for by in ([], list(labels)) if labels else ([],):
        for step_s in STEPS_S:
            yield {"meter": meter, "by": by, "where": {}, **WHOLE, "step_s": step_s}
    if grain_s < 60:
        for step_s in {grain_s, 10}:
            yield {"meter": meter, "by": [], "where": {}, **PART, "step_s": step_s}
    for where in filters:
        for step_s in (None, 3_600):
            yield {"meter": meter, "by": [], "where": where, **PART, "step_s": step_s}
            yield {"meter": meter, "by": list(labels), "where": where, **WHOLE, "step_s": step_s}


def read(snapshot: Snapshot, meter: RegisteredMeter, question: Question) -> list[list[Any]]:
    """The rows, sorted; `exact` is one number, whatever parts it is stored in."""
    asked = {name: value for name, value in question.items() if name != "meter"}
    found = snapshot.read(StoreQuestion.between(meter, **asked))
    keys = [*map(label_column, question["by"]), *(["bucket_s"] if question["step_s"] else [])]
    approximate = [
        function(name).values(found, Context(meter.meter.decimals))
        for name in meter.meter.compute
        if function(name).approximate
    ]
    rows = []
    for row, *rough in zip(found.iter_rows(named=True), *approximate, strict=True):
        high, low = row["exact_high"], row["exact_low"]
        row["exact"] = None if high is None else high * 2**32 + low
        rows.append([*(row[name] for name in (*keys, *AGGREGATES)), *rough])
    return sorted(rows, key=lambda row: row[: len(keys)])


def everything(store: Store, asked: Sequence[Question]) -> dict[str, Any]:
    """The answers to these questions, and all else that a user can see."""
    with store.snapshots.take() as snapshot:
        found = [
            {**question, "rows": read(snapshot, _registered(store, question["meter"]), question)} for question in asked
        ]
        ledger = {str(partition): asdict(terms) for partition, terms in sorted(snapshot.ledger().items())}
        tenants = {tenant: asdict(terms) for tenant, terms in snapshot.tenant_ledgers().items()}
        applied = {str(partition): following for partition, following in sorted(snapshot.applied().items())}
        lag = snapshot.lag(since_ms=0)
    counts = store.dead_letters.counts(tenant=None)
    return {
        "answers": found,
        "meters": [_meter(store, each) for each in store.registry.all_meters()],
        "ledger": ledger,
        "tenants": tenants,
        "applied": applied,
        "lag": None if lag is None else asdict(lag),
        "heartbeats": {role: list(beat) for role, beat in sorted(store.heartbeats.beats().items())},
        "buried": {partition: sorted(store.sink.buried(int(partition))) for partition in applied},
        "letter_counts": sorted([hop, reason, events] for (hop, reason), events in counts.items()),
        "last_letters_ms": sorted(
            [*kind, last_ms] for kind, last_ms in store.dead_letters.last_ms(tenant=None).items()
        ),
        "documents": [list(asdict(each).values()) for kind in ("query", "board") for each in store.documents.all(kind)],
        "tables": [_table(store, each.tenant, each.name) for each in store.documents.all("table")],
        "windows": [_windows(store, lineage) for lineage in store.windows.lineages()],
        "letters": [_letter(store, each.letter_id) for each in store.dead_letters.search(tenant=None, limit=1_000)],
    }


def _registered(store: Store, name: str) -> RegisteredMeter:
    """Meters of other tenants than `main` are called `tenant/name`."""
    tenant, _, own = name.rpartition("/")
    return store.registry.meter(tenant or MAIN, own)


def _meter(store: Store, registered: RegisteredMeter) -> dict[str, Any]:
    meter_id = registered.meter_id
    return {
        **({} if registered.tenant == MAIN else {"tenant": registered.tenant}),
        "definition": to_mapping(registered.meter),
        "version": registered.version,
        "created_ms": registered.created_ms,
        "broken": registered.broken,
        "missed": registered.missed,
        "live_from": sorted(map(list, store.registry.live_from(meter_id).items())),
        "broken_since": sorted(
            [partition, *since] for partition, since in store.registry.broken_since(meter_id).items()
        ),
        "gaps": [list(asdict(gap).values()) for gap in store.registry.gaps(meter_id)],
    }


def _table(store: Store, tenant: str, name: str) -> dict[str, Any]:
    table = Tables(store.documents, store.table_parts).get(tenant, name)
    assert table is not None
    rows, _ = table.page(at_ms=2**53, search="", after=None, limit=1_000)
    histories = {row.key: [asdict(each) for each in table.history(row.key)] for row in rows}
    return {"name": name, "key": table.definition.key, "columns": table.definition.columns, "histories": histories}


def _windows(store: Store, lineage: Lineage) -> dict[str, Any]:
    found = store.windows.read(lineage, lineage.from_s, lineage.next_s)
    return {**asdict(lineage), "stored": [[start_s, body.decode()] for start_s, body in found]}


def _letter(store: Store, letter_id: int) -> dict[str, Any]:
    letter = store.dead_letters.get(letter_id)
    assert letter is not None
    said = {"id": letter_id, **asdict(letter), "raw": base64.b64encode(letter.raw).decode()}
    if letter.tenant == MAIN:
        del said["tenant"]  # as the versions that knew no tenants said it
    return said
