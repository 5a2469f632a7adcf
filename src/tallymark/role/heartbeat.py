"""The heartbeat: how a role tells the store that it is alive."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tallymark.role.loop import Background, Wait, repeat
from tallymark.role.outage import Outage

if TYPE_CHECKING:
    from tallymark.store.protocol import Heartbeats

INTERVAL_S = 2.0

Facts = Callable[[], Mapping[str, Any]]
"""what `status` shows of a role, asked for with each beat"""

logger = logging.getLogger(__name__)


class Heartbeat:
    """One role's heartbeat: beaten by the role's own loop, or by a thread where the role has none.

    The store is opened with the first beat, and again with the next one if that failed.
    """

    def __init__(
        self,
        name: str,
        open_heartbeats: "Callable[[], Heartbeats]",
        *,
        every_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name, self._open, self._every_s, self._clock = name, open_heartbeats, every_s, clock
        self._heartbeats: Heartbeats | None = None
        self._outage = Outage(logger, "cannot tell the store that this role is alive")

    def beat(self, facts: Mapping[str, Any]) -> None:
        """Says that the role is alive, with a few facts for `status`."""
        if self._heartbeats is None:
            self._heartbeats = self._open()
        self._heartbeats.beat(self._name, facts, now_ms=int(self._clock() * 1000))

    def say_goodbye(self) -> None:
        """Says that the role has stopped, unless the store did not answer just now."""
        if not self._outage.is_on:
            with Outage(logger, "cannot tell the store that this role has stopped").tolerated():
                self.beat({"stopped": True})

    def in_background(self, facts: Facts, *, says_goodbye: bool = True) -> Background:
        """`with heartbeat.in_background(facts):` beats until the block is left, and then says goodbye."""
        return Background(
            lambda wait: self.run(facts, wait=wait, says_goodbye=says_goodbye), name="heartbeat", join_s=self._every_s
        )

    def run(self, facts: Facts, *, wait: Wait, says_goodbye: bool = True) -> None:
        """Beats until it is time to stop. A failure is only logged: a skipped beat harms nobody."""
        repeat(lambda: self.beat(facts()), every_s=lambda: self._every_s, wait=wait, outage=self._outage)
        if says_goodbye:
            self.say_goodbye()
