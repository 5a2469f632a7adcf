"""The query nodes that questions can be handed on to."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tallymark.settings import SettingsError

Address = tuple[str, int]

# A node that took no connection, broke off or did not answer in time is asked last for this long.
DOWN_S = 5.0
# The run folder is read again after this long, or when a node that it named is gone.
KNOWN_S = 1.0


class QueryNodes:
    """Those that the settings name, else those that run on this data folder, each in turn."""

    def __init__(self, named: Sequence[str], run_folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._named = [address(each) for each in named]
        self._run_folder = run_folder
        self._clock = clock
        self._announced: list[Address] = []
        self._known_until = 0.0
        self._down: dict[Address, float] = {}
        self._turn = 0

    def known(self) -> list[Address]:
        return self._named or self._on_this_folder()

    def in_turn(self) -> list[Address]:
        """All of them, another one first each time; those that lately did not answer come last."""
        nodes = self.known()
        if len(nodes) < 2:
            return nodes
        self._turn += 1
        first = self._turn % len(nodes)
        now = self._clock()
        order = sorted([*nodes[first:], *nodes[:first]], key=lambda node: self._down.get(node, 0.0) > now)
        if order[0] in self._down:
            # One question finds out whether it is back; the others do not wait with it.
            self._down[order[0]] = now + DOWN_S
        return order

    def answered(self, node: Address) -> None:
        self._down.pop(node, None)

    def failed(self, node: Address) -> None:
        self._down[node] = self._clock() + DOWN_S
        self._known_until = 0.0  # it may have come back at another port

    def _on_this_folder(self) -> list[Address]:
        if self._clock() >= self._known_until:
            self._announced = _announced(self._run_folder)
            self._known_until = self._clock() + KNOWN_S if self._announced else 0.0
        return self._announced


def address(text: str) -> Address:
    """`host:port` as a pair."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise SettingsError(f"collector.query: {text!r} is not host:port, for example query-1:8081")
    return host.strip("[]"), int(port)


def _announced(run_folder: Path) -> list[Address]:
    found = []
    for file in (run_folder / "query.json", *sorted(run_folder.glob("query-*.json"))):
        try:
            found.append(address(str(json.loads(file.read_bytes())["address"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not there yet, or no longer
    return found
