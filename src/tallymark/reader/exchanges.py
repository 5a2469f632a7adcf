"""Asking over HTTP, and asking again while that may help."""

import threading
import time
from collections.abc import Callable

from tallymark.client.backoff import BackOff
from tallymark.client.transport import Answer, NoAnswer, NotConnected, Request, Transport
from tallymark.reader.errors import Unanswered, from_answer

AGAIN = (408, 429, 502, 503, 504)
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 2.0


class Exchanges:
    """Kept-alive connections, as many as threads ask at the same time."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect, self._sleep, self._clock = connect, sleep, clock
        self._idle: list[Transport] = []
        self._lock = threading.Lock()
        self._closed = False
        self._was_reached = False

    def ask(self, request: Request, *, timeout_s: float) -> Answer:
        """The answer, if it is a success; raises QuestionRefused, or Unanswered when the time is up.

        Questions change nothing, so one whose answer was lost is asked again. An address that never answered before is
        probably wrong: then no connection is an error at once.
        """
        deadline = self._clock() + timeout_s
        backoff, tries = BackOff(FIRST_PAUSE_S, MAX_PAUSE_S), 0
        while True:
            tries += 1
            pause_s = backoff.pause(tries)
            try:
                answer = self._exchange(request, max(0.001, deadline - self._clock()))
            except NoAnswer as error:
                if isinstance(error, NotConnected) and not self._was_reached:
                    raise Unanswered(f"{error}; is `tallymark up` running there?") from error
                failure = Unanswered(str(error))
            else:
                self._was_reached = True
                if answer.status < 300:
                    return answer
                refusal = from_answer(answer)
                if not isinstance(refusal, Unanswered) or answer.status not in AGAIN:
                    raise refusal
                failure = refusal
                pause_s = max(pause_s, answer.retry_after_s or 0.0)
            if self._clock() + pause_s >= deadline:
                raise failure
            self._sleep(pause_s)

    def _exchange(self, request: Request, timeout_s: float) -> Answer:
        with self._lock:
            if self._closed:
                raise ValueError("this Reader is closed")
            transport = self._idle.pop() if self._idle else None
        transport = transport or self._connect()
        try:
            answer = transport.exchange(request, timeout_s=timeout_s)
        except BaseException:
            # Also when a signal interrupts: what comes next on this connection would be the answer to this question.
            transport.close()
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(transport)
                return answer
        transport.close()
        return answer

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for transport in idle:
            transport.close()
