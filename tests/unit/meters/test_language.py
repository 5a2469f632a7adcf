"""The query language: what parses to what, and that nothing hostile gets further than an error at its position."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.aggregates.functions import percentile_name
from tallymark.meters.language import MAX_LENGTH, Query, QueryError, parse
from tallymark.meters.stored_query import KEYWORDS, Selection, is_bare

CANONICAL = [
    # as written, canonical (None: the same)
    ("FROM web-1, web-2 SELECT latency WINDOW 1m COMPUTE avg, p99", None),
    ("FROM web-1,web-2\n\tSELECT latency WINDOW 60s COMPUTE AVG, percentile(99);",
     "FROM web-1, web-2 SELECT latency WINDOW 1m COMPUTE avg, p99"),
    ("from * select cpu", "FROM * SELECT cpu"),
    ("FROM host.example:9100, 10.0.0.1, a/b SELECT cpu", None),
    ("FROM 'web-1', \"it's\", 'it''s', 'select', 'a b' SELECT cpu",
     "FROM web-1, 'it''s', 'select', 'a b' SELECT cpu"),
    ("FROM * SELECT metrics.cpu", None),
    ("FROM * SELECT 'metrics'.cpu", "FROM * SELECT metrics.'cpu'"),
    ("FROM * SELECT metrics.'cpu.user'", None),
    ("FROM * SELECT \"metrics\".\"cpu.user\"", "FROM * SELECT metrics.'cpu.user'"),
    ("FROM * SELECT 'metrics.cpu'", None),
    ("FROM * SELECT 'cpu'", "FROM * SELECT cpu"),
    ("FROM * SELECT 'window'", None),
    ("FROM * SELECT 'by'.'a b'", None),
    ("FROM * SELECT x WINDOW 5m EVERY 60s", "FROM * SELECT x WINDOW 5m EVERY 1m"),
    ("FROM * SELECT x WINDOW 5m EVERY 5m", "FROM * SELECT x WINDOW 5m"),
    ("FROM * SELECT x WINDOW 1w", "FROM * SELECT x WINDOW 7d"),
    ("FROM * SELECT x COMPUTE median, p50, P99.90, percentile( 99.9 ), p05, count, rate, distinct",
     "FROM * SELECT x COMPUTE p50, p99.9, p5, count, rate, distinct"),
    ("FROM * SELECT x COMPUTE p0.99", None),
    ("FROM * SELECT x WHERE b = 1 AND a IN (KR, 'JP', KR) and \"odd name\" = ''",
     "FROM * SELECT x WHERE a IN ('KR', 'JP') AND b = '1' AND 'odd name' = ''"),
    ("FROM * SELECT x WHERE a IN ('KR')", "FROM * SELECT x WHERE a = 'KR'"),
    ("FROM * SELECT x BY country, 'by', country", "FROM * SELECT x BY country, 'by'"),
    ("FROM * SELECT x SINCE -60m UNTIL NOW", "FROM * SELECT x SINCE 1h UNTIL now"),
    ("FROM * SELECT x SINCE 2h ago UNTIL 0s", "FROM * SELECT x SINCE 2h UNTIL now"),
    ("FROM * SELECT x SINCE 2026-11-15T13:00:00+01:00 UNTIL '2026-11-15 12:30Z'",
     "FROM * SELECT x SINCE 2026-11-15T12:00:00Z UNTIL 2026-11-15T12:30:00Z"),
    ("FROM * SELECT x SINCE 2026-11-15 UNTIL 2026-11-16", None),
    ("FROM * SELECT x SINCE 2026-11-15T12:00:00.1239Z", "FROM * SELECT x SINCE 2026-11-15T12:00:00.123Z"),
    ("FROM * SELECT x LIMIT 007 UNTIL 1h BY a SINCE 2h WHERE a = b COMPUTE sum WINDOW 1m",
     "FROM * SELECT x WINDOW 1m COMPUTE sum WHERE a = 'b' BY a SINCE 2h UNTIL 1h LIMIT 7"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_query_has_one_canonical_text(text, canonical):
    query = parse(text)
    assert str(query) == (canonical or text)
    assert parse(str(query)) == query


def test_every_part_of_a_query():
    text = "FROM a, b SELECT m.x WINDOW 5m EVERY 1m COMPUTE avg WHERE c IN (1, 2) BY d, e SINCE 1h UNTIL now LIMIT 9"
    query = parse(text)
    assert query == Query(
        ("a", "b"),
        Selection("m.x"),
        300,
        60,
        ("avg",),
        {"c": ("1", "2")},
        ("d", "e"),
        "-1h",
        "now",
        9,
    )
    assert (query.select, query.window, query.every) == ("m.x", "5m", "1m")
    assert {part: text[position:].split()[0] for part, position in query.positions.items()} == {
        "from": "a,",
        "select": "m.x",
        "window": "5m",
        "every": "1m",
        "compute": "avg",
        "compute.avg": "avg",
        "where.c": "c",
        "by": "d,",
        "by.d": "d,",
        "by.e": "e",
        "since": "1h",
        "until": "now",
        "limit": "9",
    }
    error = query.error("unknown_key", "no such label", "where.c")
    line, caret = error.excerpt.split("\n")
    assert error.position == text.index("c IN")
    assert line[caret.index("^") :].startswith("c IN")


def test_what_is_left_out_is_none():
    assert parse("FROM * SELECT x") == Query(None, Selection("x"))
    assert parse("FROM * SELECT x").compute is None


WRONG = [
    # text, position of the caret, part of the message
    ("", 0, "the query is empty; it begins with FROM: FROM * SELECT latency"),
    ("  \n", 3, "the query is empty"),
    (";", 0, "expected FROM, found ';'"),
    ("FORM * SELECT x", 0, "expected FROM, found 'FORM'; did you mean FROM?"),
    ("SELECT x FROM *", 0, "FROM comes first: FROM * SELECT latency"),
    ("FROM", 4, "expected a value or *, found the end"),
    ("FROM SELECT x", 5, "expected a value or *, found 'SELECT'; quotes make it a name: 'SELECT'"),
    ("FROM a b SELECT x", 7, "expected a comma or SELECT, found 'b'"),
    ("FROM a, SELECT x", 8, "expected a value or *"),
    ("FROM *, a SELECT x", 6, "* already means all"),
    ("FROM a, * SELECT x", 8, "expected a value or *, found '*'"),
    ("FROM a SELCT x", 7, "found 'SELCT'; did you mean SELECT?"),
    ("FROM * WINDOW 1m", 7, "expected SELECT, found 'WINDOW'"),
    ("FROM * SELECT", 13, "expected the name of a meter or metric, found the end"),
    ("FROM * SELECT WINDOW 1m", 14, "quotes make it a name: 'WINDOW'"),
    ("FROM * SELECT *", 14, "SELECT names one meter or metric; * is for FROM"),
    ("FROM * SELECT ''", 14, "names have 1 to 128 characters"),
    ("FROM * SELECT " + "x" * 129, 14, "names have 1 to 128 characters"),
    ("FROM * SELECT 'm'.", 18, "expected the name of a metric, found the end"),
    ("FROM * SELECT m. 'x'", 17, "or the end, found \"'x'\""),
    ("FROM * SELECT avg(x)", 17, "functions belong in COMPUTE: SELECT name COMPUTE avg"),
    ("FROM * SELECT x, y", 15, "a query selects one meter or metric"),
    ("FROM * SELECT x COMPTE avg", 16, "found 'COMPTE'; did you mean COMPUTE?"),
    ("FROM * SELECT x zzz", 16, "expected WINDOW, COMPUTE, WHERE, BY, SINCE, UNTIL, LIMIT or the end, found 'zzz'"),
    ("FROM * SELECT x GROUP BY a", 16, "found 'GROUP'; write BY alone"),
    ("FROM * SELECT x BEFORE 1h", 16, "found 'BEFORE'; write UNTIL"),
    ("FROM * SELECT x ORDER BY a", 16, "a query does not sort; ask for a top instead"),
    ("FROM * SELECT x WINDOW 1m WINDOW 2m", 26, "WINDOW appears twice; each clause may come once"),
    ("FROM * SELECT x FROM y", 16, "FROM comes once, at the beginning"),
    ("FROM * SELECT x SELECT y", 16, "a query selects once"),
    ("FROM * SELECT x EVERY 1m", 16, "EVERY follows WINDOW: WINDOW 5m EVERY 1m"),
    ("FROM * SELECT x AND a = 1", 16, "AND belongs in WHERE"),
    ("FROM * SELECT x; FROM * SELECT y", 15, "only one query at a time"),
    ("FROM * SELECT x WINDOW", 22, "WINDOW takes a whole number and s, m, h, d or w, like 90s"),
    ("FROM * SELECT x WINDOW 5", 23, "not '5'"),
    ("FROM * SELECT x WINDOW 1mo", 23, "not '1mo'"),
    ("FROM * SELECT x WINDOW 0m", 23, "WINDOW is at least 1s and at most 3660d, not '0m'"),
    ("FROM * SELECT x WINDOW 9999w", 23, "at most 3660d"),
    ("FROM * SELECT x WINDOW 5m EVERY 10m", 32, "windows of 5m every 10m would leave gaps; EVERY is at most 5m"),
    ("FROM * SELECT x WINDOW 5m EVERY 2m", 32, "WINDOW 5m is not a multiple of EVERY 2m; choose one that divides it"),
    ("FROM * SELECT x COMPUTE", 23, "expected a function like avg or percentile(99), found the end"),
    ("FROM * SELECT x COMPUTE *", 24, "leave COMPUTE out"),
    ("FROM * SELECT x COMPUTE 'avg'", 24, "expected a function"),
    ("FROM * SELECT x COMPUTE agv", 24, "unknown function 'agv'; did you mean avg?"),
    ("FROM * SELECT x COMPUTE mean", 24, "unknown function 'mean'; write avg"),
    ("FROM * SELECT x COMPUTE avg, p100", 29, "unknown function 'p100'; the greatest value is max"),
    ("FROM * SELECT x COMPUTE p99.9999", 24, "with at most 3 decimals"),
    ("FROM * SELECT x COMPUTE avg(y)", 27, "avg takes nothing in parentheses; write avg"),
    ("FROM * SELECT x COMPUTE percentile", 34, "found the end; write percentile(99) or p99"),
    ("FROM * SELECT x COMPUTE percentile(x)", 35, "expected a number like 99 or 99.9, found 'x'"),
    ("FROM * SELECT x COMPUTE percentile(-1)", 35, "expected a number like 99 or 99.9, found '-1'"),
    ("FROM * SELECT x COMPUTE percentile(99", 37, "expected ), found the end"),
    ("FROM * SELECT x COMPUTE percentile(0)", 35, "there is no percentile(0); the least value is min"),
    ("FROM * SELECT x COMPUTE percentile(101)", 35, "there is no percentile(101); a percentile is over 0"),
    ("FROM * SELECT x COMPUTE percentile(0.99)", 35, "of 100, not of 1: write percentile(99), or p0.99 if you mean it"),
    ("FROM * SELECT x WHERE", 21, "expected the name of a label, found the end"),
    ("FROM * SELECT x WHERE a", 23, "expected = or IN after 'a', found the end"),
    ("FROM * SELECT x WHERE a = ", 26, "expected a value, found the end"),
    ("FROM * SELECT x WHERE a = -1", 26, "expected a value, found '-1'; quotes make it a name: '-1'"),
    ("FROM * SELECT x WHERE a != 'y'", 24, "WHERE takes = and IN only, not !=; list the values you want: a IN ("),
    ("FROM * SELECT x WHERE a NOT IN ('y')", 24, "not NOT; list the values you want"),
    ("FROM * SELECT x WHERE NOT a = 1", 22, "conditions are joined by AND, without NOT"),
    ("FROM * SELECT x WHERE (a = 1)", 22, "conditions are joined by AND, without (: country = 'KR'"),
    ("FROM * SELECT x WHERE a == 1", 24, "'==' is not known here; write ="),
    ("FROM * SELECT x WHERE a IS NULL", 24, "a label that is missing is the empty text: write a = ''"),
    ("FROM * SELECT x WHERE a LIKE 'y'", 24, "expected = or IN after 'a', found 'LIKE'"),
    ("FROM * SELECT x WHERE a = 1 OR a = 2", 28, "OR works only between values of one label: a IN ('x', 'y')"),
    ("FROM * SELECT x WHERE a = 1 || a = 2", 28, "OR works only between values of one label"),
    ("FROM * SELECT x WHERE a = 1 && b = 2", 28, "write AND"),
    ("FROM * SELECT x WHERE a = 1 AND a = 2", 32, "'a' appears twice; write a IN ('x', 'y') for either value"),
    ("FROM * SELECT x WHERE a IN 1", 27, "expected (, found '1'"),
    ("FROM * SELECT x WHERE a IN ()", 28, "expected a value, found ')'"),
    ("FROM * SELECT x WHERE a IN (1", 29, "expected ), found the end"),
    ("FROM * SELECT x BY", 18, "expected the name of a label"),
    ("FROM * SELECT x BY a,", 21, "expected the name of a label"),
    ("FROM * SELECT x SINCE", 21, "expected a time after SINCE, found the end; write how long ago (1h), a moment"),
    ("FROM * SELECT x SINCE yesterday", 22, "'yesterday' is not a time; write how long ago"),
    ("FROM * SELECT x SINCE now", 22, "nothing has happened since now"),
    ("FROM * SELECT x SINCE 2026-02-30", 22, "'2026-02-30' is not in the calendar"),
    ("FROM * SELECT x SINCE 1969-12-31", 22, "outside 1970 to 9900"),
    ("FROM * SELECT x SINCE 2026-11-15T12:00:00", 22, "has no time zone; write 2026-11-15T12:00:00Z for UTC"),
    ("FROM * SELECT x SINCE 2026-11-15 12:00Z", 33, "write date and time with a T between them: 2026-11-15T12:00Z"),
    ("FROM * SELECT x SINCE 9999d", 22, "longer ago than 3660d; write a date"),
    ("FROM * SELECT x SINCE 1h UNTIL 2h", 31, "UNTIL is not after SINCE"),
    ("FROM * SELECT x SINCE 1h UNTIL 60m", 31, "UNTIL is not after SINCE"),
    ("FROM * SELECT x SINCE 2026-11-15 UNTIL 2026-11-15", 39, "UNTIL is not after SINCE"),
    ("FROM * SELECT x LIMIT 0", 22, "LIMIT takes a whole number from 1 to 1,000,000,000, not '0'"),
    ("FROM * SELECT x LIMIT -5", 22, "not '-5'"),
    ("FROM * SELECT x LIMIT ten", 22, "not 'ten'"),
    ("FROM 'a SELECT x", 5, "this text has no closing quote '"),
    ("FROM \"a'' SELECT x", 5, 'this text has no closing quote "'),
    ("FROM \uc11c\uc6b8 SELECT x", 5, "unexpected character '\uc11c'; in a name or value it needs quotes"),
    ("FROM a$ SELECT x", 6, "unexpected character '$'"),
    ("FROM 'a\0' SELECT x", 7, "NUL and halves of surrogate pairs"),
    ("FROM '\ud800' SELECT x", 6, "NUL and halves of surrogate pairs"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "position", "message"), WRONG)
def test_an_error_stands_at_its_position(text, position, message):
    with pytest.raises(QueryError) as caught:
        parse(text)
    error = caught.value
    assert message in error.detail
    assert error.position == position
    assert error.code == ("unknown_function" if "unknown function" in error.detail or "no percentile" in error.detail
                          else "bad_query")  # fmt: skip
    assert str(error) == f"{error.detail}\n{error.excerpt}"
    line, caret = error.excerpt.split("\n")
    if position < 50:
        assert caret == "  " + " " * position + "^"
        assert line[2 : 2 + position] == "".join(c if c.isprintable() else " " for c in text[:position])


@pytest.mark.parametrize(
    "text",
    [
        "FROM " + "a" * 20_000 + " SELECT x",
        "FROM '" + "''" * 4_900,
        "FROM '" + "a''" * 3_300 + " SELECT x",
        "(" * 9_000,
        "FROM * SELECT x WHERE a IN (" * 300,
        "FROM " + "a," * 4_900,
        "FROM * SELECT x COMPUTE " + "p" * 9_900,
        "FROM * SELECT x COMPUTE percentile(" + "9" * 9_900 + ")",
        "FROM * SELECT x LIMIT " + "9" * 9_900,
        "FROM * SELECT x WINDOW " + "9" * 9_900 + "m",
        "FROM * SELECT x SINCE " + "9" * 9_900 + "d",
        "FROM * SELECT x SINCE '" + "9" * 9_900 + "'",
        "FROM * SELECT x WHERE '" + "a" * 9_900 + "' != 1",
        "FROM " + ",".join(f"'{n}$'" for n in range(1_250)) + " SELECT x",  # fits as written, not in full
    ],
    ids=range(14),
)
def test_hostile_queries_are_errors_of_a_few_lines(text):
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("source", ["', '".join(map(str, range(1_200))), "''" * 4_000], ids=["many", "quotes"])
def test_the_longest_queries_are_read_at_once(source):
    text = f"FROM '{source}' SELECT x"
    assert len(text) <= MAX_LENGTH
    started = time.process_time()
    assert parse(text).sources
    assert time.process_time() - started < 0.5


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12) | (
    st.sampled_from([*sorted(KEYWORDS), "now", "a.b", "web-1", "p99", "it's", "1h", "-1h", "*", "metrics."])
)
values = names | st.just("")
durations = st.integers(1, 3660 * 86_400)
moments = st.sampled_from(["-3h", "-90s", "2026-11-15", "2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123Z"])
selections = names.map(lambda name: Selection(name, quoted="." in name or not is_bare(name))) | st.builds(
    Selection, names, meter=names
)
functions = st.sampled_from(["count", "avg", "distinct"]) | st.integers(1, 99_999).map(
    lambda n: percentile_name(n / 1000)
)
queries = st.builds(
    Query,
    st.none() | st.lists(values, min_size=1, max_size=4, unique=True).map(tuple),
    selections,
    window_s=st.none() | durations,
    compute=st.none() | st.lists(functions, min_size=1, max_size=4, unique=True).map(tuple),
    where=st.dictionaries(names, st.lists(values, min_size=1, max_size=3, unique=True).map(tuple), max_size=3),
    by=st.lists(names, max_size=3, unique=True).map(tuple),
    since=st.none() | moments,
    until=st.sampled_from([None, "now", "-1s"]),
    limit=st.none() | st.integers(1, 10**9),
)


@given(queries)
def test_any_query_survives_the_way_to_its_text_and_back(query):
    assert parse(str(query)) == query
    assert str(parse(str(query))) == str(query)


PIECES = [*sorted(KEYWORDS), "select", "from", "*", ",", ", ", "(", ")", "=", "!=", "'", '"', "''", ".", ";", " ", "\n",
          "web-1", "cpu", "metrics.", "1m", "5m", "-1h", "0s", "now", "ago", "avg", "percentile", "percentile(99)",
          "p99.90", "99.9", "2026-11-15",
          "2026-11-15T12:00:00Z", "12:00", "\\", "\ud800", "\0", "é", "<", "||", "+"]  # fmt: skip


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join)
    | st.lists(st.sampled_from(PIECES), max_size=30).map(lambda pieces: "FROM * SELECT x " + "".join(pieces))
)
def test_any_text_is_a_query_or_an_error_inside_it(text):
    try:
        found = parse(text)
    except QueryError as error:
        found = error
    if isinstance(found, QueryError):
        assert 0 <= found.position <= len(text)
        assert found.excerpt.count("\n") == 1
    else:
        assert parse(str(found)) == found
