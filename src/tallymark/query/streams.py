"""Server-sent events: one feed of a kind for all who listen, with nothing unbounded."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tallymark.http import Problem
from tallymark.query.response import encode

KEEP_ALIVE_S = 15.0
MOST_LISTENERS = 256
"""to one feed"""
MOST_WAITING = 64
# The server buffers what a listener does not read and cannot say how much that is. So a stream ends after this many
# bytes, which bounds what a client that never reads can hold; clients reconnect by themselves and miss nothing.
MOST_STREAM_BYTES = 4_000_000

logger = logging.getLogger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Topic = TypeVar("Topic", bound=Hashable)


def message(event: str, data: Mapping[str, Any], *, sequence: int | None = None) -> bytes:
    """One server-sent event. Its id is where to resume after a lost connection."""
    number = b"" if sequence is None else b"id: %d\n" % sequence
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.encode(), encode(data))


@dataclass(frozen=True, slots=True)
class News(Generic[Topic]):
    """What a feed has for those who listen to a topic."""

    text: bytes = b""
    """a message, or several; empty if there is nothing new"""
    ended: tuple[str, str] | None = None
    """reason and detail, if there will be no more"""
    then: Topic | None = None
    """what they listen to from now on, if that is something else"""


Ask = Callable[[Sequence[Topic]], Mapping[Topic, News[Topic]]]
"""runs in a thread, with each topic once"""


@dataclass(frozen=True, slots=True)
class Source(Generic[Topic]):
    """Where the news of a feed come from."""

    name: str
    ask: Ask[Topic]
    interval_s: float


@dataclass(frozen=True, slots=True)
class Opening:
    """What a request wants to listen to."""

    source: Source[Any]
    topic: Hashable
    hello: bytes
    """the first message"""


@dataclass(eq=False)
class Listener(Generic[Topic]):
    """A client with a bounded queue of messages."""

    topic: Topic
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING + 1))
    ended: bool = False

    def give(self, text: bytes) -> None:
        if self.ended:
            return
        if self.waiting.qsize() >= MOST_WAITING:
            self.end("slow", f"dropped: {MOST_WAITING} messages wait unread; reconnect")
        else:
            self.waiting.put_nowait(text)

    def end(self, reason: str, detail: str) -> None:
        """The last message; there is always room for it."""
        if not self.ended:
            self.ended = True
            self.waiting.put_nowait(message("end", {"reason": reason, "detail": detail}))


class Feed(Generic[Topic]):
    """Asks for news while there are listeners, and only then."""

    def __init__(self, source: Source[Topic], in_thread: InThread) -> None:
        self._source = source
        self._in_thread = in_thread
        self._listeners: set[Listener[Topic]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def following(self) -> bool:
        return self._task is not None and not self._task.done()

    @contextlib.contextmanager
    def listen(self, topic: Topic) -> Iterator[Listener[Topic]]:
        """Everything new about the topic, until the block is left."""
        if len(self._listeners) >= MOST_LISTENERS:
            detail = f"{len(self._listeners)} listeners (at most {MOST_LISTENERS}); try again later"
            raise Problem(503, "too_many_listeners", detail, headers={"retry-after": "5"}, limit=MOST_LISTENERS)
        listener = Listener(topic)
        self._listeners.add(listener)
        if not self.following:
            self._task = asyncio.create_task(self._follow(), name=self._source.name)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End every stream; otherwise the server waits for them."""
        self._closed = True
        for listener in self._listeners:
            listener.end("stopping", "the service is stopping; reconnect")

    async def _follow(self) -> None:
        while self._listeners and not self._closed:
            groups = defaultdict(list)
            for listener in self._listeners:
                groups[listener.topic].append(listener)
            try:
                found = await self._in_thread(partial(self._source.ask, tuple(groups)))
            except Exception as error:  # store or log may be away for a moment; listeners wait  # noqa: BLE001
                logger.warning("nothing new for the listeners to %s: %s", self._source.name, error)
            else:
                for topic, news in found.items():
                    _deliver(groups[topic], news)
            await asyncio.sleep(self._source.interval_s)


def _deliver(listeners: Sequence[Listener[Topic]], news: News[Topic]) -> None:
    for listener in listeners:
        if news.then is not None:
            listener.topic = news.then
        if news.text:
            listener.give(news.text)
        if news.ended is not None:
            listener.end(*news.ended)


async def stream(transport: Any, listener: Listener[Any], *, hello: bytes, gone: asyncio.Future[Any]) -> None:
    """Send until the client leaves, the listener is ended, or the connection has carried enough bytes."""
    await transport.send_bytes(b"retry: 500\n\n" + hello)
    sent = 0
    while not gone.done():
        text = await _next(listener, gone)
        await transport.send_bytes(text)
        if listener.ended and listener.waiting.empty():
            return
        sent += len(text)
        if sent > MOST_STREAM_BYTES:
            detail = f"this stream ends after {MOST_STREAM_BYTES:,} bytes; reconnect"
            await transport.send_bytes(message("end", {"reason": "length", "detail": detail}))
            return


async def _next(listener: Listener[Any], gone: asyncio.Future[Any]) -> bytes:
    """The next message, or a comment that keeps the connection open."""
    coming = asyncio.ensure_future(listener.waiting.get())
    await asyncio.wait({coming, gone}, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return b": still here\n\n"
