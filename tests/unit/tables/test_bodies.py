"""Rows as they are sent: what is read, what is refused, and where."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.tables import Body, Mistakes, TableError, bodies, model, read
from tallymark.tables.bodies import ABSENT, Format

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(["title", "channel", "key", "a b", "größe"])


def rows(body: Body) -> list[dict[str, Any]]:
    found = []
    for place, key in enumerate(body.keys):
        values = {name: column[place] for name, column in body.columns.items()}
        found.append({"id": key} | {name: value for name, value in values.items() if value is not ABSENT})
    return found


def refused(content: Any, form: Format = "json", **rest: Any) -> TableError:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(TableError) as found:
        read(text, form, **{"key": "id", **rest})
    return found.value


def told(content: Any, form: Format = "json", **rest: Any) -> list[str]:
    error = refused(content, form, **rest)
    assert isinstance(error, Mistakes), error
    return [str(each) for each in error.found]


@given(
    st.dictionaries(NAMES, st.sampled_from([TEXTS, NUMBERS, st.booleans()]), max_size=4).flatmap(
        lambda kinds: st.dictionaries(
            TEXTS,
            st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in kinds.items()}),
            max_size=8,
        )
    ),
    st.sampled_from(["json", "ndjson"]),
)
def test_any_rows_are_read_as_they_were_sent(table: dict[str, dict[str, Any]], form: Format) -> None:
    sent = [{"id": key, **values} for key, values in table.items()]
    lines = b"\n".join(json.dumps(each).encode() for each in sent)
    body = read(json.dumps(sent).encode() if form == "json" else lines, form, key="id")
    assert rows(body) == sent


@given(st.lists(st.lists(TEXTS.filter(bool), min_size=2, max_size=2), max_size=8, unique_by=lambda row: row[0]))
def test_any_text_is_read_from_csv(table: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    # The last column has a text that is neither a number nor a boolean, so it is text whatever else is in it.
    writer.writerows([["id", "title"], *table, ["the last", "no number"]])
    assert rows(read(text.getvalue().encode(), "csv", key="id"))[:-1] == [
        {"id": key, "title": title} for key, title in table
    ]


def test_a_column_has_the_type_of_its_first_value() -> None:
    body = read(
        b'[{"id":"A","t":null,"n":1,"b":false},{"id":"B","t":"x","n":2.5,"b":true},{"id":"C","none":null}]',
        "json",
        key="id",
    )
    assert body.types == {"t": "text", "n": "number", "b": "boolean", "none": "text"}


def test_csv_has_numbers_booleans_nulls_and_text_where_they_mix() -> None:
    text = b"id,n,b,mixed,zip,large,empty\nA,1,true,1,00123,9007199254740993,\nB,-2.5e3,false,x,4,1,\nC,,,,,,\n"
    body = read(text, "csv", key="id")
    assert body.types == {
        "n": "number", "b": "boolean", "mixed": "text", "zip": "text", "large": "text", "empty": "text",
    }  # fmt: skip
    assert rows(body)[0] == {
        "id": "A", "n": 1.0, "b": True, "mixed": "1", "zip": "00123", "large": "9007199254740993", "empty": None,
    }  # fmt: skip
    assert rows(body)[2] == {"id": "C"} | dict.fromkeys(["n", "b", "mixed", "zip", "large", "empty"])


def test_csv_of_a_patch_is_read_by_the_types_of_the_table() -> None:
    body = read(b"id,t,n\nA,007,\nB,12,3\n", "csv", key="id", known={"t": "text", "n": "number"})
    assert rows(body) == [{"id": "A", "t": "007", "n": None}, {"id": "B", "t": "12", "n": 3.0}]
    assert told(b"id,n\nA,x\n", "csv", known={"n": "number"}) == [
        "line 2: 'n' = 'x' is not a number, but the column is number: the table has it so"
    ]


def test_keys_may_be_numbers_and_are_labels() -> None:
    assert read(b'[{"id":200},{"id":200.5},{"id":true},{"id":""}]', "json", key="id").keys == [
        "200",
        "200.5",
        "true",
        "",
    ]


def test_from_and_deleted_are_no_columns() -> None:
    body = read(
        b'[{"id":"A","from":"2026-11-15T12:00:00+01:00"},{"id":"B","from":1500},{"id":"C","deleted":true},{"id":"D"}]',
        "json",
        key="id",
    )
    assert body.columns == {}
    assert body.froms == [1_794_740_400_000, 1500, None, None]
    assert body.deleted == [False, False, True, False]
    text = read(b"id,from,deleted\nA,2026-11-15T11:00:00Z,true\nB,,\n", "csv", key="id")
    assert (text.froms, text.deleted) == ([1_794_740_400_000, None], [True, False])


def test_every_mistake_has_its_line_its_column_and_its_value() -> None:
    lines = (
        b'{"id":"A","n":1}\n\n{"id":"B","n":"x"}\nnot json\n{"n":1}\n{"id":"C","n":[1]}\n[1]\n{"id":"D","from":"noon"}'
    )
    error = refused(lines.replace(b"[1]\n{", b"{"), "ndjson")
    assert isinstance(error, Mistakes)
    assert [(each.line, each.column, each.value) for each in error.found] == [
        (3, "n", "x"),
        (4, "", "not json"),
        (5, "id", ""),
        (6, "n", "[1]"),
        (7, "from", "noon"),
    ]
    assert error.extra == {"line": 3, "column": "n"}
    assert str(error.found[0]) == "line 3: 'n' = 'x' is a text, but the column is number: so is its first value"
    assert told(lines, "ndjson") == ["line 7: a row is an object, not an array"]


def test_mistakes_of_all_kinds_are_told_at_once() -> None:
    assert told(b"id,n\nA,x\nB,2\nB,3\nC\n", "csv", known={"n": "number"}) == [
        "line 2: 'n' = 'x' is not a number, but the column is number: the table has it so",
        "line 4: the key 'B' is in line 3 already",
        "line 5: 1 field, but the first line names 2 columns",
    ]


def test_at_most_twenty_mistakes_are_told() -> None:
    error = refused([{"id": str(number), "n": 1 if number == 0 else "x"} for number in range(1000)])
    assert isinstance(error, Mistakes)
    assert len(error.found) == 20
    assert "(and 19 more mistakes or more); nothing was changed" in error.detail


@pytest.mark.parametrize(
    ("content", "form", "what"),
    [
        (b'[{"id":"a\\u0000"}]', "json", "row 1: the key 'id' contains U+0000: 'a\\x00'"),
        (b'[{"id":"a","t":"x\\u0000"}]', "json", "row 1: 't' contains U+0000: 'x\\x00'"),
        (b"id,t\na,x\0\n", "csv", "line 2: 't' contains U+0000: 'x\\x00'"),
        (b'[{"id":"a","n":9007199254740993}]', "json", "row 1: 'n' = 9007199254740993 exceeds 2^53 and would be"),
        (b'[{"id":"a"},{"id":"a"}]', "json", "row 2: the key 'a' is in row 1 already"),
        (b'[{"id":"1"},{"id":1}]', "json", "row 2: the key '1' is in row 1 already"),
        (b'[{"id":"a","from":5},{"id":"a","from":5}]', "json", "row 2: the key 'a' is in row 1 already from the same"),
        (b"id,t,t\na,1,2\n", "csv", "line 1: the column 't' appears twice"),
        (b"id,,t\na,1,2\n", "csv", "line 1: column 2 has no name"),
        (b"id,t\na\n", "csv", "line 2: 1 field, but the first line names 2 columns"),
        (b'id,t\n"a\nb",x,y\nc,d\n', "csv", "line 2: 3 fields, but the first line names 2 columns"),
        (b'id,t\na,"x\n', "csv", "line 2: not CSV: unexpected end of data"),
        (b"id,t\na,b\nc,\xff\n", "csv", "line 3: byte 3 of the line is not UTF-8"),
        (b'{"id":"a"}\n{"id":"\xff"}', "ndjson", "line 2: not JSON"),
        (b'[{"id":"a","t":"' + b"x" * 1025 + b'"}]', "json", "row 1: 't' has 1,025 bytes, and a text has"),
        (b'[{"id":"' + "é".encode() * 600 + b'"}]', "json", "row 1: the key 'id' has 1,200 bytes"),
        (b'[{"id":null}]', "json", "row 1: the key 'id' is missing"),
        (b'[{"id":{}}]', "json", "row 1: the key 'id' is an object; a text is needed"),
        (b'[{"id":"a","from":"2026-13-45T00:00:00Z"}]', "json", "row 1: from = '2026-13-45T00:00:00Z' is not a time"),
        (b'[{"id":"a","from":"2026-11-15T12:00:00"}]', "json", "row 1: from = '2026-11-15T12:00:00' is not a time"),
        (b'[{"id":"a","from":-1}]', "json", "row 1: from = -1 is not a time"),
        (b'[{"id":"a","deleted":"yes"}]', "json", "row 1: deleted = 'yes' is neither true nor false"),
        (b'[{"id":"a","t":true},{"id":"b","t":1}]', "json", "row 2: 't' = 1 is a number, but the column is boolean"),
        (b'{"id":"a","t":' + b"[" * 100_000, "ndjson", "line 1: the JSON is nested too deeply"),
    ],
)  # fmt: skip
def test_hostile_rows_are_refused_at_their_place(content: bytes, form: Format, what: str) -> None:
    assert told(content, form)[0].startswith(what)


@pytest.mark.parametrize(
    ("content", "form", "code"),
    [
        (b"[" * 100_000, "json", "too_deep"),
        (b'[{"id":1e400}]', "json", "bad_json"),
        (b'[{"id":"\xff"}]', "json", "bad_json"),
        (b'{"id":"a"}\n{"id":"b"}', "json", "bad_json"),
        (b"7", "json", "bad_json"),
        (b"", "json", "bad_json"),
        (b"", "csv", "bad_csv"),
        (b'[{"di":"a"}]', "json", "missing_key"),
        (b"title\nx\n", "csv", "missing_key"),
        (b'[{"id":"a","x,y":1}]', "json", "bad_column"),
        (b'[{"id":"a","":1}]', "json", "bad_column"),
        (b'[{"id":"a","x\\u0000":1}]', "json", "bad_column"),
    ],
)
def test_what_is_no_table_is_refused_as_a_whole(content: bytes, form: Format, code: str) -> None:
    assert refused(content, form).code == code


def test_limits_are_told_with_the_actual_number(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = refused([{"id": "a", **{f"c{number}": 1 for number in range(33)}}])
    assert (wide.code, wide.extra) == ("too_many_columns", {"limit": 32, "actual": 33})
    wider = refused([{"id": "a", **{f"c{number}": 1 for number in range(99)}}])
    assert (wider.code, wider.extra["actual"]) == ("too_many_columns", 99)
    monkeypatch.setattr(bodies, "MOST_VERSIONS", 3)
    for form, content in (
        ("json", json.dumps([{"id": str(n)} for n in range(9)]).encode()),
        ("csv", b"id\n1\n2\n3\n4\n"),
    ):
        long = refused(content, form)
        assert (long.code, long.extra["limit"]) == ("too_many_rows", 3)
    assert refused([{"id": 1}], key="from").code == "bad_key"
    with pytest.raises(TableError, match="not a table name"):
        model.check_name("Videos")


def test_a_bom_quoted_newlines_and_blank_lines_are_fine() -> None:
    body = read(b'\xef\xbb\xbfid,title\r\nA,"two\nlines, ""quoted"""\r\n\r\nB,x\r\n', "csv", key="id")
    assert rows(body) == [{"id": "A", "title": 'two\nlines, "quoted"'}, {"id": "B", "title": "x"}]
    assert read(b'\xef\xbb\xbf[{"id":"A"}]', "json", key="id").keys == ["A"]
    assert read(b"[]", "json", key="id").keys == []
    assert read(b'{"id":"A"}', "json", key="id").keys == ["A"]
    assert told(b'id,n\nA,"1\n2"\nA,3\n', "csv") == ["line 4: the key 'A' is in line 2 already"]
