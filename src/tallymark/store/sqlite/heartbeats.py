"""Heartbeats: which roles are alive."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tallymark.store.sqlite.connection import Connections


class SqliteHeartbeats:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self._connections.mine().execute(
            "INSERT OR REPLACE INTO beats VALUES (?, ?, ?)", (role, now_ms, msgspec.json.encode(facts).decode())
        )

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        rows = self._connections.mine().execute("SELECT role, at_ms, facts FROM beats ORDER BY role")
        return {role: (at_ms, msgspec.json.decode(facts)) for role, at_ms, facts in rows}
