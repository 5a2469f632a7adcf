"""`/v1/query/words`: the words that fit, from the meters and series there are."""

from urllib.parse import quote

import pytest

from asking import at
from tallymark.meters.model import Meter
from tallymark.query import words
from tallymark.query.words import MOST_WORDS


def offered(desk, text, tenant="main"):
    """`|` is the position."""
    place = text.index("|")
    told = desk.ask(f"/v1/query/words?q={quote(text.replace('|', '', 1))}&at={place}&tenant={tenant}")
    return {(word["text"], word["kind"]) for word in told["words"]}


def texts(desk, text):
    return {text for text, _ in offered(desk, text)}


@pytest.fixture
def counted(desk):
    now = at("12:29:00")
    desk.store.count("views", (("A", "KR"), now, [None] * 3), (("it's", "DE"), now, [None]))
    desk.store.count("latency", (("web-1",), now, [1.0]), (("web 2",), now, [2.0]))
    desk.store.count("metrics", (("web-1", "cpu"), now, [1.0]), (("web-1", "mem free"), now, [1.0]))
    return desk


def test_keywords_by_prefix_in_either_case(counted):
    assert offered(counted, "fr|") == {("FROM", "keyword")}
    assert offered(counted, "FROM * SELECT views w|") == {("WINDOW", "keyword"), ("WHERE", "keyword")}


def test_meters_and_metrics(counted):
    found = offered(counted, "FROM * SELECT |")
    assert {("views", "meter"), ("metrics", "meter"), ("cpu", "metric"), ("metrics.'mem free'", "metric")} <= found
    assert texts(counted, "FROM * SELECT vi|") == {"views"}
    assert texts(counted, "FROM * SELECT metrics.c|") == {"metrics.cpu"}
    assert texts(counted, "FROM * SELECT metrics.'|") == {"'cpu'", "'mem free'"}


def test_labels_functions_and_values_of_the_selected_meter(counted):
    assert offered(counted, "FROM * SELECT views BY |") == {("video", "label"), ("country", "label")}
    assert texts(counted, "FROM * SELECT views BY video, |") == {"country"}
    assert texts(counted, "FROM * SELECT views COMPUTE |") == {"count", "rate"}
    assert texts(counted, "FROM * SELECT latency COMPUTE m|") == {"min", "max"}
    assert offered(counted, "FROM * SELECT views WHERE video = |") == {("'A'", "value"), ("'it''s'", "value")}
    assert texts(counted, "FROM * SELECT views WHERE video = 'it|") == {"'it''s'"}
    assert texts(counted, "FROM | SELECT latency") == {"*", "web-1", "'web 2'"}
    assert texts(counted, "FROM 'web| SELECT latency") == {"web-1", "'web 2'"}
    assert texts(counted, "FROM * SELECT cpu BY |") == {"server", "metric"}


def test_durations_times_and_numbers(counted):
    assert "10s" not in texts(counted, "FROM * SELECT views WINDOW |")
    assert "5m" in texts(counted, "FROM * SELECT views WINDOW |")
    assert "now" in texts(counted, "FROM * SELECT views UNTIL |")
    assert "now" not in texts(counted, "FROM * SELECT views SINCE |")


def test_the_largest_values_come_first_and_never_too_many(desk, monkeypatch):
    rows = [((f"v{n:03}", "KR"), at("12:29:00"), [None] * (n + 1)) for n in range(60)]
    desk.store.count("views", *rows)
    told = desk.ask(f"/v1/query/words?q={quote('FROM * SELECT views WHERE video = ')}")["words"]
    assert len(told) == MOST_WORDS
    assert told[0] == {"text": "'v059'", "kind": "value", "note": ""}
    monkeypatch.setattr(words, "MOST_SERIES", 59)
    assert texts(desk, "FROM * SELECT views WHERE video = |") == set()


def test_values_of_long_ago_are_offered_if_there_are_no_newer(desk):
    desk.store.count("views", (("old", "KR"), at("02:00:00"), [None]))
    assert texts(desk, "FROM * SELECT views WHERE video = |") == {"'old'"}


def test_hostile_values_come_back_as_they_are_quoted(desk):
    evil = "</script>\x1b[31m' OR 1=1"
    desk.store.count("views", ((evil, "KR"), at("12:29:00"), [None]))
    ((text, _),) = offered(desk, "FROM * SELECT views WHERE video = |")
    found = desk.ask(f"/v1/query?q={quote(f'FROM * SELECT views WHERE video = {text} SINCE 1h')}")
    assert found["series"][0]["points"]


def test_each_tenant_has_its_own(counted):
    counted.store.registry.put_meter("acme", Meter("clicks", ("click",)), now_ms=1)
    assert ("clicks", "meter") in offered(counted, "FROM * SELECT |", "acme")
    assert ("views", "meter") not in offered(counted, "FROM * SELECT |", "acme")
    assert counted.refused("/v1/query/words?q=&tenant=acne").code == "unknown_tenant"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "missing_parameter"),
        ("q=FROM&at=-1", "bad_number"),
        ("q=FROM&at=5", "bad_number"),
        ("q=FROM&at=1e3", "bad_number"),
        ("q=FROM&at=%D9%A1", "bad_number"),
        ("q=a&q=b", "repeated_parameter"),
        ("q=a&att=1", "unknown_parameter"),
        ("q=a&limit=1", "unknown_parameter"),
        ("q=" + "x" * 10_001, "bad_query"),
    ],
)
def test_wrong_parameters_are_named(desk, query, code):
    assert desk.refused(f"/v1/query/words?{query}").code == code
