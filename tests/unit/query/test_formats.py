"""One answer in four forms, and how a request chooses among them."""

import csv
import io
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from tallymark.http import Problem
from tallymark.query.formats import MEDIA_TYPES, accepted

NOON = 1_794_744_000  # 2026-11-15T12:00:00Z
DAY = "2026-11-15"
SPAN = f"from={DAY}T12:00:00Z&to={DAY}T12:02:00Z"


@pytest.fixture
def sales(desk):
    desk.ask(
        "/v1/meters/sales",
        "PUT",
        {"event": "sale", "by": ["shop", "count"], "compute": ["count", "sum", "avg"], "decimals": 2},
    )
    desk.store.count("sales", (('A, "B"\n', "x"), NOON, [0.1, 0.2]), (("", "y"), NOON + 60, [None]))
    return desk


def read(desk, target: str):
    """Each form as a list of rows: name -> value."""
    texts = {form: desk.send("GET", f"{target}&format={form}") for form in ("ndjson", "csv", "arrow")}
    for form, response in texts.items():
        assert dict(response.headers)["content-type"].startswith(MEDIA_TYPES[form])
    lines = [msgspec.json.decode(line) for line in texts["ndjson"].body.splitlines()]
    rows = list(csv.DictReader(io.StringIO(texts["csv"].body.decode(), newline="")))
    table = pa.ipc.open_stream(texts["arrow"].body).read_all()
    return lines, rows, table


def test_a_series_is_a_row_a_point(sales):
    lines, rows, table = read(sales, f"/v1/meters/sales/series?by=shop,count&{SPAN}")
    assert table.column_names == list(rows[0]) == list(lines[0])
    assert table.column_names == ["shop", "label.count", "time", "count", "sum", "avg"]
    assert lines[2] == {
        "shop": 'A, "B"\n',
        "label.count": "x",
        "time": f"{DAY}T12:00:00Z",
        "count": 2,
        "sum": 0.3,
        "avg": 0.15,
    }
    assert rows[2] == {
        "shop": 'A, "B"\n',
        "label.count": "x",
        "time": f"{DAY}T12:00:00Z",
        "count": "2",
        "sum": "0.30",
        "avg": "0.15",
    }
    assert rows[0] == {
        "shop": "",
        "label.count": "y",
        "time": f"{DAY}T12:00:00Z",
        "count": "0",
        "sum": "0.00",
        "avg": "",
    }
    assert table.to_pylist()[2] == {
        "shop": 'A, "B"\n',
        "label.count": "x",
        "time": datetime(2026, 11, 15, 12, tzinfo=UTC),
        "count": 2,
        "sum": Decimal("0.30"),
        "avg": 0.15,
    }
    assert table.schema.field("sum").type == pa.decimal128(38, 2)


@pytest.mark.parametrize(
    "question",
    [
        "total?",
        "total?by=shop",
        "total?window=1m&compare=1h",
        "total?window=1m&over=avg",
        "top?by=shop&rank=growth",
        "series?by=shop&compare=1h",
        "series?window=2m",
    ],
)
def test_every_form_has_the_numbers_of_the_json(sales, question):
    target = f"/v1/meters/sales/{question}&{SPAN}"
    body = sales.ask(target)
    lines, rows, table = read(sales, target)
    found = (
        body.get("items")
        or [
            {"labels": line["labels"], "value": {key: point[key] for key in ("count", "sum", "avg")}, **point}
            for line in body.get("series", [])
            for point in line["points"]
        ]
        or [body]
    )
    assert len(found) == len(lines) == len(rows) == table.num_rows
    for item, line, row, arrow in zip(found, lines, rows, table.to_pylist(), strict=True):
        for name, value in item["value"].items():
            assert line[name] == value
            assert row[name] == "" if value is None else float(row[name]) == value
            assert arrow[name] is None if value is None else float(arrow[name]) == value
        for name, change in item.get("change", {}).items():
            assert (line[f"before.{name}"], line[f"difference.{name}"]) == (item["before"][name], change["difference"])
            assert line[f"percent.{name}"] == change["percent"]
            assert arrow[f"percent.{name}"] == change["percent"]
        for name, moment in item.get("at", {}).items():
            assert line[f"at.{name}"] == moment


