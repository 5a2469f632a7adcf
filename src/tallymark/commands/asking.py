"""What the commands that ask have in common: their arguments, and how the question gets to the service."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from tallymark.client.transport import HttpTransport
from tallymark.commands import watching
from tallymark.commands.answers import OUTPUTS, Form, show
from tallymark.commands.command import WrongUsage, pairs
from tallymark.commands.service import ServiceRefused, add_tenant, add_url, ask, connect
from tallymark.reader import answers

Parameters = Sequence[tuple[str, Any]]

WATCHED_S = 10.0
"""an answer that takes longer than this counts as none while somebody watches"""


def add_question(parser: argparse.ArgumentParser) -> None:
    """What total, series and top have in common."""
    parser.add_argument("meter", metavar="METER", help="`events` counts every event by its name")
    parser.add_argument(
        "where", metavar="key=value", nargs="*", default=[], help="only series with this label; repeat for `or`"
    )
    parser.add_argument("--from", dest="start", metavar="T", help="RFC 3339, epoch milliseconds or relative (-1h)")
    parser.add_argument("--to", dest="end", metavar="T", help="up to but not including")
    parser.add_argument("--with", dest="added", metavar="T.COLUMN", help="columns of tables beside each --by key")
    parser.add_argument("--fn", metavar="FN", help="which functions: count, avg, p99 … (or several: avg,p99)")
    parser.add_argument("--compare", metavar="1d", help="beside an earlier range: previous, 1d, 1w, 1mo …")
    parser.add_argument("--late", choices=("without", "only", "with"), help="late events that a meter put aside")
    parser.add_argument("--tz", metavar="ZONE", help="time zone of days, months and bare dates: Europe/Vienna")


def add_answer(parser: argparse.ArgumentParser) -> None:
    """How the answer is shown, and who is asked."""
    parser.add_argument("--chart", action="store_true", help="draw it: lines over time, else bars")
    watching.add_watch(parser)
    parser.add_argument(
        "--consistency",
        choices=("fresh", "cached", "stale"),
        help="fresh: none but the number of now; stale: the last known one if need be (the newest there is)",
    )
    parser.add_argument("--output", choices=OUTPUTS, default="table", help="for people or for programs")
    add_tenant(parser)
    add_url(parser)


def run(arguments: argparse.Namespace, kind: str, parameters: Parameters) -> int:
    """Ask about a meter and show the answer, again and again with --watch."""
    where = [(f"label.{key}", value) for key, value in pairs(arguments.where, example="video=A")]
    range_ = [("from", arguments.start), ("to", arguments.end), ("fn", arguments.fn), ("with", arguments.added)]
    rest = [("compare", arguments.compare), ("late", arguments.late), ("tz", arguments.tz)]
    path = f"/v1/meters/{quote(arguments.meter, safe='')}/{kind}"
    return run_path(arguments, path, [*where, *range_, *parameters, *rest], ranked=kind == "top")


def run_path(arguments: argparse.Namespace, path: str, parameters: Parameters, *, ranked: bool = False) -> int:
    if arguments.chart and arguments.output != "table":
        raise WrongUsage(f"--chart is for people, --output {arguments.output} for programs: choose one")
    transport = connect(arguments)
    given = [(name, value) for name, value in parameters if value is not None]
    asked = partial(_asked, transport, path, given, arguments.consistency, WATCHED_S if arguments.watch else 30.0)
    form = Form(
        arguments.output,
        draw=arguments.chart,
        draw_every=getattr(arguments, "fn", "") is not None,
        ranked=ranked,
        compact=arguments.watch,
    )
    return watching.run(arguments, lambda: show(asked(), form))


def _asked(
    transport: HttpTransport, path: str, given: Parameters, consistency: str | None, timeout_s: float
) -> dict[str, Any]:
    """Who types a command wants the number of now, not the one that somebody else has just been given.

    But a number that is behind, and says so, is better than none.
    """
    get = partial(ask, transport, "GET", timeout_s=timeout_s, decode=lambda answer: answers.decode(answer.body))
    try:
        return get(f"{path}?{urlencode([*given, ('consistency', consistency or 'fresh')])}")
    except ServiceRefused as refused:
        if consistency is not None or refused.code != "not_fresh":
            raise
    return get(f"{path}?{urlencode(given)}")
