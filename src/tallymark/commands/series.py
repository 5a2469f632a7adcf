"""`tallymark series`: a meter over time."""

import argparse

from tallymark.commands.command import Command, pairs
from tallymark.commands.freshness import footnote
from tallymark.commands.output import print_json, print_table
from tallymark.commands.service import ask, connect, filters, question
from tallymark.commands.total import add_question


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_question(parser)
    parser.add_argument("--step", metavar="1m", help="width of a bucket: 1m, 5m, 1h, 1d …")
    parser.add_argument("--by", metavar="KEY", help="one series for each value of this label (or several: a,b)")


def _run(arguments: argparse.Namespace) -> int:
    where = filters(pairs(arguments.where, example="video=A"))
    rest = [("from", arguments.start), ("to", arguments.end), ("step", arguments.step), ("by", arguments.by)]
    answer = ask(connect(arguments), "GET", question(arguments.meter, "series", [*where, *rest]))
    if arguments.output == "json":
        print_json(answer)
        return 0
    series = answer.get("series") or []
    labels = list(dict.fromkeys(name for part in series for name in part.get("labels", {})))
    values = list(
        dict.fromkeys(name for part in series for point in part["points"] for name in point if name != "time")
    )
    rows = [
        [
            point["time"],
            *(part.get("labels", {}).get(name, "") for name in labels),
            *(point.get(name) for name in values),
        ]
        for part in series
        for point in part["points"]
    ]
    print_table(["time", *labels, *values], rows)
    footnote(answer)
    return 0


COMMANDS = {
    "series": Command(
        "series",
        "A meter over time; by default the last hour by minute.",
        "tallymark series views video=A --from -1d --step 1h --by country",
        _arguments,
        _run,
    )
}
