"""The doctor's look at a cluster: Kafka, Cassandra and Spark, as far as this machine reaches them. Changes nothing."""

import re
import socket
from collections.abc import Iterator, Sequence

from tallymark.commands.finding import Finding
from tallymark.commands.up import is_installed
from tallymark.settings import Settings, SettingsError

CONNECT_S = 3.0


def look_at_cluster(settings: Settings) -> Iterator[Finding]:
    """Nothing for a profile of one machine."""
    if settings.log.kind == "kafka" and is_installed("confluent_kafka"):
        yield _kafka(settings)
    if settings.store.kind == "cassandra" and is_installed("cassandra"):
        yield _cassandra(settings)
    if not settings.pipeline.master.startswith("local"):
        yield _spark(settings.pipeline.master)


def _kafka(settings: Settings) -> Finding:
    from confluent_kafka import KafkaException

    from tallymark import log
    from tallymark.log.protocol import LogError, LogLost

    topic = f"{settings.log.topic}.events"
    away = _none_answers(settings.log.brokers)
    if away:
        return Finding("kafka", "broken", away, "start the brokers, or correct log.brokers")
    try:
        reader = log.open_reader(settings, "events")
    except LogLost:
        return Finding("kafka", "ok", f"answers; the first collector creates the topic {topic}")
    except (LogError, SettingsError, KafkaException) as error:
        return Finding("kafka", "broken", str(error), "check log.brokers and log.kafka_options")
    try:
        partitions = reader.partitions
        records = sum(standing.synced - standing.first for standing in reader.positions().values())
    except (LogError, KafkaException) as error:
        return Finding("kafka", "broken", str(error), "check that every partition of the topic has a leader")
    finally:
        reader.close()
    return Finding("kafka", "ok", f"topic {topic}, {partitions} partitions, {records:,} records")


def _cassandra(settings: Settings) -> Finding:
    ours = settings.store
    away = _none_answers([f"{host}:{ours.port}" for host in ours.hosts])
    if away:
        return Finding("cassandra", "broken", away, "start it, or correct store.hosts and store.port")
    from cassandra import DriverException
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import Cluster, NoHostAvailable

    login = PlainTextAuthProvider(ours.user, ours.password) if ours.user else None
    cluster = Cluster(ours.hosts, port=ours.port, auth_provider=login, connect_timeout=ours.timeout_s)
    try:
        session = cluster.connect()
        known = [name for (name,) in session.execute("SELECT keyspace_name FROM system_schema.keyspaces")]
        release = session.execute("SELECT release_version FROM system.local").one()[0]
    except (NoHostAvailable, DriverException) as error:
        fix = "check store.user, store.password and that the nodes are up (`nodetool status`)"
        return Finding("cassandra", "broken", str(error)[:300], fix)
    finally:
        cluster.shutdown()
    there = "is there" if ours.keyspace in known else "is created by the first role that starts"
    if ours.keyspace not in known and not ours.replication:
        fix = 'set store.replication, for example ["dc1=3"], before the first start'
        return Finding("cassandra", "warning", f"{release}; the keyspace {ours.keyspace} would have one copy", fix)
    return Finding("cassandra", "ok", f"{release}; the keyspace {ours.keyspace} {there}")


def _spark(master: str) -> Finding:
    """Masters of a standalone cluster, or the server of Kubernetes; YARN says where it is in its own files."""
    found = re.match(r"(?:spark://|k8s://(?:https?://)?)([^/]+)$", master)
    if found is None:
        return Finding("spark", "ok", f"{master}: not checked from here")
    away = _none_answers(found[1].split(","))
    if away:
        return Finding("spark", "broken", away, "start the master, or correct pipeline.master")
    return Finding("spark", "ok", f"{master} takes connections")


def _none_answers(places: Sequence[str]) -> str:
    """Empty if one of these `host:port` takes a connection, else what each said."""
    said = []
    for place in places:
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except (OSError, ValueError) as error:
            said.append(f"{place}: {error}")
        else:
            return ""
    return f"no answer from {'; '.join(said)}"
