"""`tallymark top`: the largest series of a meter."""

import argparse

from tallymark.commands import asking
from tallymark.commands.command import Command
from tallymark.commands.total import add_window


def _arguments(parser: argparse.ArgumentParser) -> None:
    asking.add_question(parser)
    parser.add_argument(
        "--by",
        metavar="KEY",
        help="rank the values of this label, or of a column of a table: videos.channel (or several: a,b)",
    )
    parser.add_argument("-k", type=int, metavar="10", help="how many")
    parser.add_argument(
        "--rank", choices=("value", "growth"), help="growth: by the difference from the range before, or --compare"
    )
    add_window(parser)
    asking.add_answer(parser)


def _run(arguments: argparse.Namespace) -> int:
    names = ("by", "k", "rank", "window", "over")
    return asking.run(arguments, "top", [(name, getattr(arguments, name)) for name in names])


COMMANDS = {
    "top": Command(
        "top",
        "The largest series of a meter; by default over the last hour.",
        "tallymark top views --by video -k 10 --from -1d --with videos.title\n"
        "tallymark top views --by video --rank growth --chart",
        _arguments,
        _run,
    )
}
