"""Keyspace and tables: made once whoever comes first, copies per data centre, no reading without a key."""

import pickle
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

import cassandras
import tallymark.store.cassandra
from lab.cassandra import Cassandra
from tallymark.store.cassandra import bootstrap, connection
from tallymark.store.cassandra.store import CassandraStore
from tallymark.store.format import VERSION
from tallymark.store.protocol import StoreError, StoreUnreachable


def keyspace_facts(address: Any) -> dict[str, str]:
    session = connection.connect(address)
    cql = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?"
    ((replication,),) = list(session.execute(session.prepare(cql).bind((address.keyspace,))))
    session.close()
    return dict(replication)


def test_copies_per_data_centre_are_in_the_schema(cassandra: Cassandra) -> None:
    address = cassandras.address(
        cassandra.port, keyspace=f"k{uuid.uuid4().hex[:12]}", replication=("datacenter1=1",), consistency="local_quorum"
    )
    store = CassandraStore(address)
    assert store.registry.meter("main", "events").meter_id == 1
    found = keyspace_facts(address)
    assert found.pop("class").endswith("NetworkTopologyStrategy")
    assert found == {"datacenter1": "1"}
    store.close()


def test_a_keyspace_for_trials_has_one_copy(cassandra: Cassandra) -> None:
    cassandras.address(cassandra.port).open_registry()
    assert keyspace_facts(cassandras.address(cassandra.port))["replication_factor"] == "1"


def test_a_data_centre_that_is_not_there_is_answered_with_those_that_are(cassandra: Cassandra) -> None:
    with pytest.raises(
        StoreError, match=r"data_center = 'elsewhere' does not exist; the cluster has datacenter1"
    ) as said:
        cassandras.address(cassandra.port, data_center="elsewhere").open_sink()
    assert not isinstance(said.value, StoreUnreachable), "retrying does not help"


def test_a_request_goes_to_a_node_that_has_its_rows(cassandra: Cassandra) -> None:
    address = cassandras.address(cassandra.port)
    sink = address.open_sink()
    session: Any = connection.connect(address)
    statement = session.prepare("SELECT role FROM beats WHERE store = ?").bind((address.name,))
    replicas = session._of._cluster.metadata.get_replicas(address.keyspace, statement.routing_key)
    assert [host.datacenter for host in replicas] == ["datacenter1"]
    session.close()
    assert sink.applied("log") == {}


@pytest.mark.parametrize("replication", ["dc1", "dc1=", "=3", "dc1=0", "dc1=x"])
def test_replication_that_says_nothing_is_refused(cassandra: Cassandra, replication: str) -> None:
    address = cassandras.address(cassandra.port, keyspace="never_made", replication=(replication,))
    with pytest.raises(StoreError, match="is not of the form dc1=3"):
        address.open_store()


def test_many_may_make_keyspace_tables_and_store_at_once(cassandra: Cassandra) -> None:
    keyspace = f"k{uuid.uuid4().hex[:12]}"
    found: list[object] = []

    def make(number: int) -> None:
        # Another timeout is another session, as another process would have.
        address = cassandras.address(cassandra.port, keyspace=keyspace, name="shared", timeout_s=60.0 + number)
        store = CassandraStore(address)
        found.append((len(store.registry.meters("main")), store.registry.live_meters().revision))
        store.close()

    makers = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert found == [(2, 1)] * 4


def test_the_number_of_shards_is_that_of_the_store_not_of_who_opens_it(cassandra: Cassandra, build: Any) -> None:
    address = cassandras.address(cassandra.port, shards=2)
    first = CassandraStore(address, pause_s=0)
    first.sink.apply([build.stretch(0, 1, series=9)], now_ms=0)
    first.upkeep.fold(most_points=100)
    other = CassandraStore(cassandras.address(cassandra.port, name=address.name, shards=7), pause_s=0)
    assert build.counts(other) == {f"e{each}": 1 for each in range(9)}
    first.close()
    other.close()


def test_a_store_of_a_later_version_is_refused(cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch) -> None:
    address = cassandras.address(cassandra.port)
    address.open_registry()
    monkeypatch.setattr(bootstrap, "VERSION", VERSION - 1)
    with pytest.raises(StoreError, match=f"has format {VERSION}, but this version of Tallymark reads"):
        address.open_store()


def test_no_table_is_ever_read_without_its_key() -> None:
    package = Path(tallymark.store.cassandra.__file__).parent
    words = " ".join(path.read_text().upper() for path in package.glob("*.py"))
    assert "SELECT " in words
    assert "ALLOW FILTERING" not in words


def test_tasks_and_collectors_need_no_polars(cassandra: Cassandra) -> None:
    address = cassandras.address(cassandra.port)
    script = (
        f"import pickle, sys; address = pickle.loads({pickle.dumps(address)!r});"
        "print(address.open_sink().applied('log'), len(address.open_registry().meters('main')));"
        "address.open_deposits(); print('polars' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[:2] == ["{} 2", "False"]


def test_a_forked_child_gets_a_session_of_its_own(cassandra: Cassandra) -> None:
    script = (
        f"import os, pickle; address = pickle.loads({pickle.dumps(cassandras.address(cassandra.port))!r});"
        "sink = address.open_sink(); sink.applied('log')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print('child', address.open_sink().applied('log'), flush=True); os._exit(0)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "print('parent', status, sink.applied('log'))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.splitlines() == ["child {}", "parent 0 {}"]
