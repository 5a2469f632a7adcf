"""Query nodes and keepers as processes over a real Cassandra: two of each, one profile, one data folder."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cassandra import Cassandra
from stage import DEADLINE_S, Stage
from tallymark.client.transport import HttpTransport, Request
from tallymark.meters.model import Meter
from tallymark.store import open_store
from tallymark.testing import until

NOON = 1_794_744_000


@pytest.fixture
def stage(tmp_path: Path, cassandra: Cassandra) -> Iterator[Stage]:
    made = Stage(tmp_path, cassandra.port)
    yield made
    made.close()


def count(stage: Stage, video: str, events: int) -> None:
    store = open_store(stage.settings)
    views = store.registry.put_meter("main", Meter("views", ("view",), by=("video",)), now_ms=1)
    stage.apply(store, views, [(video, NOON, events, 0, None, None, None, None, None)])
    store.close()


def test_two_query_nodes_answer_the_same_and_one_may_leave(stage, cassandra):
    count(stage, "A", 3)
    for name in ("q1", "q2"):
        stage.start("query", name)
    count(stage, "A", 4)
    question = "/v1/meters/views/total?video=A"
    answers = [stage.ask(name, question) for name in ("q1", "q2")]
    assert [(status, answer["value"]) for status, answer in answers] == [(200, {"count": 7})] * 2
    listed = until(lambda: len(found := stage.roles("q1", "query")) == 2 and found, "both are known")
    assert listed == {"q1": ("running", False), "q2": ("running", False)}

    # Away, then back: an answer that says so, and no 500.
    cassandra.pause()
    said = []

    def unreachable() -> bool:
        status, told = stage.ask("q1", question)
        said.append((status, told.get("code")))
        return status != 200

    until(unreachable, "it says that the store is away", deadline_s=DEADLINE_S)
    cassandra.resume()
    assert said[-1] == (503, "store_unreachable")
    until(lambda: stage.ask("q1", question)[0] == 200, "it answers again", deadline_s=DEADLINE_S)

    stage.processes["q2"].send_signal(signal.SIGTERM)
    seen = set()

    def gone() -> bool:
        status, told = stage.ask("q2", "/readyz")
        seen.add((status, told and told["code"]))
        # Who did not look is still answered, until no connection is taken.
        assert stage.ask("q2", question)[0] in (200, 0)
        return stage.processes["q2"].poll() is not None

    until(gone, "q2 has left", deadline_s=DEADLINE_S)
    assert stage.processes["q2"].returncode == 0
    assert (503, "stopping") in seen
    until(lambda: list(stage.roles("q1", "query")) == ["q1"], "q2 said goodbye", deadline_s=DEADLINE_S)


def test_of_two_keepers_one_works_and_the_other_takes_over(stage):
    count(stage, "A", 3)
    stage.start("query", "q1")
    stage.start("keeper", "k1")
    until(lambda: "this keeper has the lease" in stage.said("k1"), "k1 works", deadline_s=DEADLINE_S)
    stage.start("keeper", "k2")
    both = {"k1": ("running", False), "k2": ("running", True)}
    until(lambda: stage.roles("q1", "keeper") == both, "k2 stands by", deadline_s=DEADLINE_S)

    store = open_store(stage.settings)
    until(lambda: store.upkeep.marks().folded == 1, "k1 has folded", deadline_s=DEADLINE_S)
    stage.processes["k1"].kill()
    count(stage, "A", 4)
    until(lambda: store.upkeep.marks().folded == 2, "k2 has taken over and folded", deadline_s=DEADLINE_S)
    assert stage.ask("q1", "/v1/meters/views/total?video=A")[1]["value"] == {"count": 7}

    # Paused past its lease and woken: it stands by, whatever it was about to write.
    stage.start("keeper", "k3")
    stage.processes["k2"].send_signal(signal.SIGSTOP)
    until(lambda: "this keeper has the lease" in stage.said("k3"), "k3 works", deadline_s=DEADLINE_S)
    stage.processes["k2"].send_signal(signal.SIGCONT)
    until(lambda: "has taken over" in stage.said("k2"), "k2 stands by again", deadline_s=DEADLINE_S)
    count(stage, "A", 5)
    until(lambda: store.upkeep.marks().folded == 3, "k3 has folded", deadline_s=DEADLINE_S)
    assert stage.ask("q1", "/v1/meters/views/total?video=A")[1]["value"] == {"count": 12}
    # A clean stop gives the lease back: the other need not wait for its end.
    stage.processes["k3"].send_signal(signal.SIGTERM)
    assert stage.processes["k3"].wait(DEADLINE_S) == 0
    until(lambda: stage.said("k2").count("has the lease and works") == 2, "k2 works again", deadline_s=DEADLINE_S)
    store.close()


def test_a_collector_says_in_the_store_that_it_lives(stage):
    stage.start("collector", "c1")
    stage.start("query", "q1")
    until(lambda: stage.roles("q1", "collector").get("c1") == ("running", False), "its beat", deadline_s=DEADLINE_S)
    store = open_store(stage.settings)
    until(lambda: "collector/c1" in store.heartbeats.beats(), "its beat in the store", deadline_s=DEADLINE_S)
    assert store.heartbeats.beats()["collector/c1"][1]["address"] == stage.urls["c1"].removeprefix("http://")
    body = json.dumps({"event": "view", "id": "1"}).encode()
    transport = HttpTransport(stage.urls["c1"], timeout_s=30)
    answer = transport.exchange(
        Request("POST", "/v1/events?wait=applied&timeout=1", body, {"content-type": "application/json"})
    )
    transport.close()
    assert answer.status == 202  # nobody counts it here; but the positions could be read
    assert "cannot read the store's positions" not in stage.said("c1")
    store.close()
