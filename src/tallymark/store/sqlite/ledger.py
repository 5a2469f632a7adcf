"""The ledger of each tenant in each partition as a row: a column a term."""

import sqlite3
from collections.abc import Mapping

from tallymark.ledger import NAMES, Ledger

TABLE = (
    f"CREATE TABLE ledger (tenant TEXT, partition INTEGER, {', '.join(f'{name} INTEGER NOT NULL' for name in NAMES)},"
    " PRIMARY KEY (tenant, partition)) WITHOUT ROWID"
)

_COLUMNS = ", ".join(NAMES)
_SUMS = ", ".join(f"SUM({name})" for name in NAMES)
_ADD = (
    f"INSERT INTO ledger (tenant, partition, {_COLUMNS}) VALUES (?, ?{', ?' * len(NAMES)}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in NAMES)
)


def add_to_ledger(connection: sqlite3.Connection, partition: int, ledgers: Mapping[str, Ledger]) -> None:
    connection.executemany(_ADD, [(tenant, partition, *ledger.numbers) for tenant, ledger in ledgers.items()])


def read_ledgers(connection: sqlite3.Connection) -> dict[int, Ledger]:
    """By partition."""
    rows = connection.execute(f"SELECT partition, {_SUMS} FROM ledger GROUP BY partition ORDER BY partition")
    return {partition: Ledger.of(numbers) for partition, *numbers in rows}


def read_tenant_ledgers(connection: sqlite3.Connection) -> dict[str, Ledger]:
    rows = connection.execute(f"SELECT tenant, {_SUMS} FROM ledger GROUP BY tenant ORDER BY tenant")
    return {tenant: Ledger.of(numbers) for tenant, *numbers in rows}
