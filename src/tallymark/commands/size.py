"""`tallymark size`: how many partitions, brokers and tasks a load needs."""

import argparse
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from tallymark.commands.command import Command, WrongUsage
from tallymark.commands.output import print_json, print_table

LEAST, MOST = 1e-15, 1e15
"""of any number: beyond what anybody has, and all that is reckoned from such numbers still fits into a float"""
THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class Kind:
    """What is counted: its usual size, and what was measured of ours. Machines differ: run the benchmark on yours."""

    unit: str
    plain_bytes: float
    """as it is usually reckoned: a value is a time and a number, an event is a line of JSON"""
    framed_bytes: float
    """in our log"""
    per_task: int
    """counted by one task per second of CPU"""
    source: str


VALUES = Kind("values", 16, 7.8, 8_430_000, "docs/benchmarks.md, counting snapshots of 2,000 values")
EVENTS = Kind("events", 187, 90, 398_571, "docs/benchmarks.md, pipeline with three meters")


@dataclass(frozen=True)
class Brokers:
    """What carries so many bytes a second, each copy of a partition on a broker of its own."""

    bytes_each: float
    mb_per_second: float
    partitions: int
    brokers: int
    mb_per_second_each: float
    fits: bool


def brokers(rate: float, bytes_each: float, *, broker_mb: float, replicas: int, partitions: int | None) -> Brokers:
    """As many partitions as a broker's rate asks for, or as many as were named; MB are millions of bytes."""
    mb = rate * bytes_each / 1e6
    cut = partitions or max(1, math.ceil(mb / broker_mb))
    return Brokers(bytes_each, mb, cut, cut * replicas, mb / cut, mb / cut <= broker_mb)


@dataclass(frozen=True)
class Tasks:
    """What counts so many a second: one task a partition, so no more tasks than partitions."""

    least: int
    per_second_each: int
    partitions: int
    busy_share: float
    source: str


def tasks(rate: float, kind: Kind, *, carried: int, partitions: int | None) -> Tasks:
    """Over the partitions that carry the bytes, or more if counting needs them; over those that were named, if so."""
    least = max(1, math.ceil(rate / kind.per_task))
    cut = partitions or max(least, carried)
    return Tasks(least, kind.per_task, cut, rate / cut / kind.per_task, kind.source)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--servers", type=_whole, metavar="N", help="machines that send a snapshot of --metrics numbers"
    )
    parser.add_argument("--metrics", type=_whole, metavar="M", help="numbers in a snapshot")
    parser.add_argument("--every", type=_positive, metavar="S", help="seconds between snapshots (1)")
    parser.add_argument("--events-per-second", type=_positive, metavar="N", help="plain events, instead of servers")
    parser.add_argument(
        "--bytes",
        type=_positive,
        metavar="B",
        help="size of a value (16) or an event (187), instead of measured frames",
    )
    parser.add_argument("--broker-mb", type=_positive, default=100.0, metavar="MB", help="MB/s a broker takes (100)")
    parser.add_argument("--replicas", type=_whole, default=3, metavar="R", help="copies of each partition (3)")
    parser.add_argument(
        "--partitions", type=_whole, metavar="P", help="what this many would carry, instead of working it out"
    )


def _run(arguments: argparse.Namespace) -> int:
    kind, rate = _demand(arguments)
    rule: dict[str, Any] = {
        "broker_mb": arguments.broker_mb,
        "replicas": arguments.replicas,
        "partitions": arguments.partitions,
    }
    asked = brokers(rate, arguments.bytes or kind.plain_bytes, **rule)
    # Frames were measured with the usual size: what they make of another one nobody has measured.
    framed = None if arguments.bytes else brokers(rate, kind.framed_bytes, **rule)
    carried = framed or asked
    counting = tasks(rate, kind, carried=carried.partitions, partitions=arguments.partitions)
    if arguments.output == "json":
        limits = {"broker_mb_per_second": arguments.broker_mb, "replicas": arguments.replicas}
        print_json(
            {f"{kind.unit}_per_second": rate, **limits, "as_asked": asdict(asked),
             "as_frames": framed and asdict(framed), "tasks": asdict(counting)}
        )  # fmt: skip
        return 0
    print(f"{rate:,.0f} {kind.unit}/s\n")
    rows = [_row(f"at {asked.bytes_each:g} bytes", asked, arguments)]
    if framed:
        rows.append(_row(f"in Tallymark's frames, {framed.bytes_each:g} bytes measured", framed, arguments))
    print_table(["", "MB/s", "partitions", "x replicas = brokers", "MB/s each"], rows)
    print(f"\n{_sentence(counting, carried, kind)}")
    return 0


def _demand(arguments: argparse.Namespace) -> tuple[Kind, float]:
    """What is counted, and how many a second."""
    snapshots = arguments.servers is not None or arguments.metrics is not None
    if snapshots == (arguments.events_per_second is not None):
        raise WrongUsage("give --servers N --metrics M for snapshots of numbers, or --events-per-second N for events")
    if not snapshots:
        if arguments.every is not None:
            raise WrongUsage("--every is for snapshots (--servers, --metrics); leave it out with --events-per-second")
        return EVENTS, arguments.events_per_second
    if arguments.servers is None or arguments.metrics is None:
        missing = "--servers" if arguments.servers is None else "--metrics"
        raise WrongUsage(f"{missing} is missing: values a second are --servers x --metrics / --every")
    return VALUES, arguments.servers * arguments.metrics / (arguments.every or 1.0)


def _row(name: str, found: Brokers, arguments: argparse.Namespace) -> list[object]:
    over = "" if found.fits else f", over {arguments.broker_mb:g}"
    carried = f"{found.mb_per_second_each:,.4g}{over}"
    return [
        name,
        f"{found.mb_per_second:,.4g}",
        found.partitions,
        f"x {arguments.replicas} = {found.brokers:,}",
        carried,
    ]


def _sentence(found: Tasks, carried: Brokers, kind: Kind) -> str:
    why = ""
    if found.partitions < found.least:
        why = f": too few, at least {found.least:,} are needed"
    elif found.partitions > carried.partitions:
        why = f"; so log.partitions = {found.partitions:,}, although the bytes need only {carried.partitions:,}"
    return (
        f"tasks: at least {found.least:,}, at {found.per_second_each:,} {kind.unit} per CPU-second each\n"
        f"       one a partition, so {found.partitions:,}, each {found.busy_share:.0%} busy{why}\n"
        f"       ({found.source}; measure yours with `make bench`)"
    )


def _whole(text: str) -> int:
    number = _number(text)
    if not number.is_integer() or number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(number)


def _positive(text: str) -> float:
    number = _number(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    if number < LEAST:
        raise argparse.ArgumentTypeError(f"{text} is less than {LEAST:g}, the minimum")
    return number


def _number(text: str) -> float:
    plain = text.replace(",", "") if THOUSANDS.fullmatch(text) else text
    try:
        number = float(plain)
    except ValueError:
        way_out = ": commas separate thousands, as in 1,000,000" if "," in text else ""
        raise argparse.ArgumentTypeError(f"{text!r} is not a number{way_out}") from None
    if number > MOST:
        raise argparse.ArgumentTypeError(f"{text} is more than {MOST:g}, the maximum")
    return number


COMMANDS = {
    "size": Command(
        "size",
        "How many partitions, brokers and tasks a load needs: bytes a second over what a broker takes, times the\n"
        "copies; and tasks by our own measured rate. It only calculates and contacts no server.",
        "tallymark size --servers 10000 --metrics 2000\ntallymark size --events-per-second 100000 --bytes 200",
        _arguments,
        _run,
    )
}
