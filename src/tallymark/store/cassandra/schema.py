"""The tables of a keyspace, and what a new store begins with."""

import re
import uuid
from typing import Any

from tallymark.store.address import CassandraAddress
from tallymark.store.grains import GRAINS
from tallymark.store.protocol import StoreError

# A part of the numbers of tables; not the version of what is in them, which `store.format` has.
_TABLES_VERSION = 1

_TABLES = {
    # All that must change together, in one partition: a conditional batch there is atomic, isolated and fenced.
    "book": """(store text, book text, kind text, a bigint, b bigint, value blob,
        sequence bigint static, commit_token text static, identity text static, facts blob static,
        epoch bigint static, holder text static, renewed bigint static,
        PRIMARY KEY ((store, book), kind, a, b))""",
    # Deltas that a batch names. One deleted here that comes back on a node that was away is named by nobody: so its
    # tombstone need not be kept for long.
    "deposits": """(store text, key text, chunk int, body blob,
        PRIMARY KEY ((store, key), chunk)) WITH gc_grace_seconds = 3600""",
    # Of tables, and the names of all parts. A deleted one that comes back is named by no document.
    "table_parts": """(store text, part text, chunk int, body blob,
        PRIMARY KEY ((store, part), chunk)) WITH gc_grace_seconds = 3600""",
    "table_part_names": """(store text, part text, written_ms bigint,
        PRIMARY KEY (store, part)) WITH gc_grace_seconds = 3600""",
    "letters": """(store text, book text, block bigint, number bigint, found_ms bigint, total bigint, body blob,
        PRIMARY KEY ((store, book, block), number))""",
    # What a saved query found in each of its windows; the write time is the number of the last batch in it.
    "windows": """(store text, lineage bigint, group_s bigint, start_s bigint, body blob,
        PRIMARY KEY ((store, lineage, group_s), start_s))""",
    "beats": "(store text, role text, at_ms bigint, facts blob, PRIMARY KEY (store, role))",
    # The index over labels: which series of a meter have this value.
    "series_by_label": """(store text, meter int, label text, value text, series text,
        PRIMARY KEY ((store, meter, label, value), series))""",
    # All series of a set; a set with a limit has no others.
    "series": """(store text, meter int, shard int, series text,
        PRIMARY KEY ((store, meter, shard), series))""",
    # A table a grain. What a fold writes at one time lies in few partitions, and what a roll of an hour reads in one
    # for each shard; none grows beyond a shard's series times 60.
    **{
        f"points_{grain_s}": """(store text, meter int, shard int, window_s bigint, series text, bucket_s bigint,
        state blob, PRIMARY KEY ((store, meter, shard, window_s), series, bucket_s))"""
        for grain_s in GRAINS
    },
}


def prepare(session: Any, address: CassandraAddress) -> None:
    """Makes the keyspace and the tables that are missing; several processes may do so at once."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", address.keyspace):
        raise StoreError(f"store.keyspace = {address.keyspace!r} must be up to 48 letters, digits and underscores")
    keyspaces = {name for (name,) in session.execute("SELECT keyspace_name FROM system_schema.keyspaces")}
    if address.keyspace not in keyspaces:
        session.execute(
            f'CREATE KEYSPACE IF NOT EXISTS "{address.keyspace}" WITH replication = {_replication(address)}'
        )
    tables = {
        name
        for (name,) in session.execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", (address.keyspace,)
        )
    }
    for name, definition in _TABLES.items():
        if name not in tables:
            # The number by name, not by chance: two nodes that make a table at once then make the same one.
            number = uuid.uuid5(uuid.NAMESPACE_OID, f"tallymark.{address.keyspace}.{name}.{_TABLES_VERSION}")
            link = "AND" if " WITH " in definition else "WITH"
            session.execute(f'CREATE TABLE IF NOT EXISTS "{address.keyspace}".{name} {definition} {link} id = {number}')


def _replication(address: CassandraAddress) -> str:
    if not address.replication:
        return "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    copies = []
    for each in address.replication:
        data_center, _, count = each.partition("=")
        if not re.fullmatch(r"[^'=]+", data_center) or not count.isdecimal() or int(count) < 1:
            raise StoreError(f"store.replication: {each!r} is not of the form dc1=3")
        copies.append(f"'{data_center}': {int(count)}")
    return f"{{'class': 'NetworkTopologyStrategy', {', '.join(copies)}}}"
