"""How a role is asked to stop, and who learns of it."""

import asyncio
import logging
import signal
import threading

import pytest

from tallymark.role import Role, process
from tallymark.settings import Settings


@pytest.fixture
def role(tmp_path):
    return Role(Settings(data=str(tmp_path)), "keeper")


def test_everybody_who_asked_is_told_once(role):
    told = []
    role.on_stop(lambda: told.append("a"))
    role.on_stop(lambda: told.append("b"))
    role.stop()
    role.stop()
    assert role.stopping.is_set()
    assert told == ["a", "b"]


def test_who_asks_after_the_stop_is_told_at_once(role):
    told = []
    role.stop()
    role.on_stop(lambda: told.append("late"))
    assert told == ["late"]


def test_a_stop_from_another_thread_wakes_an_event_loop(role):
    async def serve() -> None:
        stop = role.stop_event()
        # Nothing else happens in this loop: only a wake-up from outside lets it look at the event.
        begun = asyncio.get_running_loop().time()
        threading.Timer(0.05, role.stop).start()
        async with asyncio.timeout(20):
            await stop.wait()
        # Without the wake-up it would see the event when the time-out is due.
        assert asyncio.get_running_loop().time() - begun < 15

    asyncio.run(serve())


def test_an_event_made_after_the_stop_is_set(role):
    async def serve() -> None:
        role.stop()
        async with asyncio.timeout(20):
            assert await role.stop_event().wait()

    asyncio.run(serve())


def test_a_stop_after_the_loop_has_ended_reaches_the_others(role):
    async def serve() -> None:
        role.stop_event()

    asyncio.run(serve())
    told = []
    role.on_stop(lambda: told.append("after the loop"))
    role.stop()
    assert told == ["after the loop"]


def test_no_metrics_are_written_after_the_end(role, monkeypatch):
    monkeypatch.setattr(process, "METRICS_INTERVAL_S", 5.0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    loggers = list(logging.getLogger().handlers)
    try:
        with role:
            role.publish_metrics()
            assert "metrics" in [thread.name for thread in threading.enumerate()]
        assert "metrics" not in [thread.name for thread in threading.enumerate()]
    finally:
        logging.getLogger().handlers[:] = loggers
        for number, handler in handlers.items():
            signal.signal(number, handler)
