"""`tallymark tables`: names and attributes of keys."""

import argparse
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tallymark.client.transport import NoAnswer, Request
from tallymark.commands.command import Command, CommandFailed, Group, WrongUsage
from tallymark.commands.output import harmless, print_json, print_table
from tallymark.commands.progress import Progress
from tallymark.commands.service import ServiceRefused, add_tenant, add_url, ask, connect, unreachable
from tallymark.http import MOST_TABLE_BYTES

# Longer than the collector waits for the query service.
TIMEOUT_S = 90.0
MOST_SHOWN = 1_000
TYPES = {"json": "application/json", "ndjson": "application/x-ndjson", "csv": "text/csv"}
SUFFIXES = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}


def _path(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='')}"


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_tenant(parser)
    add_url(parser)


def _list(arguments: argparse.Namespace) -> int:
    tables = ask(connect(arguments), "GET", "/v1/tables").get("tables", [])
    if arguments.output == "json":
        print_json(tables)
    elif not tables:
        print("no tables yet; make one from a file: tallymark tables put videos videos.csv --key video")
    else:
        columns = [", ".join(f"{name} ({type_})" for name, type_ in table["columns"].items()) for table in tables]
        rows = [[table["name"], table["key"], table["rows"], table["changed"]] for table in tables]
        print_table(
            ["name", "key", "rows", "changed", "columns"],
            [[*row, each] for row, each in zip(rows, columns, strict=True)],
        )
    return 0


def _upload_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the table")
    parser.add_argument("file", metavar="FILE", help="CSV, JSON or NDJSON; - is stdin")
    parser.add_argument("--format", choices=tuple(TYPES), help="of the file (as its name ends)")
    add_tenant(parser)
    add_url(parser)


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key", metavar="COLUMN", help="the column by which rows are found (as it is, if there is one)"
    )
    _upload_arguments(parser)


def _put(arguments: argparse.Namespace) -> int:
    key = "" if arguments.key is None else f"?{urlencode({'key': arguments.key})}"
    return _upload(arguments, "PUT", _path(arguments.name) + key)


def _patch(arguments: argparse.Namespace) -> int:
    return _upload(arguments, "PATCH", _path(arguments.name))


def _upload(arguments: argparse.Namespace, method: str, path: str) -> int:
    content, form = _content(arguments.file), arguments.format or _form(arguments.file)
    if len(content) > MOST_TABLE_BYTES:
        # The service refuses it before it has read it, and then there is often no answer to be read.
        limit = f"{len(content):,} bytes exceed {MOST_TABLE_BYTES:,}, the most that can be sent at once"
        raise CommandFailed(f"{arguments.file}: {limit}; put a part of it, then patch the rest")
    transport = connect(arguments)
    headers = {"content-type": TYPES[form]}
    with Progress(f"sending {len(content):,} bytes …" if len(content) > 100_000 else ""):
        try:
            answer = transport.exchange(Request(method, path, content, headers), timeout_s=TIMEOUT_S)
        except NoAnswer as error:
            raise unreachable(error) from error
    if answer.status >= 400:
        raise _refused(ServiceRefused(answer), arguments.file)
    done = answer.json()
    if not isinstance(done, dict):
        raise CommandFailed(f"unexpected answer of {transport.url}{path}; is this really Tallymark? Check --url")
    if arguments.output == "json":
        print_json(done)
        return 0
    counts = ", ".join(f"{done[name]:,} {name}" for name in ("added", "changed", "unchanged", "deleted") if done[name])
    print(f"{done['name']}: {done['rows']:,} rows ({counts or 'nothing changed'})")
    if done.get("note"):
        print(done["note"])
    return 0


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror or error}") from None


def _form(file: str) -> str:
    suffix = Path(file).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise WrongUsage(f"is {file} CSV, JSON or NDJSON? Add --format, or use a name that ends with {known}")
    return SUFFIXES[suffix]


def _refused(refused: ServiceRefused, file: str) -> CommandFailed:
    """Every mistake on a line of its own, if there are several."""
    errors = refused.problem.get("errors") or []
    if len(errors) < 2:
        return refused
    for each in errors:
        print(harmless(f"{file}: {each['detail']}"), file=sys.stderr)
    return CommandFailed(f"mistakes in {file}; nothing was changed")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the table")
    parser.add_argument("key", metavar="KEY", nargs="?", help="one row with its history")
    parser.add_argument("--search", metavar="TEXT", help="only rows with this in their key or a value")
    parser.add_argument("--at", metavar="T", help="as it was at a moment: RFC 3339 or relative (-1d)")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help=f"how many rows (20; at most {MOST_SHOWN:,})"
    )
    add_tenant(parser)
    add_url(parser)


def _show(arguments: argparse.Namespace) -> int:
    transport, path = connect(arguments), _path(arguments.name)
    table = ask(transport, "GET", path)
    more = None
    if arguments.key is not None:
        rows = ask(transport, "GET", f"{path}/rows/{quote(arguments.key, safe='')}")["history"]
    else:
        asked = {"search": arguments.search, "at": arguments.at, "limit": arguments.limit}
        given = urlencode({name: value for name, value in asked.items() if value is not None})
        answer = ask(transport, "GET", f"{path}/rows?{given}")
        rows, more = answer["rows"], answer["next"]
    if arguments.output == "json":
        print_json({**table, "shown": rows})
        return 0
    names = list(table["columns"])
    print_table([table["key"], *names, "from"], [_line(row, names) for row in rows])
    if more is not None:
        print(f"and more of {table['rows']:,} rows; --limit shows up to {MOST_SHOWN:,}, --search finds some")
    return 0


def _line(row: dict[str, Any], names: list[str]) -> list[Any]:
    since = row["from"] or "always"
    values = [row["columns"].get(name) for name in names]
    return [row["key"], *values, f"{since} (ended)" if row.get("deleted") else since]


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the table")
    add_tenant(parser)
    add_url(parser)


def _delete(arguments: argparse.Namespace) -> int:
    answer = ask(connect(arguments), "DELETE", _path(arguments.name))
    if arguments.output == "json":
        print_json(answer)
    else:
        print(f"{arguments.name} is deleted, with its history")
    return 0


COMMANDS = {
    "tables": Group(
        "tables",
        "Tables: names and attributes of keys, which questions show and group by.",
        {
            "list": Command(
                "tables list",
                "Every table with its key, its columns and how many rows it has.",
                "tallymark tables list",
                _list_arguments,
                _list,
            ),
            "put": Command(
                "tables put",
                "The whole table, from a file; what held before stays in its history.",
                "tallymark tables put videos videos.csv --key video",
                _put_arguments,
                _put,
            ),
            "patch": Command(
                "tables patch",
                "Add, change or end (`deleted`) rows of a table, from a file.",
                "tallymark tables patch videos renamed.ndjson",
                _upload_arguments,
                _patch,
            ),
            "show": Command(
                "tables show",
                "Rows of a table, or one row with its history.",
                "tallymark tables show videos --search alpha",
                _show_arguments,
                _show,
            ),
            "delete": Command(
                "tables delete",
                "Delete a table with its history.",
                "tallymark tables delete videos",
                _delete_arguments,
                _delete,
            ),
        },
    )
}
