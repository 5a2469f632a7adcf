"""The table of terms: everything that is derived from it, and what is already on disk."""

import sqlite3

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.ledger import NAMES, NOTES, OUTCOMES, TERMS, Ledger, Part
from tallymark.store.cassandra.sink import Standing
from tallymark.store.sqlite import ledger as sqlite_ledger

numbers = st.tuples(*(st.integers(0, 1 << 40) for _ in NAMES))
ledgers = numbers.map(Ledger.of)


@given(ledgers, ledgers)
def test_every_term_adds_up(one, other):
    total = one + other
    for name in NAMES:
        assert getattr(total, name) == getattr(one, name) + getattr(other, name)
    assert total.missing == one.missing + other.missing


@given(ledgers, ledgers, ledgers)
def test_order_and_grouping_do_not_matter(one, other, third):
    assert (one + other) + third == one + (other + third)
    assert one + other == other + one
    assert one + Ledger() == one


@pytest.mark.parametrize("term", TERMS, ids=NAMES)
def test_an_outcome_is_a_summand_and_a_note_is_not(term):
    changes = {Part.WHOLE: 7, Part.OUTCOME: -7, Part.NOTE: 0}
    assert Ledger(**{term.name: 7}).missing == changes[term.part]


def test_the_whole_comes_first_and_every_term_is_explained():
    assert [term.name for term in TERMS if term.part is Part.WHOLE] == ["accepted"] == list(NAMES[:1])
    assert {*OUTCOMES, *NOTES} == set(TERMS[1:])
    assert all(term.label and term.meaning for term in TERMS)


# On disk: a new term comes last, and what is here never changes.

ON_DISK = ("accepted", "counted", "duplicate", "dead", "aside", "unmatched", "late")


def test_the_terms_of_the_first_version_keep_their_places():
    assert NAMES[: len(ON_DISK)] == ON_DISK


@given(ledgers, ledgers)
def test_a_table_of_the_first_version_is_read_and_added_to(before, more):
    with sqlite3.connect(":memory:") as connection:
        connection.execute(
            "CREATE TABLE ledger (tenant TEXT, partition INTEGER, accepted INTEGER NOT NULL, counted INTEGER NOT NULL,"
            " duplicate INTEGER NOT NULL, dead INTEGER NOT NULL, aside INTEGER NOT NULL, unmatched INTEGER NOT NULL,"
            " late INTEGER NOT NULL, PRIMARY KEY (tenant, partition))"
        )
        connection.execute("INSERT INTO ledger VALUES ('main', 3, ?, ?, ?, ?, ?, ?, ?)", before.numbers[: len(ON_DISK)])
        assert sqlite_ledger.read_ledgers(connection) == {3: before}
        sqlite_ledger.add_to_ledger(connection, 3, {"main": more})
        sqlite_ledger.add_to_ledger(connection, 4, {"main": more, "acme": before})
        assert sqlite_ledger.read_ledgers(connection) == {3: before + more, 4: more + before}
        assert sqlite_ledger.read_tenant_ledgers(connection) == {"main": before + more + more, "acme": before}
    connection.close()


def test_a_new_table_has_a_column_a_term():
    with sqlite3.connect(":memory:") as connection:
        connection.execute(sqlite_ledger.TABLE)
        columns = connection.execute("SELECT name, type, \"notnull\", pk FROM pragma_table_info('ledger')").fetchall()
    connection.close()
    keys = [("tenant", "TEXT", 1, 1), ("partition", "INTEGER", 1, 2)]
    assert columns == [*keys, *((name, "INTEGER", 1, 0) for name in NAMES)]


def test_a_cell_of_the_first_version_is_read():
    written = msgspec.msgpack.encode([42, [70, 60, 5, 2, 1, 2, 9]])
    standing = msgspec.msgpack.decode(written, type=Standing)
    assert standing.following == 42
    assert Ledger.of(standing.ledger) == Ledger(
        accepted=70, counted=60, duplicate=5, dead=2, aside=1, unmatched=2, late=9
    )
    assert standing.by_tenant() == {"main": Ledger.of(standing.ledger)}


def test_a_ledger_from_before_a_term_existed_has_none_of_it():
    assert Ledger.of([70, 60]) == Ledger(accepted=70, counted=60)


def test_a_ledger_with_more_terms_is_refused():
    with pytest.raises(ValueError, match=f"a ledger of {len(NAMES) + 1} terms; this version of Tallymark knows"):
        Ledger.of(range(len(NAMES) + 1))
