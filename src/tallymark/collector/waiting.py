"""Waiting for the log: until its servers answer, the port is open and every request is told to try again."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tallymark import http, problems
from tallymark.http import JSON_HEADERS, Problem, Scope
from tallymark.log.protocol import LogUnreachable
from tallymark.role.outage import Outage
from tallymark.settings import CollectorSettings

RETRY_S = 1.0

logger = logging.getLogger(__name__)

_Opened = TypeVar("_Opened")


async def opened(
    open_log: Callable[[], _Opened], settings: CollectorSettings, *, stop: asyncio.Event
) -> _Opened | None:
    """The log, as soon as it answers; None if the collector is stopped first. Other errors are raised."""
    outage = Outage(logger, "waiting for the log; until it answers, events get a 503", recovered="the log answers")
    try:
        return await asyncio.to_thread(open_log)
    except LogUnreachable as error:
        outage.failed(error)
        return await _keep_trying(open_log, settings, stop, WaitingRoom(str(error)), outage)


async def _keep_trying(
    open_log: Callable[[], _Opened],
    settings: CollectorSettings,
    stop: asyncio.Event,
    room: "WaitingRoom",
    outage: Outage,
) -> _Opened | None:
    closed = asyncio.Event()
    serving = asyncio.create_task(http.serve(room.app, host=settings.host, port=settings.port, stop=closed))
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and not serving.done():
            await asyncio.wait({stopped, serving}, timeout=RETRY_S, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                break
            try:
                found = await asyncio.to_thread(open_log)
            except LogUnreachable as error:
                outage.failed(error)
                room.trouble = str(error)
            else:
                outage.over()
                return found
        return None
    finally:
        stopped.cancel()
        closed.set()
        await serving


class WaitingRoom:
    """What the public port says meanwhile."""

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble

    async def app(self, scope: Scope, proto: Any) -> None:
        if scope.path == "/healthz":
            proto.response_bytes(200, JSON_HEADERS, msgspec.json.encode({"alive": True}))
        elif scope.path == "/readyz":
            part = {"ready": False, "troubles": [f"waiting for the log: {self.trouble}"]}
            proto.response_bytes(503, JSON_HEADERS, msgspec.json.encode({"ready": False, "collector": part}))
        elif scope.path == problems.PATH:
            proto.response_bytes(200, problems.HEADERS, problems.page())
        else:
            detail = f"the log does not answer yet: {self.trouble}; nothing was accepted, try again"
            problem = Problem(503, "log_unreachable", detail, headers={"retry-after": "1"})
            proto.response_bytes(problem.status, problem.headers, problem.body())
