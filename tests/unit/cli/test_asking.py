"""total, series, top and query: what they ask, and the forms of the answer."""

import csv
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from scripted_server import Scripted, hangs_up, running, says
from tallymark.cli import main
from tallymark.commands.query import pointed

POINTS = [{"time": f"2026-11-15T12:0{minute}:00Z", "count": minute, "sum": None} for minute in range(3)]
SERIES = {"meter": "views", "series": [{"labels": {"video": "A"}, "points": POINTS}]}
BUSY = says({"code": "stopping", "detail": "the service is stopping"}, 503)


@pytest.fixture
def server(monkeypatch):
    with running() as server:
        monkeypatch.setenv("TALLYMARK_URL", server.url)
        server.answers(says(SERIES))
        yield server


def test_every_option_becomes_a_parameter(server):
    shared = [
        "a=b",
        "--from",
        "-1h",
        "--to",
        "now",
        "--fn",
        "avg,p99",
        "--compare",
        "1d",
        "--late",
        "only",
        "--tz",
        "UTC",
    ]
    sent = [("label.a", "b"), ("from", "-1h"), ("to", "now"), ("fn", "avg,p99")]
    rest = [("compare", "1d"), ("late", "only"), ("tz", "UTC"), ("consistency", "fresh")]
    server.answers(says({"value": {"count": 1}}))
    assert main(["total", "m/x", *shared, "--by", "a", "--window", "5m", "--over", "avg"]) == 0
    assert server.asked[-1].path == "/v1/meters/m%2Fx/total"
    assert server.asked[-1].pairs == [*sent, ("by", "a"), ("window", "5m"), ("over", "avg"), *rest]
    server.answers(says(SERIES))
    assert main(["series", "m", *shared, "--by", "a", "--window", "5m", "--step", "1m", "--limit", "3"]) == 0
    assert server.asked[-1].pairs == [*sent, ("step", "1m"), ("window", "5m"), ("by", "a"), ("limit", "3"), *rest]
    server.answers(says({"items": []}))
    assert main(["top", "m", *shared, "--by", "a", "--window", "5m", "-k", "3", "--rank", "growth"]) == 0
    assert server.asked[-1].pairs == [*sent, ("by", "a"), ("k", "3"), ("rank", "growth"), ("window", "5m"), *rest]