def test_no_rows_have_columns_all_the_same(sales):
    lines, rows, table = read(sales, "/v1/meters/sales/series?by=shop&from=-2m&shop=nobody")
    assert (lines, rows, table.num_rows) == ([], [], 0)
    assert table.column_names == ["shop", "time", "count", "sum", "avg"]


def test_the_freshness_is_in_headers_too(sales):
    response = sales.send("GET", f"/v1/meters/sales/series?by=shop&limit=1&{SPAN}&format=csv")
    headers = dict(response.headers)
    assert headers["tallymark-complete-through"] == f"{DAY}T12:30:30.000Z"
    assert (headers["tallymark-lag-ms"], headers["tallymark-loss"], headers["tallymark-approximate"]) == (
        "0",
        "0",
        "false",
    )
    assert headers["tallymark-range"] == f"{DAY}T12:00:00Z/{DAY}T12:02:00Z"
    assert headers["tallymark-left-out"] == "1"
    assert dict(sales.send("GET", "/v1/meters/sales/total").headers)["tallymark-range"] == "../.."


@pytest.mark.parametrize(
    ("header", "form"),
    [
        (None, "json"),
        ("", "json"),
        ("*/*", "json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "json"),
        ("text/csv", "csv"),
        ("TEXT/CSV ; Q=0.5, application/json;q=0.4", "csv"),
        ("text/*, application/json;q=0.9", "csv"),
        ("application/json;q=0, */*", "ndjson"),
        ("application/vnd.apache.arrow.stream, application/json;q=0.5", "arrow"),
        ("application/x-ndjson;q=nonsense, text/csv;q=0.1", "csv"),
        ("application/*", "json"),
    ],
)
def test_accept(header, form):
    assert accepted(header) == form


def test_accept_of_something_else_lists_what_there_is(desk):
    with pytest.raises(Problem) as found:
        accepted("image/png")
    assert (found.value.status, found.value.code) == (406, "not_acceptable")
    assert "text/csv (format=csv)" in found.value.detail


def test_format_wins_over_accept(desk):
    response = desk.send("GET", "/v1/meters/views/total?format=json", headers={"accept": "text/csv"})
    assert dict(response.headers)["content-type"] == "application/json"
    response = desk.send("GET", "/v1/meters/views/total", headers={"accept": "text/csv"})
    assert response.body == b"count\r\n0\r\n"


def test_a_caller_that_has_the_numbers_gets_no_body(desk):
    target = f"/v1/meters/views/total?{SPAN}"
    first = desk.send("GET", target)
    etag = dict(first.headers)["etag"]
    desk.now_ms += 5000  # the freshness moves on, the numbers do not
    for known in (etag, f'"other", {etag}', etag.removeprefix("W/"), "*"):
        again = desk.send("GET", target, headers={"if-none-match": known})
        assert (again.status, again.body) == (304, b"")
        assert dict(again.headers)["tallymark-complete-through"] == f"{DAY}T12:30:35.000Z"
        assert dict(again.headers)["etag"] == etag
    assert desk.send("GET", f"{target}&format=csv", headers={"if-none-match": etag}).status == 200
    desk.store.count("views", (("A", "KR"), NOON, [None]))
    assert desk.send("GET", target, headers={"if-none-match": etag}).status == 200


def test_a_cached_answer_says_its_age(keeping_desk):
    keeping_desk.send("GET", "/v1/meters/views/total")
    keeping_desk.now_ms += 999
    headers = dict(keeping_desk.send("GET", "/v1/meters/views/total").headers)
    assert headers["age"] == "0"
    assert headers["cache-control"] == "private, no-cache"
    assert "accept" in headers["vary"]


def test_forms_are_cached_apart(keeping_desk):
    bodies = {form: keeping_desk.send("GET", f"/v1/meters/views/total?format={form}").body for form in MEDIA_TYPES}
    assert len(set(bodies.values())) == 4
