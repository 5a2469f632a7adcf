"""Figures of the processes that were asked for by name."""

from collections.abc import Sequence

import psutil

RELOOK_READINGS = 60
"""a process seen between its fork and its exec still has its parent's name, so all are looked at anew now and then"""


class Processes:
    """Knows which process has which name; only new ones are asked for theirs, which is the expensive part."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._known: dict[int, tuple[str, psutil.Process] | None] = {}
        self._gone_cpu_s = dict.fromkeys(names, 0.0)
        self._cpu_s: dict[int, float] = {}
        self._readings = 0

    def read(self, pids: Sequence[int], levels: dict[str, float], totals: dict[str, float]) -> None:
        if not self._names:
            return
        self._look_at(pids)
        counts = dict.fromkeys(self._names, 0)
        memory = dict.fromkeys(self._names, 0)
        cpu_s = dict(self._gone_cpu_s)
        for pid, known in list(self._known.items()):
            if known is None:
                continue
            name, process = known
            is_gone = False
            try:
                if not process.is_running():  # gone, or its number is another's by now
                    is_gone = True
                    raise psutil.NoSuchProcess(pid)
                with process.oneshot():
                    times, resident = process.cpu_times(), process.memory_info().rss
            except psutil.Error:
                # Its CPU time stays in the sum; otherwise the sum would shrink and the next second have no figure.
                self._gone_cpu_s[name] += self._cpu_s.get(pid, 0.0)
                cpu_s[name] += self._cpu_s.pop(pid, 0.0)
                if is_gone:
                    del self._known[pid]
                else:
                    self._known[pid] = None
                continue
            self._cpu_s[pid] = times.user + times.system
            cpu_s[name] += self._cpu_s[pid]
            counts[name] += 1
            memory[name] += resident
        for name in self._names:
            label = f'{{name="{name}"}}'
            levels[f"process_count{label}"] = float(counts[name])
            if counts[name]:
                levels[f"process_mem_bytes{label}"] = float(memory[name])
                totals[f"process_cpu{label}"] = cpu_s[name]

    def _look_at(self, pids: Sequence[int]) -> None:
        if self._readings % RELOOK_READINGS == 0:
            self._known = {pid: known for pid, known in self._known.items() if known is not None}
        self._readings += 1
        present = set(pids)
        for pid in [pid for pid, known in self._known.items() if known is None and pid not in present]:
            del self._known[pid]
        for pid in present - self._known.keys():
            self._known[pid] = self._named(pid)

    def _named(self, pid: int) -> tuple[str, psutil.Process] | None:
        try:
            process = psutil.Process(pid)
            name = process.name()
        except psutil.Error:
            return None
        return (name, process) if name in self._names else None
