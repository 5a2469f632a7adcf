"""Series: the number that stands for one combination of labels of one meter."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import msgspec

from tallymark.store.deltas import SEPARATOR
from tallymark.store.sqlite.connection import writing

SeriesKey = tuple[int, str | None]
"""(set_id, label values joined as in deltas); None is the sum over all series of the meter"""

SUM_OF_ALL = ""
"""what `labels` holds for that sum: not a JSON array, so no labels can collide with it"""

NEW_AT_ONCE = 4_000
MAX_CACHED = 500_000


def labels_text(values: Sequence[str]) -> str:
    """Label values as the store writes them: a JSON array."""
    return msgspec.json.encode(list(values)).decode()


def all_series(connection: sqlite3.Connection, set_id: int) -> list[str]:
    """Of a set, as in deltas, without the sum."""
    rows = connection.execute("SELECT labels FROM series WHERE set_id = ? AND labels <> ?", (set_id, SUM_OF_ALL))
    labels = msgspec.json.decode(f"[{','.join(text for (text,) in rows)}]", type=list[list[str]])
    return [SEPARATOR.join(values) for values in labels]


class SeriesCounts:
    """How many series each set has. Series are only ever added, so those counted before are not counted again."""

    def __init__(self) -> None:
        self._last = 0
        self._counts: Counter[int] = Counter()

    def of(self, connection: sqlite3.Connection) -> Counter[int]:
        """The first million take 0.4 s, once."""
        # Without the index over sets, which SQLite would go through from end to end to group by them: 50 ms each time.
        rows = connection.execute(
            "SELECT set_id, SUM(labels <> ?), MAX(series_id) FROM series NOT INDEXED"
            " WHERE series_id > ? GROUP BY set_id",
            (SUM_OF_ALL, self._last),
        ).fetchall()
        for set_id, found, last in rows:
            self._counts[set_id] += found
            self._last = max(self._last, last)
        return self._counts


class SeriesNumbers:
    """Numbers of series, made on first sight; those met lately are kept in memory."""

    def __init__(self) -> None:
        self._known: dict[SeriesKey, int] = {}

    def of(self, connection: sqlite3.Connection, keys: Sequence[SeriesKey]) -> list[int]:
        """One number a key, each key given once.

        New ones are made in transactions of their own: a series without points changes no answer.
        """
        numbers = [self._known.get(key) for key in keys]
        unknown = iter([key for key, number in zip(keys, numbers, strict=True) if number is None])
        made: dict[SeriesKey, int] = {}
        while some := list(islice(unknown, NEW_AT_ONCE)):
            made |= self._look_up_or_make(connection, some)
        self._remember(made)
        return [made[key] if number is None else number for key, number in zip(keys, numbers, strict=True)]

    def _look_up_or_make(self, connection: sqlite3.Connection, keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
        found = _look_up(connection, keys)
        missing = [key for key in keys if key not in found]
        if missing:
            with writing(connection):
                # Another keeper may have made some since.
                found |= _look_up(connection, missing)
                found |= {key: _make(connection, key) for key in missing if key not in found}
        return found

    def _remember(self, found: dict[SeriesKey, int]) -> None:
        self._known |= found
        surplus = len(self._known) - MAX_CACHED
        for key in list(islice(self._known, max(surplus, 0))):
            del self._known[key]


def _labels(key: SeriesKey) -> str:
    return SUM_OF_ALL if key[1] is None else labels_text(key[1].split(SEPARATOR))


def _look_up(connection: sqlite3.Connection, keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
    found = {}
    for key in keys:
        row = connection.execute(
            "SELECT series_id FROM series WHERE set_id = ? AND labels = ?", (key[0], _labels(key))
        ).fetchone()
        if row is not None:
            found[key] = int(row[0])
    return found


def _make(connection: sqlite3.Connection, key: SeriesKey) -> int:
    set_id, values = key
    series_id = connection.execute(
        "INSERT INTO series (set_id, labels) VALUES (?, ?)", (set_id, _labels(key))
    ).lastrowid
    assert series_id is not None
    if values is not None:
        connection.executemany(
            "INSERT INTO series_labels VALUES (?, ?, ?, ?)",
            [(set_id, place, value, series_id) for place, value in enumerate(values.split(SEPARATOR))],
        )
    return series_id
