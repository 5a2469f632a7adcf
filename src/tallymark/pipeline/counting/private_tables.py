"""Claim tables that this process rebuilt in memory while another one keeps the lock: until it has the lock again.

Spark may give a partition to another worker meanwhile. A table that was not asked for within a horizon holds nothing
that still counts, and is dropped.
"""

from tallymark.pipeline.counting.claim_table import ClaimTable


class PrivateTables:
    """By the path of the file that they stand in for."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[ClaimTable, float]] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, path: str) -> ClaimTable | None:
        table, _ = self._tables.get(path, (None, 0.0))
        return table

    def keep(self, path: str, table: ClaimTable, *, now_s: float) -> None:
        self._tables[path] = table, now_s

    def drop(self, path: str) -> None:
        self._tables.pop(path, None)

    def drop_unused(self, *, since_s: float) -> None:
        self._tables = {path: kept for path, kept in self._tables.items() if kept[1] >= since_s}
