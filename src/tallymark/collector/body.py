"""Request bodies: read with a limit and a deadline, inflated with a limit."""

import asyncio
import zlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from granian.rsgi import ProtocolClosed

from tallymark.collector.pressure import Holding
from tallymark.http import Problem

# Up to here a body is read in one piece, and its declared size is held before it arrives: 1,500 requests that
# declare this much and never send it hold 12 MB. Larger bodies hold what has arrived.
SMALL_BYTES = 8_192
# Inflating more than this is left to a thread, where zlib and zstd let the others work.
INLINE_BYTES = 65_536
ENCODINGS = ("gzip", "zstd", "deflate")


class ClientGone(Exception):
    """The client hung up before its body was whole: nobody is there to be answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    max_body_bytes: int
    max_inflated_bytes: int
    body_timeout_s: float
    said: str = "collector.max_body_bytes = {:,}; send smaller batches"
    """how a body that is too large is refused"""


class Reader:
    """Reads bodies; at the stop those that are still coming are given a moment instead of their whole time."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._deadlines: set[asyncio.Timeout] = set()

    def hurry(self, grace_s: float) -> None:
        soon = asyncio.get_running_loop().time() + grace_s
        for deadline in self._deadlines:
            deadline.reschedule(soon)

    async def read(self, proto: Any, declared: str | None, held: Holding, limits: Limits | None = None) -> bytes:
        """The body as sent; answers 413 over the limit and 408 after the deadline."""
        limits = limits or self.limits
        expected = int(declared) if declared is not None and declared.isdecimal() else None
        if expected is not None and expected > limits.max_body_bytes:
            raise _too_large(expected, limits)
        if expected == 0:
            return b""
        deadline = asyncio.timeout(limits.body_timeout_s)
        try:
            async with deadline:
                self._deadlines.add(deadline)
                if expected is not None and expected <= SMALL_BYTES:
                    held.set(expected)
                    body: bytes = await proto()
                else:
                    body = await _stream(proto, limits, held)
        except ProtocolClosed:
            raise ClientGone("in the middle of a body") from None
        except TimeoutError:
            raise Problem(
                408,
                "slow_body",
                f"the body was not complete after {_deadline(limits, self.limits)}",
                headers={"connection": "close"},
            ) from None
        finally:
            self._deadlines.discard(deadline)
        # Read piece by piece, a body that was cut off just ends.
        if expected is not None and len(body) != expected:
            raise ClientGone(f"{len(body):,} of {expected:,} bytes arrived")
        return body


def _deadline(limits: Limits, own: Limits) -> str:
    return f"{'collector.body_timeout_s = ' if limits is own else ''}{limits.body_timeout_s:g} s"


async def _stream(proto: Any, limits: Limits, held: Holding) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in proto:
        size += len(chunk)
        if size > limits.max_body_bytes:
            raise _too_large(size, limits)
        held.set(size)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(size: int, limits: Limits) -> Problem:
    return Problem(
        413,
        "too_large",
        f"a body of at least {size:,} bytes exceeds {limits.said.format(limits.max_body_bytes)}",
        headers={"connection": "close"},
    )


async def inflate(body: bytes, encoding: str | None, limits: Limits, held: Holding) -> bytes:
    """The body without its content encoding; answers 415, 413 or 400."""
    encoding = (encoding or "identity").strip().lower()
    if encoding in ("identity", ""):
        return body
    if encoding == "x-gzip":
        encoding = "gzip"
    if encoding not in ENCODINGS:
        raise Problem(415, "unknown_encoding", f"content-encoding {encoding[:40]!r}; known are {', '.join(ENCODINGS)}")
    if len(body) > INLINE_BYTES:
        inflated = await asyncio.to_thread(_inflated, body, encoding, limits.max_inflated_bytes)
    else:
        inflated = _inflated(body, encoding, limits.max_inflated_bytes)
    held.set(len(inflated))
    return inflated


def _inflated(body: bytes, encoding: Any, limit: int) -> bytes:
    try:
        if encoding == "deflate":
            inflated = _deflated(body, limit)
        else:
            # Arrow's stream reads members and frames that follow each other, and knows when one is cut short.
            with pa.CompressedInputStream(pa.BufferReader(body), encoding) as stream:
                inflated = stream.read(limit + 1)
    except (OSError, zlib.error) as error:
        raise Problem(400, "bad_encoding", f"the body is not {encoding}: {error}") from None
    if len(inflated) > limit:
        raise Problem(
            413,
            "too_large",
            f"a body of {len(body):,} bytes inflates to more than collector.max_inflated_bytes = {limit:,}; "
            "send smaller batches",
        )
    return inflated


def _deflated(body: bytes, limit: int) -> bytes:
    """RFC 9110's `deflate` is zlib's format; some clients send it bare."""
    try:
        return _zlib(body, limit, zlib.MAX_WBITS)
    except zlib.error:
        return _zlib(body, limit, -zlib.MAX_WBITS)


def _zlib(body: bytes, limit: int, window: int) -> bytes:
    stream = zlib.decompressobj(window)
    inflated = stream.decompress(body, limit + 1)
    if len(inflated) <= limit and (not stream.eof or stream.unused_data):
        raise zlib.error("it is cut short, or something follows it")
    return inflated
