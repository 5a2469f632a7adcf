"""This machine's figures by psutil: what is now, and what has grown since the last reading."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from tallymark.agent.processes import Processes

logger = logging.getLogger(__name__)

DIGITS = 4
"""after the point, of shares and rates: the kernel counts a core's time in hundredths of a second"""

_BUSY = ("user", "system", "iowait", "steal", "irq", "softirq", "nice")
_IDLE = ("idle", "iowait")
# Linux counts the time of guests in `user` and `nice` as well.
_TWICE = ("guest", "guest_nice")


@dataclass
class Reading:
    """What the machine reported at one moment."""

    levels: dict[str, float] = field(default_factory=dict)
    """as they are: bytes in use, load"""
    totals: dict[str, float] = field(default_factory=dict)
    """only ever growing: bytes read since the start of the machine"""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """seconds of all cores by what they were spent on"""


def figures(before: Reading, now: Reading, *, elapsed_s: float) -> dict[str, float]:
    """Levels, growth per second, and shares of the CPU. Unknown figures are absent, not 0."""
    return {**_shares(before.cpu_s, now.cpu_s), **now.levels, **rates(before.totals, now.totals, elapsed_s=elapsed_s)}


def rates(before: Mapping[str, float], now: Mapping[str, float], *, elapsed_s: float) -> dict[str, float]:
    """Growth per second; a total that is new or has shrunk (a card pulled out) is left out until the next reading."""
    if elapsed_s <= 0:
        return {}
    return {
        name: round((value - before[name]) / elapsed_s, DIGITS)
        for name, value in now.items()
        if name in before and value >= before[name]
    }


def _shares(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    # A virtual machine's idle time may step back a little.
    spent = {name: max(0.0, value - before[name]) for name, value in now.items() if name in before}
    whole = sum(spent.values())
    if whole <= 0:
        return {}
    idle = sum(spent.get(name, 0.0) for name in _IDLE)
    return {
        "cpu": round((whole - idle) / whole, DIGITS),
        **{f"cpu_{name}": round(spent[name] / whole, DIGITS) for name in _BUSY if name in spent},
    }


class Machine:
    """`read()` never raises for a part that the system does not report: that part is absent, and logged once."""

    def __init__(self, *, disks: Sequence[str] = ("/",), processes: Sequence[str] = ()) -> None:
        self._disks = disks
        self._processes = Processes(processes)
        self._silent: set[str] = set()
        self._parts: dict[str, Callable[[Reading], None]] = {
            "cpu": _read_cpu,
            "memory": _read_memory,
            "load": _read_load,
            "disk traffic": _read_disk_traffic,
            "network": _read_network,
            **{f"disk {path}": self._disk(path) for path in disks},
            "processes": self._read_processes,
        }

    def read(self) -> Reading:
        reading = Reading()
        for name, part in self._parts.items():
            try:
                part(reading)
            except (OSError, RuntimeError, NotImplementedError, AttributeError, psutil.Error) as error:
                if name not in self._silent:
                    logger.warning("cannot read %s on this machine: %s; its figures are left out for now", name, error)
                self._silent.add(name)
            else:
                self._silent.discard(name)
        return reading

    def _disk(self, path: str) -> Callable[[Reading], None]:
        label = "" if path == "/" else f'{{path="{path}"}}'

        def read_disk(reading: Reading) -> None:
            usage = psutil.disk_usage(path)
            reading.levels[f"disk_used_bytes{label}"] = float(usage.used)
            reading.levels[f"disk_free_bytes{label}"] = float(usage.free)
            # Relative to what ordinary users can have, like `df`.
            if usage.used + usage.free:
                reading.levels[f"disk_used{label}"] = usage.used / (usage.used + usage.free)

        return read_disk

    def _read_processes(self, reading: Reading) -> None:
        pids = psutil.pids()
        reading.levels["processes"] = float(len(pids))
        self._processes.read(pids, reading.levels, reading.totals)


def _read_cpu(reading: Reading) -> None:
    times = psutil.cpu_times()._asdict()
    reading.cpu_s = {name: float(value) for name, value in times.items() if name not in _TWICE}
    reading.levels["cpu_cores"] = float(psutil.cpu_count() or 1)
    reading.totals["context_switches"] = float(psutil.cpu_stats().ctx_switches)


def _read_memory(reading: Reading) -> None:
    memory = psutil.virtual_memory()
    reading.levels["mem_total_bytes"] = float(memory.total)
    reading.levels["mem_available_bytes"] = float(memory.available)
    reading.levels["mem_used_bytes"] = float(memory.total - memory.available)
    reading.levels["mem_used"] = (memory.total - memory.available) / memory.total
    swap = psutil.swap_memory()
    reading.levels["swap_used_bytes"] = float(swap.used)


def _read_load(reading: Reading) -> None:
    reading.levels["load1"], reading.levels["load5"], reading.levels["load15"] = os.getloadavg()


def _read_disk_traffic(reading: Reading) -> None:
    traffic = psutil.disk_io_counters()
    if traffic is None:
        raise NotImplementedError("the system reports no disks")
    reading.totals["disk_read_bytes"] = float(traffic.read_bytes)
    reading.totals["disk_written_bytes"] = float(traffic.write_bytes)
    reading.totals["disk_reads"] = float(traffic.read_count)
    reading.totals["disk_writes"] = float(traffic.write_count)


def _read_network(reading: Reading) -> None:
    # Loopback is not network traffic.
    cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if not name.startswith("lo")]
    reading.totals["net_in_bytes"] = float(sum(card.bytes_recv for card in cards))
    reading.totals["net_out_bytes"] = float(sum(card.bytes_sent for card in cards))
    reading.totals["net_in_packets"] = float(sum(card.packets_recv for card in cards))
    reading.totals["net_out_packets"] = float(sum(card.packets_sent for card in cards))
    reading.totals["net_errors"] = float(sum(card.errin + card.errout for card in cards))
    reading.totals["net_dropped"] = float(sum(card.dropin + card.dropout for card in cards))
