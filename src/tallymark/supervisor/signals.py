"""Signals as something one can wait for, without the dangers of doing work inside a handler."""

import os
import select
import signal
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """`with Signals() as signals: signals.wait(seconds)`: returns early when a child ends or somebody asks to stop."""

    def __init__(self) -> None:
        self.stop_requests = 0
        self._read, self._write = -1, -1
        self._old: dict[int, object] = {}
        self._old_fd = -1

    def __enter__(self) -> "Signals":
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # `nohup tallymark up` ignores the terminal's end on purpose.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._count)
        self._old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> None:
        ready, _, _ = select.select([self._read], [], [], max(0.0, seconds))
        if ready:
            os.read(self._read, 4096)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.stop_requests += 1
