"""`tallymark total`: one number of a meter."""

import argparse

from tallymark.commands.command import Command, pairs
from tallymark.commands.freshness import footnote
from tallymark.commands.output import print_json, print_table
from tallymark.commands.service import add_tenant, add_url, ask, connect, filters, question


def add_question(parser: argparse.ArgumentParser) -> None:
    """What total, series and top have in common."""
    parser.add_argument("meter", metavar="METER", help="`events` counts every event by its name")
    parser.add_argument(
        "where", metavar="key=value", nargs="*", default=[], help="only series with this label; repeat for `or`"
    )
    parser.add_argument("--from", dest="start", metavar="T", help="RFC 3339, epoch milliseconds or relative (-1h)")
    parser.add_argument("--to", dest="end", metavar="T", help="up to but not including")
    add_tenant(parser)
    add_url(parser)


def _run(arguments: argparse.Namespace) -> int:
    where = filters(pairs(arguments.where, example="video=A"))
    path = question(arguments.meter, "total", [*where, ("from", arguments.start), ("to", arguments.end)])
    answer = ask(connect(arguments), "GET", path)
    if arguments.output == "json":
        print_json(answer)
        return 0
    values = answer.get("value") or {}
    print_table(list(values), [list(values.values())])
    footnote(answer)
    return 0


COMMANDS = {
    "total": Command(
        "total",
        "A meter as one number: over all time, or from --from to --to.",
        "tallymark total events event=view\ntallymark total views video=A video=B --from -1h",
        add_question,
        _run,
    )
}
