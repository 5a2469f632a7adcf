"""One Cassandra for all tests that need one, and stores in it."""

import atexit
import functools
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

import lanes
from lab.cassandra import Cassandra
from tallymark.store.address import CassandraAddress
from tallymark.store.cassandra import connection

_held: list[connection.Session] = []


@functools.cache
def server() -> Cassandra:
    """Started by the first test that asks for it; ended by `stop`, or with the run."""
    lanes.only_here("cassandra")
    folder = Path(tempfile.mkdtemp(prefix="tallymark-cassandra-"))
    # Before the start: what is registered first is done last, when the server is gone.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    cassandra = Cassandra(folder)
    cassandra.start()
    # Held to the end, so that a test's first store does not wait for a connection each time.
    _held.append(connection.connect(address(cassandra.port)))
    return cassandra


def stop() -> None:
    """After the last test that needs it."""
    if _held:
        _held.pop().close()
        server().stop()
        server.cache_clear()


def address(port: int, *, name: str = "", **more: Any) -> CassandraAddress:
    """A store nobody else has, unless it is named."""
    fields: dict[str, Any] = {
        "hosts": ("127.0.0.1",),
        "port": port,
        "keyspace": "tests",
        "name": name or uuid.uuid4().hex,
        "replication": (),
        "data_center": "",
        "consistency": "quorum",
        "shards": 3,
        "timeout_s": 20.0,
        "user": "",
        "password": "",
    }
    return CassandraAddress(**(fields | more))
