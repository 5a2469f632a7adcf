"""Stores to test, and connections that die."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tallymark.store.sqlite.connection import Connect, connect
from tallymark.store.sqlite.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


class Died(Exception):
    """The process would be gone here."""


@dataclass
class Fuse:
    """Burns down by one with each statement; at zero the statement fails, and with `lasting` all that follow."""

    left: int | None = None
    lasting: bool = True
    after: bool = False
    """die when the statement was carried out, before anyone knows"""
    blown: bool = False

    def light(self, left: int, *, lasting: bool = True, after: bool = False) -> None:
        self.left, self.lasting, self.after, self.blown = left, lasting, after, False

    def quench(self) -> None:
        self.left, self.blown = None, False

    def burn(self) -> bool:
        """True if this is the statement."""
        if self.blown and self.lasting:
            raise Died
        if self.left is None:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.left, self.blown = None, True
        if not self.after:
            raise Died
        return True

    def connect(self) -> Connect:
        fuse = self

        class Dying(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                dies = fuse.burn()
                cursor = super().execute(*arguments)
                if dies:
                    cursor.close()
                    raise Died
                return cursor

            def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:  # type: ignore[override]
                # Row by row, so that it can die between two of them.
                for row in rows:
                    self.execute(sql, row)
                return self.cursor()

        return lambda path: connect(path, factory=Dying)


@pytest.fixture
def fuse() -> Fuse:
    return Fuse()


@pytest.fixture
def died() -> type[Died]:
    return Died
