"""The client: counts at the call, sends in the background, accounts for every event."""

import atexit
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tallymark.client import multiprocessing_exit
from tallymark.client.addresses import Balance
from tallymark.client.backoff import chance
from tallymark.client.clock import Clock, SystemClock
from tallymark.client.compression import Compress, compressor
from tallymark.client.encoding import Scalar, Time, encode_count, encode_event
from tallymark.client.engine import Engine
from tallymark.client.errors import Dropped, Refused
from tallymark.client.http_sender import HttpSender
from tallymark.client.ids import Ids, new_instance
from tallymark.client.options import Options
from tallymark.client.reports import Reports
from tallymark.client.sender_threads import SenderThreads
from tallymark.client.spill import Spill
from tallymark.client.stats import Stats
from tallymark.client.transport import HttpTransport, Transport, checked_key

DEFAULT_URL = "http://127.0.0.1:8080"

_clients: "set[Client]" = set()
"""the open ones, kept alive: a client without references may still have events to send"""


class Client:
    """Counts events in Tallymark.

        with Client() as client:
            client.count("view", video="A")

    A call encodes the event, gives it an id and a time, and returns: sending is the work of background threads. Each
    event is delivered, refused by the collector (`on_refused`), or given up here (`on_dropped`), and `stats()` says how
    many are where. Threads may share a client. A forked child has an empty one of its own.

    The events belong to `tenant`; without one, to the server's default (`main`).

    Sending: a batch goes when it has `batch_events` or `batch_bytes`, or when its oldest event is `linger_s` old; up to
    `in_flight` requests at a time, to `urls` in turn (`balance`). What fails for a moment is sent again with the same
    ids after 10, 20, 40 ms … (`first_pause_s` to `max_pause_s`, anything between nothing and that), to another address
    if there is one.

    Waiting: `connect_timeout_s` suits a machine or a data centre; raise it for servers that are far. How long an answer
    is waited for is learned, within `min_timeout_s` and `max_timeout_s`.

    When memory is full (`max_events`, `max_bytes`) a call blocks for at most `block_s` and then drops the event;
    or the oldest events go to files in `spill_folder` ("spill"), up to `max_spill_bytes`, and are sent later, if need
    be by the next process with the same folder; or the event is dropped at once ("drop").
    """

    _has_threads = True

    def __init__(  # noqa: PLR0913
        self,
        urls: str | Sequence[str] | None = None,
        key: str | None = None,
        *,
        tenant: str | None = None,
        batch_events: int = 500,
        batch_bytes: int = 256_000,
        linger_s: float = 0.1,
        max_events: int = 100_000,
        max_bytes: int = 32_000_000,
        when_full: str = "block",
        block_s: float = 0.05,
        spill_folder: str | os.PathLike[str] | None = None,
        max_spill_bytes: int = 256_000_000,
        balance: Balance = "round_robin",
        in_flight: int = 4,
        compress: Compress = "auto",
        connect_timeout_s: float = 0.05,
        min_timeout_s: float = 0.25,
        max_timeout_s: float = 10.0,
        first_pause_s: float = 0.010,
        max_pause_s: float = 5.0,
        on_refused: Callable[[list[Refused]], object] | None = None,
        on_dropped: Callable[[list[Dropped]], object] | None = None,
        connect: Callable[[str], Transport] | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = chance,
    ) -> None:
        self._options = Options(
            urls=_addresses(urls),
            tenant=tenant,
            batch_events=batch_events,
            batch_bytes=batch_bytes,
            linger_s=linger_s,
            max_events=max_events,
            max_bytes=max_bytes,
            when_full=when_full,
            block_s=block_s,
            spill_folder=os.fspath(spill_folder) if spill_folder is not None else None,
            max_spill_bytes=max_spill_bytes,
            balance=balance,
            in_flight=in_flight,
            compress=compress,
            connect_timeout_s=connect_timeout_s,
            min_timeout_s=min_timeout_s,
            max_timeout_s=max_timeout_s,
            first_pause_s=first_pause_s,
            max_pause_s=max_pause_s,
        )
        if compress == "zstd":
            compressor(compress)  # fail now if the package is missing
        key = checked_key(key or os.environ.get("TALLYMARK_KEY") or "")
        self._connect = connect or (lambda url: HttpTransport(url, key=key, connect_timeout_s=connect_timeout_s))
        self._clock = clock or SystemClock()
        self._chance = chance
        self._reports = Reports(self._clock, on_refused=on_refused, on_dropped=on_dropped)
        self._begin(adopt=True)
        _clients.add(self)
        multiprocessing_exit.run_at_end(_close_all)

    def count(self, name: str, /, **props: Scalar) -> str:
        """Count one `name` with these properties; returns the event's id."""
        # Like `Ids.next`, inlined: every tenth of a microsecond here is the caller's.
        id = f"{self._prefix}{self._next_number():x}"
        event = encode_count(name, id, props)
        if not self._put_if_room(event):
            self._put_when_full(event)
        return id

    def event(
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
        """An event with everything it can have; other keywords are properties, `props` those named like a parameter."""
        id = self._next_id() if id is None else id
        event = encode_event(name, id, time=time, value=value, values=values, props={**(props or {}), **more})
        if not self._put_if_room(event):
            self._put_when_full(event)
        return id

    def flush(self, timeout: float | None = None) -> bool:
        """Send everything counted so far without waiting for full batches; True once none of it is in memory.

        Does not wait for what is in files.
        """
        return self._sender_threads.flush(timeout)

    def close(self, timeout: float | None = 5.0) -> None:
        """Flush; what is left goes to files ("spill") or is reported as dropped. Later events are dropped."""
        self._sender_threads.close(timeout)
        _clients.discard(self)

    def stats(self) -> Stats:
        return self._sender_threads.stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, *, adopt: bool) -> None:
        options, instance = self._options, new_instance()
        spill = None
        if options.spill_folder is not None:
            spill = Spill(Path(options.spill_folder), max_bytes=options.max_spill_bytes, instance=instance, adopt=adopt)
        engine = Engine(
            options,
            self._clock,
            instance=instance,
            adopted=spill.adopted if spill is not None else (),
            chance=self._chance,
        )
        self._sender_threads = SenderThreads(
            engine,
            options,
            self._clock,
            spill=spill,
            reports=self._reports,
            new_sender=self._new_sender,
            threads=options.in_flight if self._has_threads else 0,
        )
        ids = Ids(instance)
        self._next_id, self._prefix, self._next_number = ids.next, ids.prefix, ids.next_number
        # Bound once: looking them up takes a tenth of the whole call.
        self._put_if_room, self._put_when_full = self._sender_threads.put_if_room, self._sender_threads.put_when_full

    def _new_sender(self) -> HttpSender:
        return HttpSender(self._connect, self._options.compress)

    def _after_fork(self) -> None:
        self._sender_threads.forget()
        self._begin(adopt=False)


def _addresses(urls: str | Sequence[str] | None) -> tuple[str, ...]:
    if urls is None:
        urls = os.environ.get("TALLYMARK_URL") or DEFAULT_URL
    several: Sequence[Any] = urls.split(",") if isinstance(urls, str) else urls
    return tuple(url.strip().rstrip("/") for url in several if url.strip())


def _close_all() -> None:
    for client in list(_clients):
        client.close()


def _begin_all_anew() -> None:
    for client in list(_clients):
        client._after_fork()
    if _clients:
        multiprocessing_exit.run_at_end_of_fork(_close_all)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)
