"""`tallymark query`: asks in the query language; without a query, the role that answers."""

import argparse
import sys

from tallymark.commands import asking, roles
from tallymark.commands.command import Command, WrongUsage
from tallymark.commands.output import harmless
from tallymark.commands.service import ServiceRefused

SHOWN = 100
"""characters of a query around the position of an error"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text", metavar="QUERY", nargs="*", default=[], help="FROM … SELECT …, in quotes; - reads it from stdin"
    )
    parser.add_argument("--tz", metavar="ZONE", help="time zone of days, months and bare dates: Europe/Vienna")
    asking.add_answer(parser)
    # Two things have this name: the question, and the role that answers it.
    roles.add_role_arguments(parser.add_argument_group("without QUERY: run the role"), "query")


def _run(arguments: argparse.Namespace) -> int:
    of_role = [f"--{name}" for name in ("data", "profile", "set", "host", "port") if getattr(arguments, name)]
    of_question = [
        f"--{name}" for name in ("chart", "watch", "consistency", "tenant", "tz", "url") if getattr(arguments, name)
    ]
    if not arguments.text:
        if of_question:
            raise WrongUsage(f"{of_question[0]} is for a question, but there is none; {_EXAMPLE}")
        if sys.stdin.isatty() and sys.stderr.isatty():
            print(f"running the role that answers questions; {_EXAMPLE}", file=sys.stderr)
        return roles.run_role(arguments, role="query")
    if of_role:
        raise WrongUsage(f"{of_role[0]} is for running the role, which takes no query; say where it runs with --url")
    return _ask(arguments, _text(arguments.text))


_EXAMPLE = "to ask, write for example `tallymark query 'FROM * SELECT events WINDOW 1m'`"


def _text(words: list[str]) -> str:
    if words == ["-"]:
        return sys.stdin.read().strip()
    return " ".join(words)


def _ask(arguments: argparse.Namespace, text: str) -> int:
    try:
        return asking.run_path(arguments, "/v1/query", [("q", text), ("tz", arguments.tz)])
    except ServiceRefused as refused:
        position = refused.problem.get("position")
        if isinstance(position, int):
            refused.args = (f"{refused}\n{pointed(text, position)}",)
        raise


def pointed(text: str, position: int) -> str:
    """The line of the query around the position, and a caret under it."""
    position = max(0, min(position, len(text)))
    begin = text.rfind("\n", 0, position) + 1
    line = text[begin:].partition("\n")[0].replace("\t", " ")
    first = max(0, position - begin - SHOWN // 2)
    before, after = ("…" if first else ""), ("…" if len(line) > first + SHOWN else "")
    place = len(before) + len(harmless(line[first : position - begin]))
    return f"  {before}{harmless(line[first : first + SHOWN])}{after}\n  {'':{place}}^"


COMMANDS = {
    "query": Command(
        "query",
        "Ask in the query language: tables, charts, again and again with --watch.\n"
        "Without a query: run the role that answers questions over HTTP.",
        "tallymark query 'FROM web-1, web-2 SELECT latency WINDOW 1m COMPUTE avg, percentile(99)' --chart --watch\n"
        "tallymark query --data /var/lib/tallymark",
        _arguments,
        _run,
    )
}
