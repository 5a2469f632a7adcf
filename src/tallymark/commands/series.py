"""`tallymark series`: a meter over time."""

import argparse

from tallymark.commands import asking
from tallymark.commands.command import Command


def _arguments(parser: argparse.ArgumentParser) -> None:
    asking.add_question(parser)
    parser.add_argument("--step", metavar="1m", help="width of a bucket: 1m, 5m, 1h, 1d …")
    parser.add_argument("--window", metavar="5m", help="windows of this length, one for each step")
    parser.add_argument("--by", metavar="KEY", help="one series for each value of this label (or several: a,b)")
    parser.add_argument("--limit", type=int, metavar="N", help="the largest series only")
    asking.add_answer(parser)


def _run(arguments: argparse.Namespace) -> int:
    names = ("step", "window", "by", "limit")
    return asking.run(arguments, "series", [(name, getattr(arguments, name)) for name in names])


COMMANDS = {
    "series": Command(
        "series",
        "A meter over time; by default the last hour by minute.",
        "tallymark series views video=A --from -1d --step 1h --by country\n"
        "tallymark series latency --fn avg,p99 --window 5m --chart --watch",
        _arguments,
        _run,
    )
}
