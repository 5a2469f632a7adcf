"""`tallymark dlq`: what could not be counted, why, and the events themselves."""

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote, urlencode

from tallymark.commands.command import Command, Group
from tallymark.commands.output import cell, harmless, print_json, print_table
from tallymark.commands.service import add_tenant, add_url, ask, connect

DETAIL_CHARS = 100
LAYOUT = "\n\t"
"""controls of a letter's text that are shown as they are"""
LOOKED_AT = (
    "(with Cassandra: none among the newest 10,000 letters of all tenants or 64 MB; older ones are not searched)"
)
MOST_NAMED = 10


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", action="append", metavar="R", help="only letters with this reason; repeat for `or`")
    parser.add_argument(
        "--hop", choices=("collector", "pipeline"), help="refused on arrival, or accepted but not counted"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="how many (100; at most 1,000), newest first")
    add_tenant(parser)
    add_url(parser)


def _list(arguments: argparse.Namespace) -> int:
    asked = [("hop", arguments.hop), ("limit", arguments.limit), *(("reason", each) for each in arguments.reason or ())]
    given = [(name, value) for name, value in asked if value is not None]
    answer = ask(connect(arguments), "GET", "/v1/dlq" + (f"?{urlencode(given)}" if given else ""))
    if arguments.output == "json":
        print_json(answer)
        return 0
    counts, others = answer.get("counts") or [], answer.get("others") or {}
    if counts:
        _print_letters(counts, answer.get("letters") or [])
    else:
        print("no dead letters" + (" of this kind" if arguments.reason or arguments.hop else ""))
    if others:
        print(_elsewhere(others, more=bool(counts)))
    return 0


def _elsewhere(others: dict[str, int], *, more: bool) -> str:
    """Letters that this list lacks because other tenants have them; only `main`, the operator's, is told."""
    events = sum(others.values())
    belong, whose = "belongs" if events == 1 else "belong", "another tenant" if len(others) == 1 else "other tenants"
    names = ", ".join([*list(others)[:MOST_NAMED], *(["…"] if len(others) > MOST_NAMED else [])])
    return f"{events:,}{' more' if more else ''} {belong} to {whose}: {names}"


def _print_letters(counts: list[dict[str, Any]], dead_letters: list[dict[str, Any]]) -> None:
    print_table(
        ["events", "hop", "reason", "last"],
        [[each["events"], each["hop"], each["reason"], each["last"]] for each in counts],
    )
    print()
    if not dead_letters:
        print("none of them are kept: the oldest are deleted beyond log.dead_bytes")
        print(LOOKED_AT)
        return
    print_table(
        ["id", "time", "hop", "reason", "events", "detail"],
        # No thousands apart in an id: it is typed again.
        [[str(each["id"]), *(each[name] for name in ("time", "hop", "reason", "events")), _short(each["detail"])]
         for each in dead_letters],
    )  # fmt: skip


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the letter's number in `dlq list`")
    parser.add_argument("--limit", type=int, metavar="N", help="how many of its events (100; at most 1,000)")
    add_tenant(parser)
    add_url(parser)


def _show(arguments: argparse.Namespace) -> int:
    """The events alone go to stdout, one a line, so that they can be kept in a file; the rest goes to stderr.

    Controls are escaped, which inside a JSON text means the same; `--output json` has everything as it was sent.
    """
    limit = "" if arguments.limit is None else f"?limit={arguments.limit}"
    letter = ask(connect(arguments), "GET", f"/v1/dlq/{quote(arguments.id, safe='')}{limit}")
    if arguments.output == "json":
        print_json(letter)
        return 0
    place = f", partition {letter['partition']} offset {letter['offset']}" if "offset" in letter else ""
    events = "event" if letter["events"] == 1 else "events"
    print(
        f"{letter['hop']}: {letter['reason']}, {cell(letter['events'])} {events}, {letter['time']}{place}\n"
        f"{harmless(letter['detail'], keep=LAYOUT)}",
        file=sys.stderr,
        flush=True,
    )
    for line in _content(letter):
        print(harmless(line, keep=LAYOUT))
    sys.stdout.flush()
    for remark in _remarks(letter):
        print(harmless(remark, keep=LAYOUT), file=sys.stderr)
    return 0


def _content(letter: dict[str, Any]) -> list[str]:
    if "text" in letter:
        return [letter["text"]]
    if "hex" in letter:
        text = letter["hex"]
        return [text[start : start + 64] for start in range(0, len(text), 64)]
    return [json.dumps(row, ensure_ascii=False) for row in letter.get("rows") or []]


def _remarks(letter: dict[str, Any]) -> list[str]:
    said = [letter["note"]] if letter.get("note") else []
    if letter.get("left_out"):
        said.append(f"and {letter['left_out']:,} more events; --limit shows up to 1,000")
    if letter.get("left_out_bytes"):
        said.append(f"and {letter['left_out_bytes']:,} more bytes")
    return said


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= DETAIL_CHARS else f"{line[:DETAIL_CHARS]}…"


COMMANDS = {
    "dlq": Group(
        "dlq",
        "Dead letters: events that were refused, or accepted but could not be counted.",
        {
            "list": Command(
                "dlq list",
                "How many events for each reason, and the letters that are kept, newest first.",
                "tallymark dlq list --hop collector --reason bad_time --reason too_old",
                _list_arguments,
                _list,
            ),
            "show": Command(
                "dlq show",
                "One dead letter: its reason and its events, one per line, as far as they are kept.",
                "tallymark dlq show 17",
                _show_arguments,
                _show,
            ),
        },
    )
}
