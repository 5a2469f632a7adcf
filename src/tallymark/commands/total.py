"""`tallymark total`: one number of a meter."""

import argparse

from tallymark.commands import asking
from tallymark.commands.command import Command


def add_window(parser: argparse.ArgumentParser) -> None:
    """That of total and top: it slides."""
    parser.add_argument("--window", metavar="10m", help="the greatest number of any window of this length")
    parser.add_argument("--over", choices=("max", "min", "avg"), help="with --window: the greatest, least or average")


def _arguments(parser: argparse.ArgumentParser) -> None:
    asking.add_question(parser)
    parser.add_argument("--by", metavar="KEY", help="a row for each value of this label (or several: a,b)")
    add_window(parser)
    asking.add_answer(parser)


def _run(arguments: argparse.Namespace) -> int:
    return asking.run(
        arguments, "total", [("by", arguments.by), ("window", arguments.window), ("over", arguments.over)]
    )


COMMANDS = {
    "total": Command(
        "total",
        "A meter as one number: over all time, or from --from to --to.",
        "tallymark total events event=view\n"
        "tallymark total views video=A video=B --by video --from -1h --compare previous\n"
        "tallymark total uses card=c1 --from -1d --window 10m",
        _arguments,
        _run,
    )
}
