"""Sends one attempt to its address over HTTP: headers, body, exchange."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from tallymark.client import compression, encoding
from tallymark.client.attempt import Attempt
from tallymark.client.compression import Compress
from tallymark.client.transport import Answer, NoAnswer, Request, Transport

PATH = "/v1/events"
MAX_ANSWER_BYTES = 4_000_000
"""far more than a collector's answer to a batch; anything larger is not one, and must not fill the memory"""


class HttpSender:
    """One sending thread's connections, one for each address, and its compressor."""

    def __init__(self, connect: Callable[[str], Transport], compress: Compress) -> None:
        self._connect = connect
        self._transports: dict[str, Transport] = {}
        self._compressor = compression.compressor(compress)

    def deliver(self, attempt: Attempt, events: Sequence[bytes]) -> Answer | NoAnswer:
        try:
            transport = self._transports.get(attempt.address.url)
            if transport is None:
                transport = self._transports[attempt.address.url] = self._connect(attempt.address.url)
            answer: object = transport.exchange(self._request(attempt, events), timeout_s=attempt.timeout_s)
            if isinstance(answer, Answer):
                return answer
            return NoAnswer(f"no answer from {attempt.address.url}: the transport gave {answer!r}")
        except NoAnswer as error:
            return error
        except Exception as error:  # noqa: BLE001
            # Whatever a transport raises, the outcome is unknown and the thread must go on.
            return NoAnswer(f"no answer from {attempt.address.url}: {error!r}")

    def _request(self, attempt: Attempt, events: Sequence[bytes]) -> Request:
        headers = {
            "content-type": "application/json",
            "tallymark-sent-at": str(attempt.sent_at_ms),
            "tallymark-client": attempt.counters,
        }
        if attempt.batch.tenant is not None:
            headers["tallymark-tenant"] = attempt.batch.tenant
        body = encoding.body(events, resent_ms=attempt.resent_ms)
        if self._compressor is not None and len(body) >= compression.SMALLEST_BYTES:
            headers["content-encoding"], compress = self._compressor
            body = compress(body)
        return Request("POST", PATH, body, headers, max_answer_bytes=MAX_ANSWER_BYTES)

    def close(self) -> None:
        for transport in self._transports.values():
            with suppress(Exception):
                transport.close()
