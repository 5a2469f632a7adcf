"""Bodies made to break something: always a 4xx with a reason, never a 5xx, and the next request is served."""

import gzip
import json
import time
import zlib
from typing import Any

import pytest
import zstandard

from tallymark.testing import until

GOOD = b'{"event":"view","id":"good"}'
NDJSON = {"content_type": "application/x-ndjson"}


def prop(text: bytes) -> bytes:
    return b'[{"event":"view","id":"1","props":{"a":' + text + b"}}]"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "no_events"),
        (b"[]", 400, "no_events"),
        (b"null", 400, "bad_body"),
        (b"7", 400, "bad_body"),
        (b'"text"', 400, "bad_body"),
        (b"{", 400, "bad_json"),
        (b"[" * 200_000, 400, "too_deep"),
        (b'{"a":' * 200_000, 400, "too_deep"),
        (b'{"events":' + b"[" * 200_000, 400, "too_deep"),
        (prop(b"[" * 100_000 + b"]" * 100_000), 400, "too_deep"),
        (prop(b'{"b":1}'), 422, "bad_props"),
        (prop(b"NaN"), 400, "bad_json"),
        (prop(b"-Infinity"), 400, "bad_json"),
        (prop(b"1e400"), 422, "bad_number"),
        (prop(b"9" * 400), 422, "bad_number"),
        (prop(b"9" * 10_000), 422, "bad_number"),
        (prop(b'"\\ud800"'), 400, "bad_json"),
        (prop(b'"\\udc00\\ud800"'), 400, "bad_json"),
        (prop(b'"\xff\xfe"'), 422, "bad_text"),
        (prop(b'"a\\u0000b"'), 422, "bad_text"),
        (prop(b'"a\x00b"'), 400, "bad_json"),
        (prop(b'"' + b"x" * 1025 + b'"'), 422, "bad_text"),
        (prop(json.dumps("é" * 513, ensure_ascii=False).encode()), 422, "bad_text"),
        (prop(json.dumps("é" * 513).encode()), 422, "bad_text"),
        (b'[{"event":"view\\u0000"}]', 422, "bad_text"),
        (b'[{"event":"view","id":"\\u0000"}]', 422, "bad_text"),
        (b'[{"event":"view","props":{"\\u0000":1}}]', 422, "bad_text"),
        (b'[{"event":"view","values":{"\\u0000":1}}]', 422, "bad_text"),
        (b'[{"event":"view","props":{"":1}}]', 422, "bad_props"),
        (b'[{"event":"view","value":' + b"9" * 400 + b"}]", 422, "bad_number"),
        (b'[{"event":"view","time":' + b"9" * 400 + b"}]", 422, "bad_time"),
        (b'[{"event":"view","time":-9223372036854775808}]', 422, "bad_time"),
        (b'[{"event":"view","sent_at":"never"}]', 422, "bad_time"),
        (b'[{"event":"view","resent":"never"}]', 422, "bad_time"),
        (b'{"events":[{"event":"view"}],"sent_at":"never"}', 400, "bad_time"),
        (b'{"events":[{"event":"view"}],"sentAt":1}', 400, "bad_body"),
        (b'{"events":{}}', 400, "bad_body"),
        (b"[1,2]", 422, "not_an_object"),
        (b"\xef\xbb\xbf" + GOOD, 400, "bad_json"),
        (GOOD.decode().encode("utf-16"), 400, "bad_json"),
        (b"[" + b"0," * 1_500_000 + b"0]", 413, "too_many_events"),
    ],
)
def test_hostile_json(collector: Any, body: bytes, status: int, code: str) -> None:
    reply = collector.post(body)
    codes = [reply.json["code"]] if "code" in reply.json else [error["code"] for error in reply.json["errors"]]
    assert (reply.status, set(codes)) == (status, {code})
    assert collector.post(GOOD).status == 202
    assert [row["id"] for row in collector.events()] == ["good"]


