"""`tallymark send`: events from the command line or from a file."""

import argparse
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tallymark.commands.command import Command, CommandFailed, WrongUsage, pairs
from tallymark.commands.delivery import Batch, Delivery, Refused
from tallymark.commands.output import print_json
from tallymark.commands.progress import Progress
from tallymark.commands.service import add_tenant, add_url, connect

BATCH_EVENTS = 1_000
BATCH_BYTES = 1_000_000
SHOWN_REASONS = 10


@dataclass
class _Tally:
    accepted: int = 0
    rejected: int = 0
    applied: bool = True
    errors: list[dict[str, Any]] = field(default_factory=list)

    def refuse(self, refused: Refused) -> None:
        self.rejected += 1
        if len(self.errors) < SHOWN_REASONS:
            self.errors.append(msgspec.to_builtins(refused))


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("event", metavar="EVENT", nargs="?", help="name of the event")
    parser.add_argument(
        "props",
        metavar="key=value",
        nargs="*",
        default=[],
        help="properties; 3 and true are sent as such, the rest as text",
    )
    parser.add_argument("--value", type=float, metavar="N", help="the event's number")
    parser.add_argument("--id", help="an event sent again with the same id counts once (generated if not given)")
    parser.add_argument("--time", metavar="T", help="when it happened: RFC 3339 or epoch milliseconds (now)")
    parser.add_argument(
        "--file", metavar="F.ndjson", help="send a file of events, one JSON object per line; - is stdin"
    )
    parser.add_argument("--wait", action="store_true", help="wait until the events are in the counts")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S", help="how long to retry and wait (30)")
    add_tenant(parser)
    add_url(parser)


def _run(arguments: argparse.Namespace) -> int:
    if (arguments.event is None) == (arguments.file is None):
        raise WrongUsage("name an event, or a file with --file; for example: tallymark send view video=A")
    single = (arguments.value, arguments.id, arguments.time)
    if arguments.file is not None and any(given is not None for given in single):
        raise WrongUsage("--value, --id and --time are for a single event; in a file each line has its own")
    delivery = Delivery(connect(arguments), wait=arguments.wait, timeout_s=arguments.timeout)
    tally = _Tally()
    batches = _batches(_lines(arguments.file), tally) if arguments.file is not None else [_one(arguments)]
    with Progress() as progress:
        for batch in batches:
            outcome = delivery.send(batch)
            tally.accepted += outcome.accepted
            tally.applied &= outcome.applied
            for refused in outcome.refused:
                tally.refuse(refused)
            if arguments.file is not None:
                progress.report(f"{tally.accepted:,} accepted, {tally.rejected:,} rejected")
    return _report(arguments, tally)


def _one(arguments: argparse.Namespace) -> Batch:
    event: dict[str, Any] = {
        "event": arguments.event,
        "id": arguments.id or uuid.uuid4().hex,
        "time": _number(arguments.time) if arguments.time else time.time_ns() // 1_000_000,
    }
    if arguments.value is not None:
        event["value"] = int(arguments.value) if arguments.value.is_integer() else arguments.value
    if props := {key: _literal(value) for key, value in pairs(arguments.props, example="video=A")}:
        event["props"] = props
    return Batch([msgspec.json.encode(event)], [0])


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _literal(text: str) -> Any:
    """Numbers and booleans as such if nothing is lost by it: 3 is a number, 007 and 1e3 are text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            if str(kind(text)) == text and text not in ("nan", "inf", "-inf"):
                return kind(text)
        except ValueError:
            continue
    return text


def _lines(name: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not empty."""
    try:
        with sys.stdin.buffer if name == "-" else Path(name).open("rb") as file:
            for number, line in enumerate(file, 1):
                if stripped := line.strip():
                    yield number, stripped
    except OSError as error:
        raise CommandFailed(f"cannot read {name}: {error.strerror}") from error


def _batches(lines: Iterator[tuple[int, bytes]], tally: _Tally) -> Iterator[Batch]:
    """Full batches; a line that is no JSON object is refused here, so that it cannot spoil its neighbours."""
    batch, size = Batch(), 0
    for number, line in lines:
        try:
            msgspec.json.decode(line, type=dict)
        except msgspec.MsgspecError as error:
            tally.refuse(Refused(number, "bad_json", str(error)))
            continue
        if batch.events and (len(batch.events) >= BATCH_EVENTS or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = Batch(), 0
        batch.events.append(line)
        batch.places.append(number)
        size += len(line)
    if batch.events:
        yield batch


def _report(arguments: argparse.Namespace, tally: _Tally) -> int:
    if arguments.output == "json":
        facts: dict[str, Any] = {"accepted": tally.accepted, "rejected": tally.rejected, "errors": tally.errors}
        print_json({**facts, "applied": tally.applied} if arguments.wait else facts)
    else:
        counted = ", counted" if arguments.wait and tally.applied and tally.accepted else ""
        print(f"{tally.accepted:,} accepted{counted}" + (f", {tally.rejected:,} rejected" if tally.rejected else ""))
        for error in tally.errors:
            place = f"line {error['place']}: " if error["place"] else ""
            print(f"{place}{error['code']}: {error['detail']}", file=sys.stderr)
        if tally.rejected > len(tally.errors):
            print(f"and {tally.rejected - len(tally.errors):,} more", file=sys.stderr)
    if arguments.wait and tally.accepted and not tally.applied:
        raise CommandFailed(
            f"accepted, but not in the counts after {arguments.timeout:g} s; `tallymark status` shows what is late"
        )
    return 1 if tally.rejected else 0


COMMANDS = {
    "send": Command(
        "send",
        "Send one event, or a file of events. Accepted means durable; a retry cannot count twice.",
        "tallymark send view video=A country=KR --wait\n"
        "tallymark send sale --value 9.99 country=DE --id order-17\n"
        "tallymark send --file events.ndjson",
        _arguments,
        _run,
    )
}
