"""Waiting until events are in the counts: `?wait=applied`."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from tallymark.http import encode_positions
from tallymark.role.outage import Outage

POLL_S = 0.02

logger = logging.getLogger(__name__)

Applied = Callable[[], Mapping[int, int]]
"""the next offset to apply of each partition, from the store"""


class Follower:
    """Watches the store's applied positions while somebody waits for them: one reader, however many wait."""

    def __init__(self, applied: Applied, *, stop: asyncio.Event) -> None:
        self._read = applied
        self._stop = stop
        self._waiting: dict[asyncio.Future[bool], Mapping[int, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger, "?wait=applied cannot read the store's positions")
        self._answered: dict[int, int] = {}
        self._told = ""

    @property
    def answered(self) -> str:
        """What the answers so far have said is in the counts, as the header that questions are handed on with.

        A query node does not give an answer from before it: whoever has waited sees what they sent.
        """
        return self._told

    async def wait(self, offsets: Mapping[int, int], timeout_s: float) -> bool:
        """True once all up to and with these offsets is applied, False after the time-out or when the port closes."""
        passed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[passed] = offsets
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="applied")
        try:
            async with asyncio.timeout(timeout_s):
                applied = await passed
        except TimeoutError:
            return False
        finally:
            del self._waiting[passed]
        if applied:
            self._note(offsets)
        return applied

    def _note(self, offsets: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            self._answered[partition] = max(self._answered.get(partition, 0), offset + 1)
        self._told = encode_positions(self._answered)

    async def _follow(self) -> None:
        while self._waiting:
            positions = await self._positions()
            for passed, offsets in self._waiting.items():
                applied = all(positions.get(each, 0) > offset for each, offset in offsets.items())
                if not passed.done() and (applied or self._stop.is_set()):
                    passed.set_result(applied)
            await asyncio.sleep(POLL_S)
        self._task = None

    async def _positions(self) -> Mapping[int, int]:
        """None while the store does not answer: the time-out bounds the wait."""
        with self._outage.tolerated():
            return await asyncio.to_thread(self._read)
        return {}
