"""What a command says on stderr while it works, if a person watches."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tallymark.commands.output import is_decorated

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """A bar if there is a total, else a spinner; it appears with the first words and is gone when the block ends."""

    def __init__(self, what: str = "", *, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._is_watched = is_decorated(sys.stderr)
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        if self._what:
            self.report(self._what)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, what: str, done: int | None = None) -> None:
        if self._is_watched:
            self._bar = self._bar or self._started(what)
            self._bar.update(self._bar.task_ids[0], description=what, completed=done, refresh=True)

    def _started(self, what: str) -> "Bar":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), text) if self._total is None else (text, BarColumn(), TimeRemainingColumn())
        # A bar moves when there is news. Only a spinner needs the thread that redraws it, ten times a second.
        bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=self._total is None)
        bar.add_task(what, total=self._total)
        bar.start()
        return bar
