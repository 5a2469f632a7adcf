"""`--watch`: the same again every few seconds, in place on a terminal, one after the other in a pipe."""

import argparse
import io
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from tallymark.commands.command import WrongUsage
from tallymark.commands.service import Away

# The other screen of a terminal, as editors use it: what was there before comes back at the end.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="ask again and again, until Ctrl-C")
    parser.add_argument("--every", type=float, metavar="S", default=2.0, help="seconds between two questions (2)")


def run(arguments: argparse.Namespace, show: Callable[[], None]) -> int:
    """`show` asks and prints: once, or with --watch until somebody stops it."""
    if not arguments.watch:
        show()
        return 0
    if not 0.1 <= arguments.every <= 86_400:
        raise WrongUsage(f"--every is {arguments.every:g}; use seconds from 0.1 to 86,400")
    is_screen = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    _watch(show, arguments.every, _Screen() if is_screen else _Roll())
    return 0


class _Roll:
    """A pipe or a file: every answer is appended."""

    def draw(self, text: str, trouble: str) -> None:
        if trouble:
            print(trouble, file=sys.stderr)
        else:
            print(text, end="" if text.endswith("}\n") else "\n", flush=True)

    def close(self) -> None:
        pass


class _Screen:
    """A terminal: every answer replaces the one before, and the last one stays when it is over."""

    def __init__(self) -> None:
        self._last = ""
        sys.stdout.write(_ENTER)

    def draw(self, text: str, trouble: str) -> None:
        self._last = text or self._last
        head = trouble or f"{time.strftime('%H:%M:%S')}  Ctrl-C ends"
        lines = [head, "", *self._last.splitlines()]
        room = shutil.get_terminal_size().lines - 1
        if len(lines) > room:
            lines = [*lines[: room - 1], f"… {len(lines) - room + 1} more lines: make the window larger"]
        whole = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
        sys.stdout.write(f"{_HOME}{whole}{_REST}")
        sys.stdout.flush()

    def close(self) -> None:
        sys.stdout.write(f"{_LEAVE}{self._last}")
        sys.stdout.flush()


def _watch(show: Callable[[], None], every_s: float, screen: _Screen | _Roll) -> None:
    is_first = True
    try:
        while True:
            began = time.monotonic()
            try:
                text, trouble = _captured(show), ""
            except Away as error:
                # Somebody restarts the service: the numbers stay on the screen until there are new ones.
                if is_first:
                    raise
                text, trouble = "", f"{time.strftime('%H:%M:%S')}  {str(error).partition(';')[0]}; trying again"
            screen.draw(text, trouble)
            is_first = False
            time.sleep(max(0.0, began + every_s - time.monotonic()))
    except KeyboardInterrupt:
        pass
    finally:
        screen.close()


def _captured(show: Callable[[], None]) -> str:
    captured = _Captured(sys.stdout.isatty())
    with redirect_stdout(captured), redirect_stderr(captured):
        show()
    return captured.getvalue()


class _Captured(io.StringIO):
    """What is printed, decorated as if it went to the terminal directly."""

    def __init__(self, is_a_terminal: bool) -> None:
        super().__init__()
        self._is_a_terminal = is_a_terminal

    def isatty(self) -> bool:
        return self._is_a_terminal
