"""Tells the user about events that were not delivered."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tallymark.client.clock import Clock
from tallymark.client.errors import Dropped, Refused

QUIET_S = 60.0
"""a collector that is down for an hour should not fill the log: one line a minute per kind is enough"""
PATIENCE_S = 1.0
"""a failure that the next try fixes is not worth a line"""


class Reports:
    """Calls the user's callbacks; without one, writes to the log `tallymark.client`."""

    def __init__(
        self,
        clock: Clock,
        *,
        on_refused: Callable[[list[Refused]], object] | None,
        on_dropped: Callable[[list[Dropped]], object] | None,
    ) -> None:
        self._clock, self._on_refused, self._on_dropped = clock, on_refused, on_dropped
        self._unsaid: dict[str, int] = {}
        self._said_at: dict[str, float] = {}
        self._failing_since: float | None = None

    def refused(self, events: list[Refused]) -> None:
        if events and not self._call(self._on_refused, events):
            self._say("refused by the collector", events, f"{events[0].code}: {events[0].detail}")

    def dropped(self, events: list[Dropped]) -> None:
        if events and not self._call(self._on_dropped, events):
            self._say("dropped by the client", events, events[0].reason)

    def failed(self, reason: str) -> None:
        """An attempt that will be repeated: logged once nothing has succeeded for a while."""
        now = self._clock.now()
        since = self._failing_since
        if since is None:
            self._failing_since = now
        elif now - since >= PATIENCE_S and self._is_time("failed", now):
            _logger().warning("nothing has been delivered for %.0f s; last attempt: %s", now - since, reason)

    def went_well(self) -> None:
        self._failing_since = None

    def surprised(self, error: BaseException) -> None:
        """An unexpected error in a sending thread, which goes on."""
        if self._is_time(f"surprised by {type(error)}", self._clock.now()):
            _logger().error("unexpected error while sending; the events will be sent again", exc_info=error)

    def _call(self, callback: Callable[[list[Any]], object] | None, events: list[Any]) -> bool:
        if callback is None:
            return False
        try:
            callback(events)
        except Exception:  # noqa: BLE001
            # The callback is the user's, the thread is ours, and it has more to send.
            _logger().exception("the callback %r failed", callback)
        return True

    def _say(self, what: str, events: Sequence[object], why: str) -> None:
        count = self._unsaid[what] = self._unsaid.get(what, 0) + len(events)
        if self._is_time(what, self._clock.now()):
            self._unsaid[what] = 0
            _logger().error("%s events were %s; last reason: %s", f"{count:,}", what, why)

    def _is_time(self, what: str, now: float) -> bool:
        if now - self._said_at.get(what, -math.inf) < QUIET_S:
            return False
        self._said_at[what] = now
        return True


def _logger() -> Any:
    # The import takes 5 ms, which a program without failures can do without.
    import logging

    return logging.getLogger("tallymark.client")
