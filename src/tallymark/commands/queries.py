"""`tallymark queries`: questions that are saved, and whose windows are stored as they complete."""

import argparse
import sys
from typing import Any
from urllib.parse import quote

import msgspec

from tallymark.commands.command import Command, Group
from tallymark.commands.output import print_json, print_table
from tallymark.commands.query import pointed
from tallymark.commands.service import ServiceRefused, add_tenant, add_url, ask, connect


def _path(name: str) -> str:
    return f"/v1/queries/{quote(name, safe='')}"


def _list(arguments: argparse.Namespace) -> int:
    found = ask(connect(arguments), "GET", "/v1/queries").get("queries") or []
    if arguments.output == "json":
        print_json(found)
        return 0
    if not found:
        print("none is saved yet; save one: tallymark queries add views 'FROM * SELECT events WINDOW 1m'")
        return 0
    print_table(
        ("name", "window", "windows", "stored through", "state", "query"),
        [[each.get("name"), each.get("window"), *_stored(each), _state(each), each.get("q")] for each in found],
    )
    return 0


def _stored(query: dict[str, Any]) -> tuple[int, str]:
    stored = query.get("stored") or {}
    return stored.get("windows") or 0, stored.get("through") or ""


def _state(query: dict[str, Any]) -> str:
    if query.get("problem"):
        return str(query["problem"])
    behind_ms = query.get("behind_ms")
    if behind_ms is None:
        return "not evaluated yet"
    return "up to date" if not behind_ms else f"{behind_ms / 1000:,.1f} s behind"


def _add(arguments: argparse.Namespace) -> int:
    text = sys.stdin.read().strip() if arguments.text == ["-"] else " ".join(arguments.text)
    given = {"q": text, "title": arguments.title, "tz": arguments.tz}
    body = msgspec.json.encode({key: value for key, value in given.items() if value is not None})
    try:
        answer = ask(connect(arguments), "PUT", _path(arguments.name), body=body)
    except ServiceRefused as refused:
        position = refused.problem.get("position")
        if isinstance(position, int):
            refused.args = (f"{refused}\n{pointed(text, position)}",)
        raise
    if arguments.output == "json":
        print_json(answer)
    else:
        print(answer.get("note") or f"{arguments.name} is saved")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    query = ask(connect(arguments), "GET", _path(arguments.name))
    if arguments.output == "json":
        print_json(query)
        return 0
    windows, through = _stored(query)
    stored = f"{windows:,} windows, {query['stored']['from']} to {through}" if windows else "no window yet"
    rows = [
        [key, query.get(key) or ""] for key in ("name", "q", "title", "tz", "meter", "window", "created", "changed")
    ]
    print_table(["", ""], [*rows, ["stored", stored], ["state", _state(query)]])
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    answer = ask(connect(arguments), "DELETE", _path(arguments.name))
    if arguments.output == "json":
        print_json(answer)
    else:
        print(answer.get("note") or f"{arguments.name} is deleted")
    return 0


def _with_nothing(parser: argparse.ArgumentParser) -> None:
    add_tenant(parser)
    add_url(parser)


def _with_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _with_nothing(parser)


def _with_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("text", metavar="QUERY", nargs="+", help="FROM … WINDOW …, in quotes; - reads it from stdin")
    parser.add_argument("--title", metavar="TEXT", help="what pages call it")
    parser.add_argument("--tz", metavar="ZONE", help="time zone of windows of whole days: Europe/Vienna")
    _with_nothing(parser)


def _sub(name: str, summary: str, example: str, arguments: Any, run: Any) -> Command:
    return Command(f"queries {name}", summary, f"tallymark queries {example}", arguments, run)


COMMANDS = {
    "queries": Group(
        "queries",
        "Saved queries: each of their windows is stored once it is complete.",
        {
            "list": _sub("list", "every saved query, and how far it is stored", "list", _with_nothing, _list),
            "add": _sub(
                "add",
                "save a query, or change a saved one",
                "add slow 'FROM * SELECT latency WINDOW 1m COMPUTE p99 BY server'",
                _with_query,
                _add,
            ),
            "show": _sub("show", "one saved query", "show slow", _with_name, _show),
            "delete": _sub("delete", "delete a query and its stored windows", "delete slow", _with_name, _delete),
        },
    )
}
