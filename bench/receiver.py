"""A receiver for any client: takes every POST, remembers the ids it acknowledged, and can be away for a while.

`python -m bench.receiver PORT` obeys lines on its standard input: `away`, `back`, `report`.
"""

import asyncio
import gzip
import json
import sys
import zlib
from typing import Any

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
ANSWER = b'{"accepted":%d,"rejected":0,"errors":[],"status":1,"success":true}'


class Receiver:
    """Ids that were answered 202, whatever the client calls them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.ids: set[str] = set()
        self.requests = self.events = self.values = 0

    async def back(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=2**24)

    async def away(self) -> None:
        """As if the process were gone: the port is closed, and so is every connection."""
        assert self._server is not None
        self._server.close()
        for each in list(self._open):
            each.transport.abort()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = _fields(head)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                taken = self._take(_plain(body, fields.get("content-encoding", "")))
                answer = ANSWER % taken
                writer.write(OK % (len(answer), answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _take(self, body: bytes) -> int:
        events = _events(json.loads(body)) if body else []
        self.requests += 1
        self.events += len(events)
        self.values += sum(len(each.get("values") or ()) for each in events)
        self.ids.update(str(each.get("id") or each.get("messageId") or each.get("uuid")) for each in events)
        return len(events)


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}


def _plain(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "deflate":
        return zlib.decompress(body)
    if encoding == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


def _events(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, list):
        return content
    found: list[dict[str, Any]] = content.get("events") or content.get("batch") or [content]
    return found


async def main(port: int) -> None:
    receiver = Receiver(port)
    await receiver.back()
    print("ready", flush=True)
    while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if command == "away":
            await receiver.away()
        elif command == "back":
            await receiver.back()
        told = {
            "ids": len(receiver.ids),
            **{name: getattr(receiver, name) for name in ("events", "requests", "values")},
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
