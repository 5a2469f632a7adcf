"""Those who open streams of the query service, without sockets."""

import asyncio
import contextlib
import json
from types import SimpleNamespace

from tallymark.query.app import make_app


class Client:
    """One who opened a path; `reads` says whether the server gets rid of what it sends."""

    def __init__(self, app, target, *, reads=True, tenant=None):
        path, _, query = target.partition("?")
        self.sent, self.status, self.headers = b"", None, None
        self.free = asyncio.Event()
        if reads:
            self.free.set()
        self.left = asyncio.get_running_loop().create_future()
        headers = {"host": "localhost"} | ({"tallymark-tenant": tenant} if tenant else {})
        scope = SimpleNamespace(method="GET", path=path, query_string=query, headers=headers)
        self.task = asyncio.create_task(app(scope, self))

    async def __aiter__(self):
        yield b""

    def response_bytes(self, status, headers, content):
        self.status, self.sent = status, content

    def response_stream(self, status, headers):
        self.status, self.headers = status, dict(headers)
        return self

    async def send_bytes(self, data):
        await self.free.wait()
        self.sent += data

    async def client_disconnect(self):
        await self.left

    def told(self, kind):
        blocks = [
            dict(line.split(": ", 1) for line in block.splitlines()) for block in self.sent.decode().split("\n\n")
        ]
        return [json.loads(block["data"]) for block in blocks if block.get("event") == kind]


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(desk):
    dispatcher, app = make_app(desk.sources, desk.routes)
    clients = []

    def open_(target, **how):
        clients.append(Client(app, target, **how))
        return clients[-1]

    try:
        yield dispatcher, open_
    finally:
        dispatcher.end_streams()
        for client in clients:
            client.free.set()
        await asyncio.wait_for(asyncio.gather(*(client.task for client in clients)), 10)
        dispatcher.close()


def play(desk, scene):
    async def run():
        async with serving(desk) as (dispatcher, open_):
            await scene(dispatcher, open_)

    asyncio.run(run())
