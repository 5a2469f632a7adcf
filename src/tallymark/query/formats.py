"""The forms an answer can take: JSON, lines of JSON, CSV, Arrow; and which of them a request wants."""

import csv
import hashlib
import io
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa

from tallymark.http import Problem
from tallymark.query.answers import Answer
from tallymark.query.response import Response, encode
from tallymark.query.tables import Column, Table, table

MEDIA_TYPES = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}
_CONTENT_TYPES = {**MEDIA_TYPES, "csv": "text/csv; charset=utf-8; header=present"}
_ARROW_TYPES = {
    "text": pa.string(),
    "moment": pa.timestamp("ms", tz="UTC"),
    "whole": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
# As many digits as Arrow's decimals of 128 bits hold; exact sums have at most 29.
_DIGITS = 38
_BOOLEANS = {True: "true", False: "false"}


def accepted(header: str | None) -> str:
    """The format that an `Accept` header wants most; 406 if it wants none of ours."""
    if header is None or not header.strip():
        return "json"
    ranges = [_media_range(each) for each in header.split(",")]
    weights = {name: _weight(kind, ranges) for name, kind in MEDIA_TYPES.items()}
    best = max(weights, key=lambda name: weights[name])  # of equal ones the first
    if weights[best] <= 0:
        known = ", ".join(f"{kind} (format={name})" for name, kind in MEDIA_TYPES.items())
        raise Problem(406, "not_acceptable", f"Accept: {header[:100]} fits no format; there are {known}")
    return best


def _media_range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    quality = next((each[2:].strip() for each in parameters if each.startswith("q=")), "1")
    try:
        return kind, min(1.0, max(0.0, float(quality)))
    except ValueError:
        return kind, 0.0


def _weight(kind: str, ranges: list[tuple[str, float]]) -> float:
    """That of the most specific range that fits."""
    for wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        for name, quality in ranges:
            if name == wanted:
                return quality
    return 0.0


def rendered(answer: Answer, form: str, *, made_ms: int) -> Response:
    """The answer in that form. The freshness is in headers, too: CSV and Arrow have no other place for it."""
    body = encode(answer.body) if form == "json" else _WRITERS[form](table(answer))
    # Weak, and without the freshness: as long as the numbers are the same, nothing needs to be sent again.
    etag = f'W/"{hashlib.blake2b(body, digest_size=12, person=form.encode()).hexdigest()}"'
    if form == "json":
        # Last, so that `stale_s` can be put there later (see `delivery`).
        body = b'%s,"freshness":%s}' % (body[:-1], encode(answer.freshness))
    headers = [("content-type", _CONTENT_TYPES[form]), ("etag", etag), *_headers(answer)]
    return Response(200, headers, body, made_ms=made_ms)


def _headers(answer: Answer) -> list[tuple[str, str]]:
    fresh, span = answer.freshness, answer.body["range"]
    said = {
        "complete-through": fresh["complete_through"],
        "final-through": fresh["final_through"],
        "lag-ms": fresh["lag_ms"],
        "loss": fresh["loss"],
        "approximate": str(fresh["approximate"]).lower(),
        "error": ",".join(f"{name}={bound:g}" for name, bound in fresh.get("error", {}).items()) or None,
        "meter-version": fresh["meter_version"],
        "range": f"{span['from'] or '..'}/{span['to'] or '..'}",
        "left-out": answer.body.get("left_out"),
        "other": answer.body.get("other", {}).get("count"),
    }
    return [(f"tallymark-{name}", str(value)) for name, value in said.items() if value is not None]


def _ndjson(found: Table) -> bytes:
    names = [column.name for column in found.columns]
    return b"".join(encode(dict(zip(names, row, strict=True))) + b"\n" for row in found.rows)


def _csv(found: Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([column.name for column in found.columns])
    if any(column.kind == "boolean" for column in found.columns):
        writer.writerows(
            [_BOOLEANS.get(value, value) if value.__class__ is bool else value for value in row] for row in found.rows
        )
    else:
        writer.writerows(found.rows)
    return text.getvalue().encode()


def _arrow(found: Table) -> bytes:
    fields = [pa.field(column.name, _arrow_type(column, found)) for column in found.columns]
    values = zip(*found.rows, strict=True) if found.rows else [()] * len(fields)
    arrays = [
        pa.array([_moment(each) for each in column] if pa.types.is_timestamp(field.type) else list(column), field.type)
        for field, column in zip(fields, values, strict=True)
    ]
    schema, sink = pa.schema(fields), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _arrow_type(column: Column, found: Table) -> Any:
    if column.kind == "exact":
        return pa.decimal128(_DIGITS, found.decimals)
    return _ARROW_TYPES[column.kind]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


_WRITERS: dict[str, Callable[[Table], bytes]] = {"ndjson": _ndjson, "csv": _csv, "arrow": _arrow}
