"""The end of a process that `multiprocessing` forked: `atexit` is not run there, so functions are registered here."""

import sys
from collections.abc import Callable


def run_at_end(function: Callable[[], object]) -> None:
    """Calls `function` when such a process ends; does nothing in any other."""
    # No import: a process that `multiprocessing` made has it already.
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, function, exitpriority=0)


def run_at_end_of_fork(function: Callable[[], object]) -> None:
    """The same right after a fork, when `multiprocessing` has yet to forget what the parent wanted to be called."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(function, run_at_end)
