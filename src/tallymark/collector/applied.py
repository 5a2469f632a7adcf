"""Waiting until events are in the counts: `?wait=applied`."""

import asyncio
import logging
from collections.abc import Callable, Mapping

POLL_S = 0.02

logger = logging.getLogger(__name__)

Applied = Callable[[], Mapping[int, int]]
"""the next offset to apply of each partition, from the store"""


class Follower:
    """Watches the store's applied positions while somebody waits for them: one reader, however many wait."""

    def __init__(self, applied: Applied) -> None:
        self._read = applied
        self._waiting: dict[asyncio.Future[None], Mapping[int, int]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, offsets: Mapping[int, int], timeout_s: float) -> bool:
        """True once everything up to and with these offsets is applied, False after the time-out."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[passed] = offsets
        if self._task is None:
            self._task = asyncio.create_task(self._follow(), name="applied")
        try:
            async with asyncio.timeout(timeout_s):
                await passed
            return True
        except TimeoutError:
            return False
        finally:
            del self._waiting[passed]

    async def _follow(self) -> None:
        while self._waiting:
            try:
                positions = await asyncio.to_thread(self._read)
            except Exception as error:  # the store may be away for a while; the time-out bounds the wait
                logger.warning("cannot read the applied positions: %s", error)
                positions = {}
            for passed, offsets in self._waiting.items():
                if not passed.done() and all(positions.get(each, 0) > offset for each, offset in offsets.items()):
                    passed.set_result(None)
            await asyncio.sleep(POLL_S)
        self._task = None
