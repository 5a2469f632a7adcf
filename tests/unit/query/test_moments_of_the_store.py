"""A store that moves on, or is away, while a question is answered."""

import msgspec
import pytest

from tallymark.query.answer import json_answer
from tallymark.query.app import MOST_TRIES, _of_a_moment, _problem
from tallymark.query.routes import Request
from tallymark.store.protocol import SnapshotOutdated, StoreError, StoreUnreachable


def asked(failures, error, *, method="GET"):
    left = [error] * failures

    def make(request):
        if left:
            raise left.pop()
        return json_answer({"value": 1})

    return _of_a_moment(make, Request(method, "/v1/meters/views/total")), left


@pytest.mark.parametrize("failures", range(MOST_TRIES))
def test_a_question_is_asked_again_of_a_new_moment(failures):
    answer, left = asked(failures, SnapshotOutdated("gone"))
    assert (answer.status, left) == (200, [])


def test_not_for_ever_and_not_if_it_changes_something():
    with pytest.raises(SnapshotOutdated):
        asked(MOST_TRIES, SnapshotOutdated("gone"))
    with pytest.raises(SnapshotOutdated):
        asked(1, SnapshotOutdated("gone"), method="PUT")
    with pytest.raises(StoreUnreachable):
        asked(1, StoreUnreachable("away"))


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
