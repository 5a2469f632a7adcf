"""A client that does nothing by itself, so that a test sees each step."""

import math
from collections.abc import Callable
from typing import Any

from tallymark.client.attempt import Attempt
from tallymark.client.client import Client
from tallymark.client.transport import Transport
from tallymark.testing.clock import ManualClock


class DrivenClient(Client):
    """A client without threads, on a clock turned by hand: `step` sends what a thread would send now.

    `transport` is one for all addresses, or a function of the address. Pauses have no jitter unless `chance` is given.

        client = DrivenClient(ScriptedTransport([503]), ManualClock())
        client.count("view")
        client.settle()
    """

    _has_threads = False

    def __init__(self, transport: Transport | Callable[[str], Transport], clock: ManualClock, **options: Any) -> None:
        self._time = clock
        connect = transport if callable(transport) else lambda url: transport
        super().__init__(
            connect=connect, clock=clock, **{"compress": "none", "block_s": 0.0, "chance": None, **options}
        )
        self._sender = self._new_sender()

    def step(self) -> Attempt | float | None:
        """What was sent; or when there will be something, None if not by itself."""
        return self._sender_threads.step(self._sender)

    def flush(self, timeout: float | None = None) -> bool:
        """Steps until all that was called has an outcome; the time-out is one of the clock that is turned."""
        if timeout is not None and timeout <= 0:
            return self._sender_threads.flush(0)
        end = math.inf if timeout is None else self._time.now() + timeout
        while not self._sender_threads.flush(0):
            step = self.step()
            if step is None or (isinstance(step, float) and step > end) or self._time.now() > end:
                return self._sender_threads.flush(0)
            if isinstance(step, float):
                self._time.advance_to(step)
        return True

    def close(self, timeout: float | None = 5.0) -> None:
        self.flush(timeout)
        super().close(0)

    def settle(self, *, steps: int = 1_000_000) -> None:
        """Step, and turn the clock to when there is something to do, until there is nothing; at most so many times."""
        for _ in range(steps):
            step = self.step()
            if step is None:
                return
            if isinstance(step, float):
                self._time.advance_to(step)
