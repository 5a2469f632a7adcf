"""The role `query`: answers questions until asked to stop."""

import asyncio
import contextlib
import logging
import time

from tallymark import http
from tallymark.fidelity.log_view import stream
from tallymark.fidelity.rates import Rates
from tallymark.log import open_reader
from tallymark.query import api
from tallymark.query.app import Dispatcher, make_app
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.newest import LogGlances
from tallymark.query.sources import Sources
from tallymark.role import Role
from tallymark.role.heartbeat import Heartbeat
from tallymark.settings import Settings
from tallymark.store import address, open_store
from tallymark.tables import Tables

READY_WITHIN_S = 10.0
LEAVE_WITHIN_S = 2.0
# How long a load balancer that asks for `/readyz` every second or two may take to notice.
LEAVE_S = 3.0

logger = logging.getLogger("tallymark.query")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT. 0 after a clean stop, 1 if the address cannot be had."""
    import uvloop

    with Role(settings, "query") as role, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if not http.is_loopback(settings.query.host):
            logger.error(
                "query.host = %s: only loopback (127.0.0.1) may be served until there are API keys", settings.query.host
            )
            return 1
        try:
            runner.run(_serve(settings, role))
        except (OSError, RuntimeError, TimeoutError) as error:
            logger.error("cannot serve on %s:%d: %s", settings.query.host, settings.query.port, error)
            return 1
    return 0


async def _serve(settings: Settings, role: Role) -> None:
    host, port = settings.query.host, settings.query.port or http.free_port(settings.query.host)
    stop = role.stop_event()
    if role.stopping.is_set():
        return
    store = open_store(settings)
    events, refused = stream(settings, "events"), stream(settings, "dead")
    cache = AnswerCache(ttl_s=settings.query.cache_ttl_s)
    last_known = LastKnown(most_bytes=settings.query.last_known_bytes)
    newest = LogGlances(lambda: open_reader(settings, "events"))
    tables = Tables(store.documents, store.table_parts)
    sources = Sources(
        store,
        events,
        refused,
        settings,
        clock_ms=_now_ms,
        cache=cache,
        last_known=last_known,
        newest=newest,
        tables=tables,
    )
    rates = Rates(sources)
    dispatcher, app = make_app(sources, api.routes(sources, rates, is_stopping=stop.is_set))
    halt = asyncio.Event()
    serving = asyncio.create_task(http.serve(app, host=host, port=port, stop=halt))
    several = address(settings).is_shared
    goodbyes = contextlib.ExitStack()
    try:
        await _accepting(host, port, serving)
        rates.start()
        role.publish_metrics()
        role.announce(f"{host}:{port}")
        if several:
            heartbeat = Heartbeat(role.heartbeat_name, lambda: store.heartbeats)
            goodbyes.enter_context(heartbeat.in_background(lambda: {"address": f"{host}:{port}"}))
        logger.info("answering on http://%s:%d", host, port)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
            raise RuntimeError("the server ended by itself")
        # One of several nodes stays for a moment, not ready, so that nobody is sent here any more.
        await asyncio.sleep(LEAVE_S if several else 0.0)
    finally:
        # Streams first: the server waits for open ones.
        rates.stop()
        dispatcher.end_streams()
        await _left(dispatcher)
        halt.set()
        with contextlib.suppress(Exception):
            await serving
        dispatcher.close()
        goodbyes.close()
        events.close()
        refused.close()
        newest.close()
        store.close()


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _accepting(host: str, port: int, serving: asyncio.Task[None]) -> None:
    """Wait until a connection is taken."""
    async with asyncio.timeout(READY_WITHIN_S):
        while not serving.done():
            try:
                _, writer = await asyncio.open_connection(host, port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
    serving.result()
    raise RuntimeError("the server ended before it could take a connection")


async def _left(dispatcher: Dispatcher) -> None:
    """Wait until those who listen have had their last message."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_WITHIN_S):
            while dispatcher.listeners:
                await asyncio.sleep(0.01)
