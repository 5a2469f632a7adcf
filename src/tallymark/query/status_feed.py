"""`/v1/status/live`: the status once a second, computed once for all who listen."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tallymark.query.retrying import of_a_moment
from tallymark.query.routes import Request
from tallymark.query.streams import News, Opening, Source, message

INTERVAL_S = 1.0
# A newcomer gets what the others got last, so that many of them at once do not make it be computed many times.
KEPT_S = 0.9

Topic = tuple[()]


class StatusFeed:
    def __init__(self, status: Callable[[], Any], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._status, self._clock = status, clock
        self._lock = threading.Lock()
        self._text, self._made_s = b"", float("-inf")
        self._feed: Source[Topic] = Source("status", self._news, interval_s=INTERVAL_S)

    def opening(self, request: Request) -> Opening:
        request.no_parameters()
        return Opening(self._feed, (), self._latest())

    def _news(self, topics: Sequence[Topic]) -> dict[Topic, News[Topic]]:
        return {(): News(self._latest())}

    def _latest(self) -> bytes:
        with self._lock:
            if self._clock() - self._made_s > KEPT_S:
                self._text = message("status", of_a_moment(self._status))
                self._made_s = self._clock()
            return self._text