def test_a_query_needs_no_quotes_where_the_shell_leaves_it_alone(server, monkeypatch):
    assert main(["query", "FROM", "web-1,", "web-2", "SELECT", "cpu", "--tenant", "acme"]) == 0
    assert main(["query", "FROM web-1, web-2 SELECT cpu"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("FROM web-1, web-2 SELECT cpu\n"))
    assert main(["query", "-"]) == 0
    assert [asked.pairs[0] for asked in server.asked] == [("q", "FROM web-1, web-2 SELECT cpu")] * 3
    assert server.asked[0].headers["tallymark-tenant"] == "acme"


def test_without_a_query_it_is_the_role(server, capsys):
    assert main(["query", "--chart"]) == 2
    assert "--chart is for a question, but there is none" in capsys.readouterr().err
    assert main(["query", "FROM * SELECT cpu", "--port", "8081"]) == 2
    assert "--port is for running the role" in capsys.readouterr().err
    assert main(["query", "--set", "query.prot=1"]) == 2
    assert "query.port" in capsys.readouterr().err
    assert server.asked == []


def test_an_error_points_at_its_place_in_the_query(server, capsys):
    text = "FROM * SELECT cpu COMPUTE percentil(99)"
    detail = "no function percentil; did you mean percentile?\nFROM …\n   ^"
    server.answers(says({"code": "bad_query", "detail": detail, "position": 26}, 400))
    assert main(["query", text]) == 1
    assert capsys.readouterr().err == (
        "tallymark query: no function percentil; did you mean percentile? (HTTP 400)\n"
        "  FROM * SELECT cpu COMPUTE percentil(99)\n"
        "                            ^\n"
    )


@pytest.mark.parametrize(
    ("text", "position", "line", "caret"),
    [
        ("SELECT", 6, "  SELECT", "        ^"),
        ("FROM *\n\tSELCT cpu", 8, "   SELCT cpu", "   ^"),
        ("a" * 200, 150, f"  …{'a' * 100}", f"  {' ' * 51}^"),
        ("ab", 99, "  ab", "    ^"),
        ("\x1bab", 1, "  \\u001bab", "        ^"),
    ],
)
def test_the_caret_stands_under_the_character(text, position, line, caret):
    assert pointed(text, position) == f"{line}\n{caret}"


def test_csv_has_empty_fields_for_nothing(server, capsys):
    assert main(["series", "views", "--output", "csv"]) == 0
    told = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert told[0] == ["time", "video", "count", "sum"]
    assert told[2] == ["2026-11-15T12:01:00Z", "A", "1", ""]


def test_exact_sums_are_printed_digit_by_digit_in_every_form(server, capsys):
    server.answers(says(b'{"meter": "m", "decimals": 2, "value": {"sum": 12345678901234567.10, "avg": 0.5}}'))
    for output, expected in [
        ("table", "12,345,678,901,234,567.10"),
        ("json", '"sum": 12345678901234567.10'),
        ("csv", "12345678901234567.10,0.5"),
    ]:
        assert main(["total", "m", "--output", output]) == 0
        assert expected in capsys.readouterr().out


def test_a_comparison_stands_beside_the_number(server, capsys):
    compared = {"before": {"count": 8}, "change": {"count": {"difference": 2, "percent": 25.0}}}
    server.answers(says({"meter": "m", "value": {"count": 10}, **compared}))
    assert main(["total", "m", "--compare", "1d"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["count", "before.count", "difference.count", "percent.count"]
    assert row.split() == ["10", "8", "2", "25"]


def test_a_series_is_drawn_as_a_line_and_numbers_without_moments_as_bars(server, capsys):
    assert main(["series", "views", "--chart"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("count by video\nA\n")
    assert "12:00" in told
    server.answers(
        says({"items": [{"labels": {"v": name}, "value": {"count": n}} for name, n in [("A", 2), ("B", 1)]]})
    )
    assert main(["top", "views", "--chart"]) == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert title == "count by v"
    assert first.count("█") == pytest.approx(2 * second.count("█"), abs=1)
    server.answers(says({**SERIES, "series": [{"labels": {}, "points": POINTS[1:2]}]}))
    assert main(["query", "FROM * SELECT views", "--chart"]) == 0
    assert "█" in capsys.readouterr().out
    assert main(["query", "FROM * SELECT views", "--chart", "--output", "csv"]) == 2


def test_a_last_point_that_still_grows_is_said(server, capsys):
    range_, fresh = {"to": "2026-11-15T12:03:00Z"}, {"complete_through": "2026-11-15T12:02:30.500Z"}
    server.answers(says({**SERIES, "range": range_, "freshness": fresh}))
    assert main(["series", "views", "--chart"]) == 0
    assert capsys.readouterr().out.endswith("the last point is not complete yet\n")
    server.answers(says({**SERIES, "range": range_, "freshness": {"complete_through": "2026-11-15T12:03:00.000Z"}}))
    assert main(["series", "views", "--chart"]) == 0
    assert "not complete" not in capsys.readouterr().out


def test_more_lines_than_can_be_told_apart_are_said(server, capsys):
    server.answers(says({"series": [{"labels": {"v": str(n)}, "points": POINTS} for n in range(9)]}))
    assert main(["series", "views", "--chart"]) == 0
    assert "the 6 largest of 9: choose others with filters" in capsys.readouterr().out
    assert main(["series", "views", "--chart", "--fn", "count,sum"]) == 0
    assert "the 6 largest of 18" in capsys.readouterr().out


def test_a_number_that_is_behind_is_better_than_none(server, capsys):
    late = {"meter": "m", "value": {"count": 1}, "freshness": {"lag_ms": 60_000}}
    server.answers(says({"code": "not_fresh", "detail": "60 s behind"}, 503), says(late))
    assert main(["total", "m"]) == 0
    assert "60.0 s behind" in capsys.readouterr().err
    assert [dict(asked.pairs).get("consistency") for asked in server.asked] == ["fresh", None]
    server.answers(says({"code": "not_fresh", "detail": "60 s behind"}, 503))
    assert main(["total", "m", "--consistency", "fresh"]) == 1


@pytest.mark.parametrize(
    ("freshness", "said"),
    [
        ({"stale_s": 12.4, "lag_ms": 1}, "these are the last known numbers, 12 s old\n"),
        ({"approximate": True, "error": {"p99": 0.0109}}, "approximate: p99 ±1.1 %\n"),
        ({"lag_ms": 5_000, "loss": 0, "approximate": False}, ""),
    ],
)
def test_what_is_not_exact_or_not_new_says_so(server, capsys, freshness, said):
    server.answers(says({"meter": "m", "decimals": 2, "value": {"p99": 1.5}, "freshness": freshness}))
    assert main(["total", "m"]) == 0
    assert capsys.readouterr().err == said


def test_a_range_without_an_end_ends_now(server, capsys):
    range_ = {"from": "2026-11-17T19:41:00Z", "to": None, "widened": True}
    server.answers(says({"meter": "m", "value": {"count": 1}, "range": range_}))
    assert main(["total", "m", "--from", "-10m"]) == 0
    assert capsys.readouterr().err == "whole buckets: 2026-11-17T19:41:00Z to now\n"


@pytest.mark.parametrize("body", [{}, {"value": 3}, {"series": [{}]}, {"items": 3}])
def test_an_answer_of_something_else_is_one_line(server, capsys, body):
    server.answers(says(body))
    assert main(["total", "m"]) == 1
    assert "is this really Tallymark?" in capsys.readouterr().err


# --watch


def start(server: Scripted, *words: str, **options: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TALLYMARK_URL": server.url, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    return subprocess.Popen(
        [sys.executable, "-m", "tallymark", *words],
        env=environment,
        **options,  # type: ignore[call-overload]
    )


def until(condition: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_pipe_gets_every_answer_and_its_end_is_no_error(server):
    watch = start(server, "query", "FROM * SELECT views", "--watch", "--every", "0.1", "--output", "json",
                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    assert watch.stdout is not None
    assert watch.stderr is not None
    for _ in range(3):
        assert json.loads(watch.stdout.readline()) == SERIES
    watch.stdout.close()
    assert watch.wait(20) == 0
    assert watch.stderr.read() == b""
    watch.stderr.close()


def test_a_terminal_is_redrawn_in_place_through_an_outage_and_left_as_it_was(server):
    server.answers(says(SERIES), BUSY, hangs_up, says(SERIES))
    ours, theirs = pty.openpty()
    watch = start(server, "series", "views", "--watch", "--every", "0.1", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""

    def read() -> bytes:
        nonlocal seen
        while select.select([ours], [], [], 0)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
        return seen

    until(lambda: read() and len(server.asked) > 8)
    watch.send_signal(signal.SIGINT)
    until(lambda: read() and watch.poll() is not None)
    read()
    os.close(ours)
    assert watch.returncode == 0
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    assert seen.count(b"\x1b[H") >= 5
    assert b"the service is stopping (HTTP 503); trying again" in seen
    assert b"Traceback" not in seen
    # The last answer stays.
    assert b"2026-11-15T12:02:00Z" in seen.partition(b"\x1b[?1049l")[2]


def test_watching_what_cannot_be_asked_fails_at_once(server, capsys):
    server.answers(says({"code": "unknown_meter", "detail": "no meter veiws"}, 404))
    assert main(["total", "veiws", "--watch"]) == 1
    assert "no meter veiws" in capsys.readouterr().err
    server.answers(BUSY)
    assert main(["total", "views", "--watch"]) == 1
    assert main(["total", "views", "--watch", "--every", "0"]) == 2
