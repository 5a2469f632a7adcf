"""From an answer to what one caller gets: its age, whether the caller has it already, or what was last known."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from tallymark.query.response import Response
from tallymark.store.protocol import SnapshotOutdated, StoreUnreachable
from tallymark.store.sqlite.failures import FileAway

AWAY = (StoreUnreachable, SnapshotOutdated, FileAway)
"""errors of a store that does not answer"""
# What an entry takes besides its question and its body.
ENTRY_BYTES = 1_000

VARY = ("vary", "accept, tallymark-tenant")


def delivered(answer: Response, *, if_none_match: str | None, now_ms: int) -> Response:
    """With its age; without its body if the caller has the same numbers."""
    age_s = max(0, now_ms - (answer.made_ms or now_ms)) // 1000
    headers = [*answer.headers, ("age", str(age_s)), ("cache-control", "private, no-cache"), VARY]
    etag = next((value for name, value in answer.headers if name == "etag"), None)
    if etag is not None and _is_known(etag, if_none_match):
        return Response(304, [each for each in headers if each[0] != "content-type"], b"")
    return replace(answer, headers=headers)


def _is_known(etag: str, if_none_match: str | None) -> bool:
    """By weak comparison, as `If-None-Match` wants it."""
    known = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return known == ["*"] or etag.removeprefix("W/") in known


def stale(answer: Response, *, now_ms: int) -> Response:
    """A known answer that says how old it is: in a header, and in the freshness that ends a body of JSON."""
    age_s = max(0, now_ms - (answer.made_ms or now_ms)) / 1000
    headers = [*answer.headers, ("tallymark-stale-s", f"{age_s:g}")]
    if ("content-type", "application/json") in answer.headers:
        body = b'%s,"stale_s":%s}}' % (answer.body.removesuffix(b"}}"), f"{age_s:g}".encode())
        return replace(answer, headers=headers, body=body)
    return replace(answer, headers=headers)


class LastKnown:
    """The last answer to each request, for when the store is away; the least recently used go first."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, Response] = OrderedDict()
        self._held = 0

    def get(self, request: str) -> Response | None:
        with self._lock:
            found = self._answers.get(request)
            if found is not None:
                self._answers.move_to_end(request)
            return found

    def keep(self, request: str, answer: Response) -> None:
        size = _size(request, answer)
        if size > self._most_bytes:
            return
        with self._lock:
            before = self._answers.pop(request, None)
            if before is not None:
                self._held -= _size(request, before)
            self._answers[request] = answer
            self._held += size
            while self._held > self._most_bytes:
                self._held -= _size(*self._answers.popitem(last=False))


def _size(request: str, answer: Response) -> int:
    return len(request) + len(answer.body) + ENTRY_BYTES


def settled(
    answer: Response | Future[Response], then: Callable[[Callable[[], Response]], Response]
) -> Response | Future[Response]:
    """What `then` makes of the answer, now or once another thread has computed it. What it gets may raise."""
    if not isinstance(answer, Future):
        return then(lambda: answer)
    coming: Future[Response] = Future()
    coming.set_running_or_notify_cancel()

    def settle(done: Future[Response]) -> None:
        try:
            coming.set_result(then(done.result))
        except BaseException as error:  # noqa: BLE001
            coming.set_exception(error)

    answer.add_done_callback(settle)
    return coming
