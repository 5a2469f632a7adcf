"""The terminal of `tallymark up`: few, calm lines; progress only where a person watches.

Without rich: its live display hides the cursor, which a killed supervisor would not give back, and redraws from a
thread, which fails when the terminal is closed, while the service goes on.
"""

import sys
from typing import TextIO


class Console:
    """Lines stay, progress is written over."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._watched = self._stream.isatty()
        self._progress = ""

    def say(self, line: str) -> None:
        self._write(("\r\x1b[K" if self._progress else "") + line + "\n")
        self._progress = ""

    def progress(self, line: str) -> None:
        if self._watched and line != self._progress:
            self._write(f"\r\x1b[K{line}")
            self._progress = line

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the terminal was closed; the service goes on
