"""The collector as a process: `run(settings)` serves until it is told to stop, and loses nothing it answered for."""

import asyncio
import gc
import os
import resource
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING

import uvloop

from tallymark import http, telemetry
from tallymark import log as logs
from tallymark import store as stores
from tallymark.collector import dead_letters, kept_names
from tallymark.collector.app import App, Origins
from tallymark.collector.applied import Follower
from tallymark.collector.body import Limits, Reader
from tallymark.collector.commit import Committer, Partitioner
from tallymark.collector.forward import Forwarder
from tallymark.collector.health import Readiness
from tallymark.collector.intake import Intake, Rules
from tallymark.collector.nodes import QueryNodes
from tallymark.collector.pressure import Budget, Rate
from tallymark.collector.waiting import opened
from tallymark.events.clocks import Clocks
from tallymark.events.tenant_names import TenantNames
from tallymark.log.protocol import LogWriter
from tallymark.role import Role, file_stem
from tallymark.role.heartbeat import Heartbeat
from tallymark.settings import Settings, SettingsError

if TYPE_CHECKING:
    from tallymark.store.protocol import Heartbeats

STREAM = "events"
ROLES = ("collector", "pipeline", "keeper", "query")
STOP_GRACE_S = 1.0
# How long a load balancer that asks for `/readyz` every second or two may take to notice.
LEAVE_S = 3.0


def run(settings: Settings) -> int:
    """Serve the public port until SIGTERM, SIGINT or the end of the parent."""
    check_host(settings.collector.host)
    _allow_many_connections(settings.collector.max_connections)
    # Events are many short-lived containers without cycles; looking for cycles every 700 of them costs a third of it.
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    with Role(settings, "collector") as role:
        uvloop.run(_run(settings, role))
    return 0


def check_host(host: str) -> None:
    """Only loopback: whoever reaches the port may write, as long as API keys do not exist."""
    if not http.is_loopback(host):
        raise SettingsError(
            f"collector.host = {host!r}: only loopback (127.0.0.1) is served until API keys exist; "
            "put a proxy with access control in front"
        )


async def _run(settings: Settings, role: Role) -> None:
    from tallymark.log.partitioners import partitioner

    stop = role.stop_event()
    settings.collector.port = settings.collector.port or http.free_port(settings.collector.host)
    if role.stopping.is_set():
        return
    async with AsyncExitStack() as stack:
        writers = await opened(lambda: _open_logs(settings), settings.collector, stop=stop)
        if writers is None:
            return
        events, letters = writers
        stack.callback(events.close)
        stack.callback(letters.close)

        def ready(address: str) -> None:
            role.announce(address)
            if stores.address(settings).is_shared:
                heartbeat = Heartbeat(role.heartbeat_name, lambda: _open_heartbeats(settings))
                stack.enter_context(heartbeat.in_background(lambda: {"address": address}))

        assign = partitioner(settings.log.partition_by, events.partitions)
        await serve(settings, events, letters, assign, stop=stop, ready=ready, applied=_applied(settings, events))


def _open_logs(settings: Settings) -> tuple[LogWriter, LogWriter]:
    from tallymark import log

    events = log.open_writer(settings, STREAM)
    try:
        return events, log.open_writer(settings, dead_letters.STREAM)
    except BaseException:
        events.close()
        raise


def _open_heartbeats(settings: Settings) -> "Heartbeats":
    """That part of the store alone: the rest needs Polars, which a collector does not have."""
    from tallymark.store import address

    return address(settings).open_heartbeats()


async def serve(
    settings: Settings,
    events: LogWriter,
    letters: LogWriter,
    partitioner: Partitioner,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    applied: Callable[[], Mapping[int, int]],
) -> None:
    """Serve over these logs until `stop`; every request in hand is answered before this returns."""
    ours = settings.collector
    reader = Reader(Limits(ours.max_body_bytes, ours.max_inflated_bytes, ours.body_timeout_s))
    budget = Budget(ours.max_pending_bytes)
    names_file = settings.run_folder / f"{file_stem('collector', settings.instance)}.names"
    names = TenantNames(ours.max_event_names, known=kept_names.load(names_file))
    telemetry.COLLECTOR_EVENT_NAMES.set_function(lambda: len(names))
    telemetry.COLLECTOR_TENANTS.set_function(lambda: names.tenants)
    port = ours.port or http.free_port(ours.host)
    halt = asyncio.Event()
    async with AsyncExitStack() as stack:
        committer = Committer(events, letters, partitioner, interval_s=ours.commit_interval_ms / 1000)
        stack.push_async_callback(committer.close)
        follower = Follower(applied, stop=halt)
        nodes = QueryNodes(ours.query, settings.run_folder)
        forwarder = Forwarder(nodes, stop=stop, answered=lambda: follower.answered)
        stack.callback(forwarder.close)
        intake = Intake(
            Rules(ours.max_request_events, _clocks(settings), names),
            reader,
            committer,
            follower,
            budget=budget,
            rate=Rate(ours.max_events_per_second),
        )
        readiness = Readiness(
            events,
            committer,
            forwarder,
            settings=settings,
            stop=stop,
            together=[role for role in os.environ.get("TALLYMARK_SUPERVISED", "").split(",") if role in ROLES],
        )
        app = App(
            intake,
            readiness,
            forwarder,
            callers=http.Callers(hosts=ours.hosts, origins=ours.cors_origins),
            origins=Origins(ours.cors_origins),
            reader=reader,
            budget=budget,
            run_folder=settings.run_folder,
            instance=settings.instance,
        )
        announcing = asyncio.create_task(_announce(ours.host, port, ready))
        served = asyncio.Event()
        saving = asyncio.create_task(kept_names.keep_saved(names_file, names, until=served))
        # One of several collectors stays for a moment, not ready, so that nobody is sent here any more.
        leaving = asyncio.create_task(
            _leave(stop, reader, halt, LEAVE_S if logs.address(settings, STREAM).is_shared else 0.0)
        )
        try:
            await http.serve(
                app,
                host=ours.host,
                port=port,
                stop=halt,
                header_timeout_s=ours.header_timeout_s,
                max_connections=ours.max_connections,
            )
        finally:
            announcing.cancel()
            leaving.cancel()
            served.set()
            await saving


async def _leave(stop: asyncio.Event, reader: Reader, halt: asyncio.Event, leave_s: float) -> None:
    """After the stop, `/readyz` says so for a while; then no connection is taken and what is in hand is answered."""
    await stop.wait()
    await asyncio.sleep(leave_s)
    # A body that comes slowly must not hold up the stop: it was not answered for.
    reader.hurry(STOP_GRACE_S)
    halt.set()


async def _announce(host: str, port: int, ready: Callable[[str], None]) -> None:
    """Say the address once the port takes connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.01)
            continue
        writer.close()
        ready(f"{host}:{port}")
        return


def _clocks(settings: Settings) -> Clocks:
    ours = settings.events
    return Clocks(ours.accept_past_s * 1000, ours.accept_future_s * 1000, int(ours.clock_tolerance_s * 1000))


def _applied(settings: Settings, events: LogWriter) -> Callable[[], Mapping[int, int]]:
    """The store's applied positions; the store is opened when somebody first waits for them."""

    @cache
    def applied() -> Callable[[str], Mapping[int, int]]:
        from tallymark.store import address

        return address(settings).open_sink().applied

    return lambda: applied()(events.identity)


def _allow_many_connections(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + 1024
    if soft < enough:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (enough if hard == resource.RLIM_INFINITY else min(enough, hard), hard)
        )
