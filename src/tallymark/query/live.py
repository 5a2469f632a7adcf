"""`live`: what each applied batch adds to a meter, as server-sent events. One follower serves all listeners."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from tallymark.evaluation.values import values
from tallymark.events.moments import rfc3339_s
from tallymark.http import Problem
from tallymark.query.response import encode
from tallymark.store import deltas
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import Store

INTERVAL_S = 0.2
KEEP_ALIVE_S = 15.0
MOST_LISTENERS = 256
MOST_CHANGES = 1000
MOST_WAITING = 64
# The server buffers what a listener does not read and cannot say how much that is. So a stream ends after this many
# bytes, which bounds what a client that never reads can hold; clients reconnect by themselves and miss nothing.
MOST_STREAM_BYTES = 4_000_000

logger = logging.getLogger(__name__)

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Where = tuple[tuple[str, tuple[str, ...]], ...]


def message(event: str, data: Mapping[str, Any], *, sequence: int | None = None) -> bytes:
    """One server-sent event. Its id is where to resume after a lost connection."""
    number = b"" if sequence is None else b"id: %d\n" % sequence
    return b"%sevent: %s\ndata: %s\n\n" % (number, event.encode(), encode(data))


@dataclass(eq=False)
class Listener:
    """A client that follows one meter of a tenant, with a bounded queue of messages."""

    tenant: str
    name: str
    where: Where
    sequence: int
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING + 1))
    ended: bool = False

    def give(self, text: bytes) -> None:
        if self.ended:
            return
        if self.waiting.qsize() >= MOST_WAITING:
            self.end("slow", f"dropped: {MOST_WAITING} messages wait unread; reconnect with Last-Event-ID")
        else:
            self.waiting.put_nowait(text)

    def end(self, reason: str, detail: str) -> None:
        """The last message; there is always room for it."""
        if not self.ended:
            self.ended = True
            self.waiting.put_nowait(message("end", {"reason": reason, "detail": detail}))


class Follower:
    """Reads the journal while there are listeners, and only then."""

    def __init__(self, store: Store, in_thread: InThread, *, interval_s: float = INTERVAL_S) -> None:
        self._store = store
        self._in_thread = in_thread
        self._interval_s = interval_s
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    @property
    def following(self) -> bool:
        return self._task is not None and not self._task.done()

    @contextlib.contextmanager
    def listen(self, tenant: str, name: str, where: Mapping[str, Sequence[str]], *, since: int) -> Iterator[Listener]:
        """Everything applied after `since`, until the block is left."""
        if self._closed:
            raise Problem(503, "stopping", "the service is stopping", headers={"retry-after": "1"})
        if len(self._listeners) >= MOST_LISTENERS:
            detail = f"{len(self._listeners)} listeners (at most {MOST_LISTENERS}); try again later"
            raise Problem(503, "too_many_listeners", detail, headers={"retry-after": "5"}, limit=MOST_LISTENERS)
        listener = Listener(tenant, name, tuple((key, tuple(wanted)) for key, wanted in where.items()), since)
        self._listeners.add(listener)
        if not self.following:
            self._task = asyncio.create_task(self._follow(), name="live")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End every stream; otherwise the server waits for them."""
        self._closed = True
        for listener in self._listeners:
            listener.end("stopping", "the service is stopping; reconnect with Last-Event-ID")

    async def _follow(self) -> None:
        while self._listeners and not self._closed:
            groups = defaultdict(list)
            for listener in self._listeners:
                groups[listener.tenant, listener.name, listener.where, listener.sequence].append(listener)
            try:
                through, texts = await self._in_thread(partial(news, self._store, tuple(groups)))
            except Exception as error:  # the store may be away for a moment; listeners wait  # noqa: BLE001
                logger.warning("cannot follow the journal: %s", error)
            else:
                self._deliver(groups, through, texts)
            await asyncio.sleep(self._interval_s)

    def _deliver(self, groups: Mapping[Any, list[Listener]], through: int, texts: Mapping[Any, bytes | None]) -> None:
        for wanted, listeners in groups.items():
            for listener in listeners:
                listener.sequence = max(listener.sequence, through)
                text = texts.get(wanted, b"")
                if text is None:
                    listener.end("deleted", f"the meter {listener.name} was deleted")
                elif text:
                    listener.give(text)


