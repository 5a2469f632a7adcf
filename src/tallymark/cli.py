"""The command line: finds the command, runs it, and says in one line what went wrong."""

import importlib
import os
import sys
from collections.abc import Sequence

from tallymark import __version__
from tallymark.commands.command import Command, CommandFailed, Group, WrongUsage
from tallymark.settings import SettingsError
from tallymark.suggest import suggest

INTERRUPTED = 130

# name -> (module, what it does). The modules are imported when asked for, so that `tallymark send` starts in
# milliseconds and a bare install needs nothing of the roles.
COMMANDS = {
    "up": ("up", "run everything on this machine"),
    "status": ("status", "is anything late or lost?"),
    "send": ("send", "send events"),
    "total": ("total", "a meter as one number"),
    "series": ("series", "a meter over time"),
    "top": ("top", "the largest series of a meter"),
    "query": ("query", "ask in the query language; without a query, run the role that answers questions"),
    "queries": ("queries", "saved queries, whose windows are stored: list, add, show, delete"),
    "tail": ("tail", "events as they pass"),
    "meters": ("meters", "what is counted: list, show, add, check, plan, apply, resume, delete"),
    "tables": ("tables", "names and attributes of keys: list, put, patch, show, delete"),
    "dlq": ("dlq", "dead letters, the events that were not counted and why: list, show"),
    "tenants": ("tenants", "whose events and meters there are"),
    "agent": ("agent", "send this machine's figures and its applications' metrics every second"),
    "load": ("load", "send reproducible load, then check the counts to the unit"),
    "size": ("size", "work out how many partitions, brokers and tasks a load needs"),
    "doctor": ("doctor", "check this machine and say how to fix what is missing"),
    "settings": ("settings", "every setting with its value, origin and meaning"),
    "version": ("version", "the version of Tallymark and of what it runs on"),
    "collector": ("roles", "run the role that accepts events"),
    "pipeline": ("roles", "run the role that counts them (Spark)"),
    "keeper": ("roles", "run the role that folds and rolls up"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 for ok, 1 for failed, 2 for wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            code = _run(arguments)
            sys.stdout.flush()
            return code
        except (WrongUsage, SettingsError) as error:
            return _complain(arguments, str(error), 2)
        except CommandFailed as error:
            return _complain(arguments, str(error), 1)
        except ModuleNotFoundError as error:
            return _complain(arguments, _missing_package(error), 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough (`tallymark top … | head`). Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help(), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"tallymark {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        hint = suggest(name, COMMANDS, form="`tallymark {}`", otherwise="see `tallymark`")
        raise WrongUsage(f"no {what} {name}{hint}")
    found = importlib.import_module(f"tallymark.commands.{COMMANDS[name][0]}").COMMANDS[name]
    assert isinstance(found, Command | Group)
    return found.call(rest)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return (
        "Tallymark counts and aggregates events in real time, and can prove its numbers.\n\n"
        "usage: tallymark COMMAND [options]\n\n" + "\n".join(lines) + "\n\n"
        "Start with `tallymark up`; then, in another terminal:\n\n"
        "  tallymark send view video=A --wait\n"
        "  tallymark total events event=view\n\n"
        "See `tallymark COMMAND --help` for more. Commands that talk to a running Tallymark use --url or\n"
        "TALLYMARK_URL (http://127.0.0.1:8080 if unset), --tenant or TALLYMARK_TENANT (main), and TALLYMARK_KEY.\n"
    )


def _complain(arguments: list[str], message: str, code: int) -> int:
    command = f" {arguments[0]}" if arguments and arguments[0] in COMMANDS else ""
    print(f"tallymark{command}: {message}", file=sys.stderr)
    return code


def _missing_package(error: ModuleNotFoundError) -> str:
    name = (error.name or "").partition(".")[0]
    if name == "tallymark":
        raise error  # not an extra that somebody left out, but a mistake of ours
    return f'this needs the package {name}, which is not installed; pip install "tallymark[all]"'
