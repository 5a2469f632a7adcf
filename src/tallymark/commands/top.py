"""`tallymark top`: the largest series of a meter."""

import argparse

from tallymark.aggregates.functions import NAMES
from tallymark.commands.command import Command, pairs
from tallymark.commands.freshness import footnote
from tallymark.commands.output import print_json, print_table
from tallymark.commands.service import ask, connect, filters, question
from tallymark.commands.total import add_question


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser)
    parser.add_argument("--by", metavar="KEY", help="rank the values of this label (or several: a,b)")
    parser.add_argument("-k", type=int, metavar="10", help="how many")
    parser.add_argument("--fn", metavar="count", help=f"rank by this: {', '.join(NAMES)}")


def _run(arguments: argparse.Namespace) -> int:
    where = filters(pairs(arguments.where, example="video=A"))
    range_ = [("from", arguments.start), ("to", arguments.end)]
    rest = [*range_, ("by", arguments.by), ("k", arguments.k), ("fn", arguments.fn)]
    answer = ask(connect(arguments), "GET", question(arguments.meter, "top", [*where, *rest]))
    if arguments.output == "json":
        print_json(answer)
        return 0
    items = answer.get("items") or []
    labels = list(dict.fromkeys(name for item in items for name in item["labels"]))
    values = list(dict.fromkeys(name for item in items for name in item["value"]))
    rows = [
        [place, *(item["labels"].get(name, "") for name in labels), *(item["value"].get(name) for name in values)]
        for place, item in enumerate(items, 1)
    ]
    print_table(["", *labels, *values], rows)
    footnote(answer)
    return 0


COMMANDS = {
    "top": Command(
        "top",
        "The largest series of a meter; by default over the last hour.",
        "tallymark top views --by video -k 10 --from -1d",
        _arguments,
        _run,
    )
}
