"""Server-sent events, over as many connections as it takes: changes as they are applied, and other feeds."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from tallymark.client.backoff import BackOff
from tallymark.client.transport import Answer, HttpTransport, NoAnswer, Request, Stream
from tallymark.reader import answers
from tallymark.reader.answers import Changes
from tallymark.reader.errors import QuestionRefused, Unanswered, from_answer

SILENT_S = 40.0
"""the server writes something every 15 s, so a connection that is silent for longer is dead"""
MAX_PAUSE_S = 5.0


class Message(msgspec.Struct):
    """One server-sent event."""

    event: str = "message"
    data: str = ""
    id: str | None = None


class Messages:
    """The messages of one kind, until it is closed, from any thread, or by its `with` block.

    A lost connection is made again, for as long as it takes, and goes on after the last message that had an id.
    """

    def __init__(
        self,
        connect: Callable[[], HttpTransport],
        path: str,
        *,
        kind: str,
        timeout_s: float,
        since: str | None = None,
        silent_s: float = SILENT_S,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`lost` is called whenever the connection was lost and is about to be made again."""
        self._connect, self._path, self._timeout_s, self._silent_s = connect, path, timeout_s, silent_s
        self._kind, self._lost = kind, lost
        self._last_id = since
        self._pause_s = 0.5
        self._closed = threading.Event()
        self._stream: Stream | None = None
        self._open()

    def next(self) -> Message | None:
        """The next one, however long it takes; None once this is closed."""
        while not self._closed.is_set():
            if self._stream is None:
                self._reconnect()
                continue
            message = self._next_message(self._stream)
            if message is None:
                self._drop()
                if not self._closed.is_set():
                    self._lost()
            elif message.event == self._kind:
                return message
        self._drop()
        return None

    def close(self) -> None:
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._drop()

    def __del__(self) -> None:
        # A loop that was left with `break`: the server need not keep the connection until the program ends.
        if getattr(self, "_stream", None) is not None:
            self._drop()

    def _open(self) -> None:
        """Connect, and read up to the first message: from there on nothing is missed."""
        headers = {"accept": "text/event-stream"}
        if self._last_id is not None:
            headers["last-event-id"] = self._last_id
        try:
            stream = self._connect().open(
                Request("GET", self._path, headers=headers), timeout_s=self._timeout_s, silent_s=self._silent_s
            )
        except NoAnswer as error:
            raise Unanswered(str(error)) from error
        try:
            if stream.status != 200:
                raise from_answer(Answer(stream.status, stream.headers, stream.rest()))
            if not stream.headers.get("content-type", "").startswith("text/event-stream"):
                raise Unanswered(f"unexpected answer to {self._path}; is this really a Tallymark server?")
            self._stream = stream
            if self._next_message(stream) is None:
                raise Unanswered("the connection ended before the first message")
        except BaseException:
            self._stream = None
            stream.close()
            raise

    def _reconnect(self) -> None:
        backoff, tries = BackOff(self._pause_s, MAX_PAUSE_S), 0
        while not self._closed.wait(backoff.pause(tries) if tries else self._pause_s):
            tries += 1
            try:
                self._open()
            except QuestionRefused:
                raise
            except Unanswered:
                continue
            if self._closed.is_set():
                self._drop()
            return

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _next_message(self, stream: Stream) -> Message | None:
        """None when the connection ends; a message that it cut off counts for nothing."""
        fields: dict[str, Any] = {}
        while True:
            try:
                line = stream.line()
            except NoAnswer:
                return None
            if line is None:
                return None
            if not line:
                if not fields:
                    continue
                message = Message(**{name: text for name, text in fields.items() if name != "retry"})
                self._note(message, fields.get("retry", ""))
                if message.data:
                    return message
                fields = {}
                continue
            name, _, text = line.partition(":")
            text = text.removeprefix(" ")
            if name == "data" and "data" in fields:
                fields["data"] += f"\n{text}"
            elif name in ("data", "event", "id", "retry"):
                fields[name] = text

    def _note(self, message: Message, retry_ms: str) -> None:
        if message.id is not None:
            self._last_id = message.id
        if retry_ms.isascii() and retry_ms.isdigit():
            self._pause_s = min(MAX_PAUSE_S, int(retry_ms) / 1000)


class Live(Messages):
    """An iterator over changes. What a lost connection missed comes later; nothing is told twice."""

    def __init__(
        self,
        connect: Callable[[], HttpTransport],
        path: str,
        *,
        timeout_s: float,
        since: str | None = None,
        silent_s: float = SILENT_S,
    ) -> None:
        super().__init__(connect, path, kind="change", timeout_s=timeout_s, since=since, silent_s=silent_s)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Changes:
        while (message := self.next()) is not None:
            data = answers.decode(message.data.encode())
            if data is not None:
                return answers.changes(data, self._last_id or "")
        raise StopIteration
