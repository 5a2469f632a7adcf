"""One hint for every unknown word, wherever it was written."""

import pytest

from tallymark.suggest import MOST_LISTED, suggest

WORDS = ("count", "sum", "min", "max", "avg")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("cuont", "; did you mean count?"),
        ("COUNT", "; did you mean count?"),
        ("p99", "; known: count, sum, min, max, avg"),
        ("", "; known: count, sum, min, max, avg"),
    ],
)
def test_a_close_word_is_suggested_and_otherwise_all_are_listed(word, hint):
    assert suggest(word, WORDS) == hint


def test_the_suggestion_is_written_as_the_word_is_known_and_in_the_asked_form():
    assert suggest("europe/viena", ["Europe/Vienna"]) == "; did you mean Europe/Vienna?"
    assert suggest("sned", ["send", "{}"], form="`tallymark {}`") == "; did you mean `tallymark send`?"
    assert suggest("{", ["{}"], form="`{}`") == "; did you mean `{}`?"


def test_what_is_said_when_nothing_is_close():
    assert suggest("p99", WORDS, what="it computes") == "; it computes count, sum, min, max, avg"
    assert suggest("p99", WORDS, otherwise="see `tallymark`") == "; see `tallymark`"
    assert suggest("p99", WORDS, otherwise="") == suggest("p99", []) == ""


def test_a_long_word_and_a_long_list_stay_short():
    assert suggest("count" + "x" * 10_000_000, WORDS) == "; known: count, sum, min, max, avg"
    many = [f"key{number}" for number in range(MOST_LISTED + 1)]
    assert suggest("x", many) == f"; known: {', '.join(many[:-1])} …"
