"""Questions over HTTP have the same answers on every store, whatever was folded and rolled meanwhile."""

from dataclasses import replace
from random import Random

import msgspec
import polars as pl
import pytest

from asking import Desk, at
from tallymark.meters.model import Late, Meter
from tallymark.query import api
from tallymark.store import deltas
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import Store
from tallymark.tables import Tables

METERS = (
    Meter("rpc", ("rpc",), by=("server", "zone"), compute=("count", "sum", "min", "max", "avg", "p99")),
    Meter("uses", ("use",), by=("card",), grain_s=1, compute=("count", "rate"), late=Late(3600, "aside")),
    Meter("money", ("sale",), by=("shop",), grain_s=10, compute=("count", "sum"), decimals=2),
    Meter("visitors", ("view",), by=("video",), compute=("count", "distinct"), distinct="user"),
)
YESTERDAY = at("10:17:00", "2026-11-14")
HOURS = 26
SPAN = "from=2026-11-14T10:00:00Z&to=2026-11-15T12:00:00Z"
QUESTIONS = [
    "rpc/total?by=zone&compare=1d&from=2026-11-15T10:00:00Z&fn=p50,avg,rate",
    f"rpc/series?{SPAN}&step=1h&window=6h&by=zone&fn=p99,max",
    f"rpc/series?{SPAN}&step=1d&tz=Asia/Kathmandu&fn=p50,count&compare=1d",
    f"rpc/top?{SPAN}&by=server&window=30m&fn=p99",
    f"rpc/top?{SPAN}&by=server,zone&rank=growth&fn=sum&compare=3h",
    f"uses/total?{SPAN}&by=card&window=10m",
    f"uses/total?{SPAN}&window=90s&over=avg&late=with",
    f"uses/top?{SPAN}&late=only",
    "uses/series?from=2026-11-14T10:17:00Z&to=2026-11-14T10:25:00Z&step=7s&fn=count,rate",
    f"money/total?{SPAN}&window=20m&over=min&fn=sum",
    f"money/series?{SPAN}&step=10m&window=1h&shop=a&shop=b",
    f"visitors/series?{SPAN}&step=2h&window=4h&by=video",
    f"visitors/top?{SPAN}&fn=distinct&compare=previous",
    "visitors/total?by=video&video=a&video=nobody",
    # By columns of tables, among them one that no key has.
    f"rpc/top?{SPAN}&by=racks.row&fn=p99",
    f"rpc/series?{SPAN}&step=1h&window=6h&by=racks.row,zone&fn=p99,max&limit=2",
    f"rpc/total?{SPAN}&by=zone&racks.row=north&compare=3h&with=racks.row&server=a",
    f"rpc/total?{SPAN}&racks.row=nobody&server=a",
    f"rpc/total?{SPAN}&by=racks.row&racks.row=nobody&racks.row=north&server=a",
    f"rpc/series?{SPAN}&step=1d&tz=Asia/Kathmandu&fn=p50&by=racks.row",
    f"uses/total?{SPAN}&by=cards.limit&window=10m&late=with",
    f"visitors/top?{SPAN}&fn=distinct&by=clips.title",
    f"money/total?{SPAN}&by=shops.open&fn=sum",
]
TABLES = {
    "racks?key=server": [{"server": "a", "row": "north"}, {"server": "b", "row": "north"}],
    "cards?key=card": [{"card": "a", "limit": 5}, {"card": "b", "limit": 5.5}, {"card": "c", "limit": 5}],
    "clips?key=video": [{"video": "a", "title": "Alpha"}, {"video": "b", "title": "Alpha"}, {"video": "c"}],
    "shops?key=shop": [{"shop": "a", "open": True}, {"shop": "b", "open": False}, {"shop": "c", "open": True}],
}


@pytest.fixture
def desks(store: Store, tmp_path):
    """The same events in the plain store and in the real one."""
    plain, real = Desk(tmp_path / "plain"), Desk(tmp_path / "real")
    real.store = store
    real.sources = replace(real.sources, store=store, tables=Tables(store.documents, store.table_parts))
    real.routes = api.routes(real.sources, real.rates)
    for desk in (plain, real):
        for meter in METERS:
            desk.store.registry.put_meter("main", meter, now_ms=0)
        for table, rows in TABLES.items():
            desk.send("PUT", f"/v1/tables/{table}", rows, {"content-type": "application/json"})
    fill(plain)
    sets = {
        plain.store.registry.meter("main", meter.name).set_id: store.registry.meter("main", meter.name).set_id
        for meter in METERS
    }
    sets |= {-own: -other for own, other in sets.items()}
    return plain, real, [entry.with_columns(pl.col("meter").replace(sets)) for _, entry in plain.store.journal]


def fill(desk: Desk) -> None:
    random = Random(12)
    for _ in range(6):
        for meter in METERS:
            rows = []
            for _ in range(40):
                bucket_s = YESTERDAY + random.randrange(HOURS * 3600)
                labels = tuple(random.choice("abc") for _ in meter.labels)
                values = [random.choice("pqrstuv") if meter.distinct else random.randrange(1, 999) / 4, None]
                rows.append((labels, bucket_s // meter.grain_s * meter.grain_s, values))
            desk.store.count(meter.name, *rows, late=meter.late is not None and random.random() < 0.3)


def apply(store: Store, number: int, entry: pl.DataFrame) -> None:
    body = deltas.encode(deltas.merge([entry]))
    ids = tuple(each.meter_id for each in store.registry.live_meters().meters)
    revision = store.registry.live_meters().revision
    store.sink.apply([StretchResult(Stretch(0, number, number + 1), "log", revision, ids, body, Ledger())], now_ms=0)


def test_every_store_has_the_answers_of_the_plain_one(desks):
    plain, real, entries = desks
    for number, entry in enumerate(entries):
        apply(real.store, number, entry)
        if number == len(entries) // 2:
            while real.store.upkeep.fold(most_points=50).more:
                pass
            while real.store.upkeep.roll(now_ms=real.now_ms, delay_s=60, slice_series=10):
                pass
    for question in QUESTIONS:
        wanted, found = (numbers(desk, question) for desk in (plain, real))
        assert found == wanted, question


def numbers(desk: Desk, question: str) -> object:
    """What is asked for, without the freshness; sums of floats may differ in the last place, so they are rounded."""
    return rounded({**msgspec.json.decode(desk.send("GET", f"/v1/meters/{question}").body), "freshness": None})


def rounded(found: object) -> object:
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.9g}") if isinstance(found, float) else found
