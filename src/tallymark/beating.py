"""Beats: how a role that has no other business in the store says there that it is alive."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tallymark.role import Role

INTERVAL_S = 2.0

logger = logging.getLogger(__name__)


class Beats(Protocol):
    """The part of a store that takes beats."""

    def beat(self, role: str, facts: Mapping[str, Any], *, now_ms: int) -> None: ...


class Beating:
    """`with Beating(role, open_beats, address=…):` beats from a thread until it is left, and then says goodbye."""

    def __init__(self, role: Role, open_beats: Callable[[], Beats], *, address: str) -> None:
        self._name, self._open, self._address = role.beat_name, open_beats, address
        self._beats: Beats | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beats", daemon=True)

    def __enter__(self) -> "Beating":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(INTERVAL_S)

    def _run(self) -> None:
        trouble = ""
        while True:
            try:
                self._beat({"address": self._address})
                trouble = ""
            except Exception as error:  # the store is away: the role works on, and status says that it is silent
                if trouble != str(error):
                    trouble = str(error)
                    logger.warning("cannot say in the store that this role is alive: %s", error)
            if self._ended.wait(INTERVAL_S):
                break
        if not trouble:
            self._beat({"stopped": True})

    def _beat(self, facts: Mapping[str, Any]) -> None:
        if self._beats is None:
            self._beats = self._open()
        self._beats.beat(self._name, facts, now_ms=time.time_ns() // 1_000_000)
