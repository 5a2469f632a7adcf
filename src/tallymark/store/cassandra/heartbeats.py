"""Heartbeats: which roles are alive."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra.connection import Link, connect

# A role that has said nothing for a day is forgotten.
KEEP_S = 86_400

_WRITE = f"INSERT INTO beats (store, role, at_ms, facts) VALUES (?, ?, ?, ?) USING TTL {KEEP_S}"
_READ = "SELECT role, at_ms, facts FROM beats WHERE store = ?"


class CassandraHeartbeats:
    def __init__(self, link: Link, store: str) -> None:
        self._link = link
        self._store = store

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None:
        self._link.rows(_WRITE, self._store, role, now_ms, msgspec.json.encode(facts))

    def beats(self) -> dict[str, tuple[int, dict[str, Any]]]:
        rows = self._link.rows(_READ, self._store)
        return {role: (at_ms, msgspec.json.decode(facts)) for role, at_ms, facts in rows}

    def close(self) -> None:
        self._link.close()


def open_heartbeats(address: CassandraAddress) -> CassandraHeartbeats:
    return CassandraHeartbeats(Link(address, connect), address.name)