def test_one_bad_line_spoils_only_itself(collector: Any) -> None:
    lines = [GOOD, b'{"event":"view","props":{"a":NaN}}', b'{"event":"\\ud800"}', b"\xff", b"[" * 100_000, GOOD]
    reply = collector.post(b"\n".join(lines), **NDJSON)
    assert (reply.status, reply.json["accepted"]) == (202, 2)
    assert [(e["index"], e["code"]) for e in reply.json["errors"]] == [
        (1, "bad_json"),
        (2, "bad_json"),
        (3, "bad_json"),
        (4, "too_deep"),
    ]


def test_no_good_line_at_all_is_400(collector: Any) -> None:
    assert collector.post(b"no\njson", **NDJSON).status == 400
    assert collector.post(b"\n\n", **NDJSON).status == 400


def test_whole_numbers_up_to_65_bits_are_kept_exactly(collector: Any) -> None:
    wide = {"event": "view", "id": "w", "props": {"a": 2**64 - 1, "b": -(2**63) - 5, "c": 2**63}}
    assert collector.post(wide).status == 202
    assert collector.events()[0]["props"] == wide["props"]


BODY = json.dumps([{"event": "view", "id": str(number)} for number in range(100)]).encode()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", gzip.compress(BODY)[:-5], id="gzip, cut in its last bytes"),
        pytest.param("gzip", gzip.compress(BODY)[:20], id="gzip, cut in its first bytes"),
        pytest.param("gzip", BODY, id="plain as gzip"),
        pytest.param("gzip", gzip.compress(BODY) + b"garbage", id="gzip and more"),
        pytest.param("gzip", zstandard.compress(BODY), id="zstd as gzip"),
        pytest.param("zstd", zstandard.compress(BODY)[:-3], id="zstd, cut"),
        pytest.param("zstd", gzip.compress(BODY), id="gzip as zstd"),
        pytest.param("deflate", zlib.compress(BODY)[:-3], id="deflate, cut"),
        pytest.param("deflate", BODY, id="plain as deflate"),
        pytest.param("deflate", zlib.compress(BODY) + b"x", id="deflate and more"),
    ],
)
def test_a_body_that_is_not_what_its_encoding_says(collector: Any, encoding: str, body: bytes) -> None:
    reply = collector.post(body, content_encoding=encoding)
    assert (reply.status, reply.json["code"]) == (400, "bad_encoding")
    assert collector.events() == []


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", lambda body: gzip.compress(body, 1)),
        ("zstd", zstandard.compress),
        ("deflate", lambda body: zlib.compress(body, 1)),
    ],
    ids=["gzip", "zstd", "deflate"],
)
def test_a_bomb_is_left_after_the_limit(collector: Any, encoding: str, compress: Any) -> None:
    bomb = compress(b"\0" * 300_000_000)
    started = time.process_time()
    reply = collector.post(bomb, content_encoding=encoding)
    assert (reply.status, reply.json["code"]) == (413, "too_large")
    assert time.process_time() - started < 2


@pytest.mark.parametrize("lines", [1, 1000])
def test_a_request_cut_off_in_its_body_is_not_taken(collector: Any, lines: int) -> None:
    body = (GOOD + b"\n") * lines
    failures = collector.metric("tallymark_collector_requests_total", status="500")
    with collector.connect() as client:
        client.sendall(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n")
        client.sendall(b"content-length: %d\r\n\r\n" % (2 * len(body)) + body)
        until(lambda: collector.metric("tallymark_collector_pending_bytes") > 0, "the body is being read")
    until(lambda: collector.metric("tallymark_collector_pending_bytes") == 0, "the request is given up")
    assert collector.post({"event": "view", "id": "after"}).status == 202
    assert [row["id"] for row in collector.events()] == ["after"]
    assert collector.metric("tallymark_collector_requests_total", status="500") == failures