Wanted = tuple[str, str, Where, int]
"""tenant, meter, filter, and the sequence read up to"""


def news(store: Store, groups: Sequence[Wanted]) -> tuple[int, dict[Wanted, bytes | None]]:
    """(sequence read up to, text for each group): empty if nothing changed, None if the meter is gone."""
    start = min(sequence for *_, sequence in groups)
    batches = store.snapshots.journal_since(start)
    if not batches:
        return store.snapshots.journal_end() if start > store.snapshots.journal_end() else start, {}
    through = batches[-1][0]
    meters = {
        (tenant, registered.meter.name): registered
        for tenant in {tenant for tenant, *_ in groups}
        for registered in store.registry.meters(tenant)
    }
    texts: dict[Wanted, bytes | None] = {}
    for wanted in groups:
        tenant, name, where, since = wanted
        if (tenant, name) not in meters:
            texts[wanted] = None
            continue
        frames = [frame for sequence, frame in batches if sequence > since]
        gap = since + 1 < batches[0][0]
        texts[wanted] = _changes(meters[tenant, name], where, frames, through, gap=gap)
    return through, texts


def _changes(
    registered: RegisteredMeter, where: Where, frames: Sequence[pl.DataFrame], through: int, *, gap: bool
) -> bytes:
    own = [frame.filter(pl.col("meter") == registered.set_id) for frame in frames]
    added = deltas.merge(own) if own else deltas.empty()
    changes = []
    added = added.sort("n", descending=True)
    found = values(added, registered.meter.compute, registered)
    for (series, bucket_s), value in zip(added.select("series", "bucket_s").iter_rows(), found, strict=True):
        labels = dict(zip(registered.labels, series.split("\0"), strict=True)) if registered.labels else {}
        if all(labels[key] in wanted for key, wanted in where):
            changes.append({"labels": labels, "time": rfc3339_s(bucket_s), **value})
    if not changes and not gap:
        return b""
    data = {"meter": registered.meter.name, "version": registered.version, "changes": changes[:MOST_CHANGES]}
    if registered.meter.decimals is not None:
        data["decimals"] = registered.meter.decimals
    if len(changes) > MOST_CHANGES:
        data["left_out"] = len(changes) - MOST_CHANGES
    if gap:
        data["gap"] = True  # older batches are folded and gone: ask for the total, then follow
    return message("change", data, sequence=through)


async def stream(transport: Any, listener: Listener, *, gone: asyncio.Future[Any], version: int) -> None:
    """Send until the client leaves, the listener is ended, or the connection has carried enough bytes."""
    hello = message("start", {"meter": listener.name, "version": version}, sequence=listener.sequence)
    await transport.send_bytes(b"retry: 500\n\n" + hello)
    sent = 0
    while not gone.done():
        text = await _next(listener, gone)
        await transport.send_bytes(text)
        if listener.ended and listener.waiting.empty():
            return
        sent += len(text)
        if sent > MOST_STREAM_BYTES:
            detail = f"this stream ends after {MOST_STREAM_BYTES:,} bytes; reconnect with Last-Event-ID"
            await transport.send_bytes(message("end", {"reason": "length", "detail": detail}))
            return


async def _next(listener: Listener, gone: asyncio.Future[Any]) -> bytes:
    """The next message, or a comment that keeps the connection open."""
    coming = asyncio.ensure_future(listener.waiting.get())
    await asyncio.wait({coming, gone}, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return b": still here\n\n"
