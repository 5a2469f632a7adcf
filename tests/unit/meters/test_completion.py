"""Completion: what is offered at a position is what the grammar takes there, on any text, finished or not."""

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from tallymark.meters import language
from tallymark.meters.completion import DURATION, FUNCTION, MOMENT, NUMBER, expected
from tallymark.meters.language import CLAUSES, QueryError
from tallymark.meters.phrases import LABEL, METER, METRIC, SOURCE, VALUE

WHOLE = "FROM web-1, 'web 2' SELECT metrics.'cpu user' WINDOW 5m EVERY 1m COMPUTE avg, percentile(99) WHERE country = 'KR' AND plan IN ('a', b) BY server, country SINCE 1h UNTIL now LIMIT 5"  # noqa: E501


def at_caret(text):
    """`|` is the position."""
    at = text.index("|")
    return expected(text.replace("|", "", 1), at)


@pytest.mark.parametrize(
    ("text", "keywords", "wants"),
    [
        ("|", ("FROM",), None),
        ("FR|", ("FROM",), None),
        ("FROM |", ("*",), SOURCE),
        ("FROM web-1|", ("*",), SOURCE),
        ("FROM web-1 |", ("SELECT",), None),
        ("FROM web-1, |", (), SOURCE),
        ("FROM * SELECT |", (), METER),
        ("FROM * SELECT lat|", (), METER),
        ("FROM * SELECT metrics.|", (), METER),
        ("FROM * SELECT metrics.'c|", (), METRIC),
        ("FROM * SELECT latency |", CLAUSES, None),
        ("FROM * SELECT latency WINDOW |", (), DURATION),
        ("FROM * SELECT latency WINDOW 5m |", ("EVERY", *CLAUSES[1:]), None),
        ("FROM * SELECT latency WINDOW 5m EVERY |", (), DURATION),
        ("FROM * SELECT latency COMPUTE |", (), FUNCTION),
        ("FROM * SELECT latency COMPUTE avg, |", (), FUNCTION),
        ("FROM * SELECT latency WHERE |", (), LABEL),
        ("FROM * SELECT latency WHERE country |", ("=", "IN"), None),
        ("FROM * SELECT latency WHERE country = |", (), VALUE),
        ("FROM * SELECT latency WHERE country = 'K|", (), VALUE),
        ("FROM * SELECT latency WHERE country = 'KR' |", ("AND", *CLAUSES[:2], *CLAUSES[3:]), None),
        ("FROM * SELECT latency WHERE country IN |", ("(",), None),
        ("FROM * SELECT latency WHERE country IN ('KR', |", (), VALUE),
        ("FROM * SELECT latency BY |", (), LABEL),
        ("FROM * SELECT latency SINCE |", (), MOMENT),
        ("FROM * SELECT latency LIMIT |", (), NUMBER),
        # wrong before the position
        ("FROM * SELEC latency WHERE |", (), LABEL),
        ("SELECT latency BY |", (), LABEL),
        ("latency COMPUTE |", (), FUNCTION),
        ("FROM * SELECT latency WINDOW soon BY |", (), LABEL),
        ("FROM * SELECT latency WHERE a ~ 3 BY |", (), LABEL),
        ("FROM * SELECT a, b |", CLAUSES, None),
        # in the middle
        ("FROM | SELECT latency", ("*",), SOURCE),
        ("FROM * SELECT latency WHERE | BY country", (), LABEL),
    ],
)
def test_what_may_come(text, keywords, wants):
    found = at_caret(text)
    assert (found.keywords, found.wants) == (keywords, wants)


@pytest.mark.parametrize(
    ("text", "span", "typed"),
    [
        ("FROM * SEL|", (7, 10), "SEL"),
        ("FROM * SE|LECT x", (7, 13), "SE"),
        ("FROM * SELECT latency WHERE c = 'K|", (32, 34), "K"),
        ("FROM * SELECT latency WHERE c = 'K|R' BY c", (32, 36), "K"),
        ("FROM * SELECT latency WHERE c = 'K| BY x AND d = 'y'", (32, 34), "K"),
        ("FROM * SELECT latency WHERE c = 'it''s|", (32, 38), "it's"),
        ("FROM * |", (7, 7), ""),
    ],
)
def test_the_word_at_the_position(text, span, typed):
    found = at_caret(text)
    assert ((found.start, found.end), found.typed) == (span, typed)


@pytest.mark.parametrize(
    ("text", "select"),
    [
        ("FROM | SELECT latency", "latency"),
        ("FROM 'we| SELECT latency BY x", "latency"),
        ("FROM * SELECT metrics.'cpu user' BY |", "metrics.'cpu user'"),
        ("FROM * SELECT 'http.ms' BY |", "'http.ms'"),
        ("FROM * |", "None"),
        ("FROM * SELECT | BY x", "None"),
    ],
)
def test_what_the_query_selects_is_known_wherever_the_position_is(text, select):
    assert str(at_caret(text).selection) == select


def test_which_label_a_value_is_of():
    assert at_caret("FROM * SELECT x WHERE country = 'KR' AND plan = |").label == "plan"
    assert at_caret("FROM * SELECT x WHERE country IN ('KR', |").label == "country"


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(0, 60))
@example("'", 1)
@example("FROM 'a\"", 8)
@example("~~~~", 2)
def test_any_text_has_an_answer(text, at):
    found = expected(text, min(at, len(text)))
    assert 0 <= found.start <= min(at, len(text)) <= found.end <= len(text)


@given(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)))
def test_any_part_of_a_query_has_an_answer_and_its_keywords_are_taken(start, end):
    text = WHOLE[min(start, end) : max(start, end)]
    found = expected(text, len(text))
    for keyword in found.keywords if min(start, end) == 0 and not found.is_quoted else ():
        longer = f"{text[: found.start]}{keyword}"
        assert refused_at(longer) >= len(longer), longer


def refused_at(text):
    try:
        language.parse(text)
    except QueryError as error:
        return error.position
    return len(text)


@given(st.integers(0, len(WHOLE)))
def test_every_word_of_a_right_query_would_have_been_offered(at):
    found = expected(WHOLE[:at], at)
    following = WHOLE[found.start :]
    if found.wants is None and following and not following.startswith((",", ")", " ", "(", "9")):
        assert any(following.startswith(keyword) for keyword in found.keywords), (WHOLE[:at], found)
