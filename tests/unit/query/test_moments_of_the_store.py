"""A store that moves on, or is away, while a question is answered."""

import msgspec
import pytest

from tallymark.query.app import _problem
from tallymark.query.retrying import MOST_TRIES
from tallymark.query.routes import Request
from tallymark.store.protocol import SnapshotOutdated, StoreError, StoreUnreachable


def failing(desk, failures, error, monkeypatch):
    """A store that fails so often when a snapshot is taken or a meter is put; what is left of it."""
    left = [error] * failures
    snapshot = desk.store.snapshots.take

    def instead(*_, **__):
        if left:
            raise left.pop()
        return snapshot()

    monkeypatch.setattr(desk.store.snapshots, "take", instead)
    monkeypatch.setattr(desk.store.registry, "put_meter", instead)
    return left


@pytest.mark.parametrize("target", ["/v1/meters/views/total", "/v1/meters/views/top?by=video", "/v1/status"])
@pytest.mark.parametrize("failures", range(MOST_TRIES))
def test_a_question_is_asked_again_of_a_new_moment(desk, monkeypatch, target, failures):
    left = failing(desk, failures, SnapshotOutdated("gone"), monkeypatch)
    assert desk.ask(target)["freshness"]["loss"] == 0
    assert left == []


@pytest.mark.parametrize("target", ["/v1/meters/views/total", "/v1/status"])
def test_not_for_ever(desk, monkeypatch, target):
    left = failing(desk, MOST_TRIES + 1, SnapshotOutdated("gone"), monkeypatch)
    with pytest.raises(SnapshotOutdated):
        desk.ask(target)
    assert len(left) == 1


def test_not_if_the_store_is_away_and_not_if_it_changes_something(desk, monkeypatch):
    left = failing(desk, 2, StoreUnreachable("away"), monkeypatch)
    with pytest.raises(StoreUnreachable):
        desk.ask("/v1/meters/views/total")
    assert len(left) == 1
    left = failing(desk, 2, SnapshotOutdated("gone"), monkeypatch)
    with pytest.raises(SnapshotOutdated):
        desk.ask("/v1/meters/clicks", "PUT", {"event": "click"})
    assert len(left) == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreUnreachable("2 of 3 nodes are away"), 503, "store_unreachable"),
        (SnapshotOutdated("gone"), 503, "busy"),
        (StoreError("no"), 400, "refused"),
    ],
)
def test_what_its_sender_is_told(error, status, code):
    problem = _problem(error, Request("GET", "/v1/status"))
    assert (problem.status, problem.code) == (status, code)
    assert str(error) in msgspec.json.decode(problem.body())["detail"]
    assert (("retry-after", "1") in problem.headers) == (status == 503)
