"""The ledger of each partition as a row: a column a term."""

import sqlite3

from tallymark.ledger import NAMES, Ledger

TABLE = (
    f"CREATE TABLE ledger (partition INTEGER PRIMARY KEY, {', '.join(f'{name} INTEGER NOT NULL' for name in NAMES)})"
)

_COLUMNS = ", ".join(NAMES)
_READ = f"SELECT partition, {_COLUMNS} FROM ledger"
_ADD = (
    f"INSERT INTO ledger (partition, {_COLUMNS}) VALUES (?{', ?' * len(NAMES)}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in NAMES)
)


def add_to_ledger(connection: sqlite3.Connection, partition: int, ledger: Ledger) -> None:
    connection.execute(_ADD, (partition, *ledger.numbers))


def read_ledgers(connection: sqlite3.Connection) -> dict[int, Ledger]:
    return {partition: Ledger.of(numbers) for partition, *numbers in connection.execute(_READ)}
