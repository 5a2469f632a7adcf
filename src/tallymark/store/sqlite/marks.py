"""Marks: the single numbers that say how far something has come."""

import sqlite3
from dataclasses import fields
from typing import Literal

from tallymark.store.grains import ROLLED
from tallymark.store.model import Folding, Marks

Mark = Literal["revision", "journal_end", "folded", "first_s", "last_s", "letter_bytes"]

_READ = "SELECT name, value FROM marks UNION ALL SELECT grain_s, through_s FROM rolled"


def read_marks(connection: sqlite3.Connection) -> Marks:
    """In one statement, so that they belong together."""
    values = dict(connection.execute(_READ).fetchall())
    rolled = {grain_s: values.pop(grain_s) for grain_s in ROLLED}
    return Marks(rolled=rolled, **{field.name: values[field.name] for field in fields(Marks) if field.name in values})


def set_rolled(connection: sqlite3.Connection, grain_s: int, through_s: int) -> None:
    connection.execute("UPDATE rolled SET through_s = ? WHERE grain_s = ?", (through_s, grain_s))


def read_mark(connection: sqlite3.Connection, name: Mark) -> int:
    return int(connection.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()[0])


def set_mark(connection: sqlite3.Connection, name: Mark, value: int) -> None:
    connection.execute("UPDATE marks SET value = ? WHERE name = ?", (value, name))


def add_to_mark(connection: sqlite3.Connection, name: Mark, amount: int) -> None:
    connection.execute("UPDATE marks SET value = value + ? WHERE name = ?", (amount, name))


def read_folding(connection: sqlite3.Connection) -> Folding | None:
    """The fold under way, if there is one."""
    row = connection.execute("SELECT through, meter, series FROM folding").fetchone()
    return None if row is None else Folding(*row)


def set_folding(connection: sqlite3.Connection, folding: Folding | None) -> None:
    connection.execute("DELETE FROM folding")
    if folding is not None:
        connection.execute("INSERT INTO folding VALUES (?, ?, ?)", (folding.through, folding.meter, folding.series))
