"""Accepted events -> one Arrow record batch, the content of a frame; and back, for people and tests."""

import heapq
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tallymark.events.ids import hashes
from tallymark.events.labels import EXACT
from tallymark.events.validation import Accepted

PROP = "prop."
MAX_PROP_COLUMNS = 64

TEXTS = pa.dictionary(pa.int32(), pa.string())
VALUES = pa.map_(pa.string(), pa.float64())
# slot -> count, of an event that is a ready-made histogram; null for any other. Nothing fills it over HTTP yet.
HISTOGRAM = pa.map_(pa.int32(), pa.int64())
# The order of columns in a frame; `values`, `histogram` and the properties come between `value` and `rest`.
FIXED = {
    "id": pa.string(),
    "hash_high": pa.uint64(),
    "hash_low": pa.uint32(),
    "tenant": TEXTS,
    "event": TEXTS,
    "time": pa.int64(),
    "received": pa.int64(),
    "shift": pa.int64(),
    "resent": pa.int64(),
    "value": pa.float64(),
}
REST = {"rest": pa.string()}
PROP_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

Props = dict[str, Any]
Column = Any  # a pyarrow array of whatever type


def batch(requests: Sequence[Accepted]) -> pa.RecordBatch:
    """The accepted events of some requests, in order, as columns; each request has its own tenant."""
    events = [event for request in requests for event in request.events]
    names = [event.event for event in events]
    ids = [event.id or "" for event in events]
    sizes = [len(request.events) for request in requests]
    tenant = _tenant(requests)
    high, low = hashes(tenant, names, ids)
    columns: dict[str, Any] = {
        "id": pa.array(ids, FIXED["id"]),
        "hash_high": pa.array(high),
        "hash_low": pa.array(low),
        "tenant": _constant(tenant, len(events)) if isinstance(tenant, str) else _texts(tenant),
        "event": _texts(names),
        "time": pa.array([time for request in requests for time in request.times], FIXED["time"]),
        "received": pa.array(np.repeat(np.array([each.received_ms for each in requests]), sizes)),
        "shift": _shifts(requests),
        "resent": pa.array([event.resent for event in events], FIXED["resent"]),
        "value": pa.array([event.value for event in events], FIXED["value"]),
    }
    values = [event.values for event in events]
    if values.count(None) < len(values):
        columns["values"] = _values(values)
    columns |= _props([event.props or _NO_PROPS for event in events], set().union(*[each.keys for each in requests]))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _tenant(requests: Sequence[Accepted]) -> str | list[str]:
    """The tenant of all these events; each event's own if there are several."""
    if len({request.tenant for request in requests}) == 1:
        return requests[0].tenant
    return [tenant for request in requests for tenant in [request.tenant] * len(request.events)]


def _shifts(requests: Sequence[Accepted]) -> Column:
    if all(request.shifts is None for request in requests):
        return pa.array(np.zeros(sum(len(request.events) for request in requests), dtype=np.int64))
    return pa.array(
        [shift for request in requests for shift in request.shifts or [0] * len(request.events)], FIXED["shift"]
    )


def _texts(texts: list[str]) -> Column:
    if len(set(texts)) == 1:
        return _constant(texts[0], len(texts))
    return pa.array(texts, pa.string()).dictionary_encode()


def _constant(text: str, count: int) -> Column:
    # Arrow arrays, not numpy's: for those pyarrow tries to import pandas every time, 100 us where there is none.
    places: Column = pa.array(np.zeros(count, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(places, pa.array([text], pa.string()))


def _values(values: list[dict[str, float | None] | None]) -> Column:
    """Named numbers of each event; a null number is a missing one."""
    kept = [
        each if each is None or None not in each.values() else {k: v for k, v in each.items() if v is not None}
        for each in values
    ]
    lengths = np.fromiter((len(each) if each else 0 for each in kept), dtype=np.int32, count=len(kept))
    offsets = np.zeros(len(kept) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    # A null offset makes a null entry; the last one only ends the list.
    missing = np.fromiter(chain((each is None for each in kept), (False,)), dtype=bool, count=len(kept) + 1)
    starts: Column = pa.array(offsets, mask=missing)
    return pa.MapArray.from_arrays(
        starts,
        pa.array([name for each in kept if each for name in each], pa.string()),
        pa.array([number for each in kept if each for number in each.values()], pa.float64()),
    )


def _props(props: list[Props], known: set[str]) -> dict[str, Column]:
    """A column a key while its values are of one kind, and `rest` for what got none."""
    keys = sorted(known) if len(known) <= MAX_PROP_COLUMNS else _commonest(props)
    columns: dict[str, Column] = {}
    odd = len(known) > len(keys)
    for key in keys:
        column = _column([each.get(key) for each in props])
        if column is None:
            odd = True
        elif column.null_count < len(column):
            columns[PROP + key] = column
    columns["rest"] = _rest(props, columns.keys()) if odd else pa.nulls(len(props), REST["rest"])
    return columns


def _commonest(props: list[Props]) -> list[str]:
    """The keys that get a column where there are more than that, sorted: of a million keys only those few are."""
    counted = Counter(chain.from_iterable(props))
    least = heapq.nlargest(MAX_PROP_COLUMNS, counted.values())[-1]
    above = [key for key, count in counted.items() if count > least]
    equal = (key for key, count in counted.items() if count == least)
    return sorted([*above, *heapq.nsmallest(MAX_PROP_COLUMNS - len(above), equal)])


_NO_PROPS: Props = {}


def _column(values: list[Any]) -> Column | None:
    """The values as a column of their kind, None if they are of several."""
    if type(values[0]) is str:
        try:
            # Most are texts, and Arrow takes nothing else for one.
            return pa.array(values, PROP_TYPES[str])
        except pa.ArrowTypeError:
            return None
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if len(kinds) == 1:
        try:
            return pa.array(values, PROP_TYPES[kinds.pop()])
        except OverflowError:
            return None
    if not kinds:
        return pa.nulls(len(values), pa.string())
    # 5 and 5.0 are one label and one number, so a key that has both is a column of floats as long as that is exact.
    if kinds == {int, float} and all(type(value) is not int or abs(value) < EXACT for value in values):
        return pa.array(values, pa.float64())
    return None


def _rest(props: list[Props], columns: Collection[str]) -> Column:
    """What has no column, as text. Through each event's own keys: those of a commit can be a million."""
    taken = {name.removeprefix(PROP) for name in columns}
    texts = []
    for each in props:
        kept = {key: value for key, value in each.items() if value is not None and key not in taken}
        texts.append(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) if kept else None)
    return pa.array(texts, REST["rest"])


def rows(events: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The events of a batch one by one, their properties together again under `props`. Slow: for people and tests."""
    for row in events.to_pylist():
        props = {name[len(PROP) :]: row.pop(name) for name in list(row) if name.startswith(PROP)}
        row["props"] = {key: value for key, value in props.items() if value is not None} | json.loads(
            row.pop("rest") or "{}"
        )
        for name in ("values", "histogram"):
            pairs = row.pop(name, None)
            row[name] = None if pairs is None else dict(pairs)
        yield row
