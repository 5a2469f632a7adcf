"""The client for asyncio: the same core; anything that may block runs in a thread, not in the loop."""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from tallymark.client.client import Client
from tallymark.client.encoding import Scalar, Time, encode_count, encode_event
from tallymark.client.sender_threads import SenderThreads
from tallymark.client.stats import Stats

LOOK_S = 0.005
"""how often a call that waits for room checks again"""


class AsyncClient:
    """Takes what `Client` takes. `count` and `event` return at once while there is room, then follow `when_full`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = Client(*args, **options)
        self._executor: Executor | None = None
        self._executor_pid = 0

    async def count(self, name: str, /, **props: Scalar) -> str:
        id = self._client._next_id()
        await self._put(encode_count(name, id, props))
        return id

    async def event(
        self,
        name: str,
        /,
        *,
        value: float | None = None,
        id: str | None = None,
        time: Time | None = None,
        values: Mapping[str, float] | None = None,
        props: Mapping[str, Scalar] | None = None,
        **more: Scalar,
    ) -> str:
        id = self._client._next_id() if id is None else id
        await self._put(encode_event(name, id, time=time, value=value, values=values, props={**(props or {}), **more}))
        return id

    async def flush(self, timeout: float | None = None) -> bool:
        return await asyncio.to_thread(self._client.flush, timeout)

    async def close(self, timeout: float | None = 5.0) -> None:
        await asyncio.to_thread(self._client.close, timeout)
        if self._executor is not None and self._executor_pid == os.getpid():
            self._executor.shutdown(wait=False)
            self._executor = None

    def stats(self) -> Stats:
        return self._client.stats()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _put(self, event: bytes) -> None:
        threads = self._client._sender_threads
        if threads.put_if_room(event):
            return
        options = self._client._options
        if options.when_full == "spill":
            await asyncio.get_running_loop().run_in_executor(self._writer(), threads.put_when_full, event)
            return
        if options.when_full == "block" and await self._waited(threads, event, options.block_s):
            return
        threads.drop(event)

    async def _waited(self, threads: SenderThreads, event: bytes, seconds: float) -> bool:
        """True if there was room in time. Polling is cheaper than a thread for each waiting call."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while not threads.closing and (left := end - now()) > 0:
            await asyncio.sleep(min(LOOK_S, left))
            if threads.put_if_room(event):
                return True
        return False

    def _writer(self) -> Executor:
        """Our own thread for files: the loop's default threads belong to the application."""
        # A forked child has another pid, and no thread.
        if self._executor is None or self._executor_pid != os.getpid():
            self._executor, self._executor_pid = ThreadPoolExecutor(1, "tallymark-files"), os.getpid()
        return self._executor
