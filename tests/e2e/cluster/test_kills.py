"""The same code on three brokers, two Spark workers and Cassandra: whatever dies, what was acknowledged counts once."""

import time
from dataclasses import dataclass, field

import pytest

from clusters import Cluster
from loading import Load
from running import Running

EVENTS = 24_000
RATE = 400
PAUSE_S = 20.0
FRONT = "collector,query,keeper"

pytestmark = pytest.mark.timeout(1_800)


@dataclass
class Hosts:
    """Two front machines, and one with the driver. The load goes to the first."""

    cluster: Cluster
    first: Running
    second: Running
    driver: Running
    recoveries: dict[str, float] = field(default_factory=dict)


@pytest.fixture(scope="module")
def hosts(cluster: Cluster) -> Hosts:
    first, second = cluster.host("first", FRONT), cluster.host("second", FRONT)
    driver = cluster.host("driver", "pipeline")
    first.start()
    second.start()
    driver.start()
    return Hosts(cluster, first, second, driver)


def test_whatever_dies_every_acknowledged_event_is_counted_once_in_its_own_minute(hosts):
    cluster, first, second = hosts.cluster, hosts.first, hosts.second
    load = Load(first, "load", events=EVENTS, rate=RATE, duplicates=0.05, late=0.02)
    hurts = {
        "broker": lambda: cluster.kafka.kill(0),
        "Spark worker": lambda: cluster.spark.kill_worker("worker-1"),
        "driver": lambda: hosts.driver.kill("pipeline"),
        "collector": lambda: first.kill("collector"),
        "keeper": lambda: first.kill("keeper"),
        "Cassandra, paused": lambda: pause(cluster),
    }
    mends = {"broker": lambda: cluster.kafka.start(0), "Spark worker": lambda: cluster.spark.add_worker("worker-3")}
    for number, (name, hurt) in enumerate(hurts.items(), start=1):
        load.await_acknowledged(number * EVENTS // 8)
        hurt()
        hosts.recoveries[name] = recovery_s(first)
        mends.get(name, lambda: None)()
    load.finish()
    load.check()
    print("seconds until counts follow the log again:", hosts.recoveries)
    # Both query nodes give the same answers.
    sent = load.outcomes.plan.event
    assert second.total("events", event=sent) == first.total("events", event=sent) == {"count": load.distinct}
    assert second.settled()["counted"] == first.settled()["counted"] == load.distinct + len(hosts.recoveries)


def test_events_sent_to_either_collector_meet_in_one_count(hosts):
    # Each copy goes to the other one, so deduplication does not depend on who took the first.
    orders = [{"event": "order", "id": f"order-{number}"} for number in range(300)]
    hosts.first.send(orders[:200])
    hosts.second.send(orders[100:])
    for each in (hosts.first, hosts.second):
        assert each.total("events", event="order") == {"count": 300}


def test_status_lists_every_process_of_the_cluster(hosts):
    alive = {(each["role"], each["state"]) for each in hosts.second.settled()["roles"]}
    assert {role.partition("/")[0] for role, state in alive if state == "running"} == {
        "collector",
        "pipeline",
        "keeper",
        "query",
    }


def pause(cluster: Cluster) -> None:
    """Not answering, not dead: the worst of both."""
    cluster.cassandra.pause()
    time.sleep(PAUSE_S)  # the outage itself, not a wait for something
    cluster.cassandra.resume()


def recovery_s(running: Running) -> float:
    """Until an event sent after the blow is counted, as whoever waits for it sees it."""
    begun = time.monotonic()
    marker = {"event": "probe", "id": f"probe-{begun}"}

    def is_counted() -> bool:
        try:
            status, _ = running.exchange("POST", "/v1/events?wait=applied&timeout=5", [marker], timeout_s=20)
        except Exception:
            return False
        return status == 200

    running.wait_until(is_counted, seconds=240, what="an event sent after the blow is counted")
    return time.monotonic() - begun
