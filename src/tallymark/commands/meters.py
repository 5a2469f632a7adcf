"""`tallymark meters`: what is counted."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from tallymark.client.transport import HttpTransport
from tallymark.commands.command import Command, CommandFailed, Group, WrongUsage, pairs
from tallymark.commands.output import print_json, print_table
from tallymark.commands.service import ServiceRefused, add_tenant, add_url, ask, connect
from tallymark.meters.function_names import EXAMPLES


def read_file(path: Path) -> list[Any]:
    """The meters of a YAML file; every flaw is printed with its line, then the command fails."""
    from tallymark.meters import MeterError
    from tallymark.meters.file import load

    try:
        return list(load(path))
    except MeterError as error:
        raise _failed(error.flaws, str(path)) from None


def _failed(flaws: Sequence[Any], where: str) -> CommandFailed:
    """One flaw is the error; several are printed first."""
    if len(flaws) == 1:
        return CommandFailed(str(flaws[0]))
    for flaw in flaws:
        print(flaw, file=sys.stderr)
    return CommandFailed(f"{len(flaws)} mistakes in {where}; nothing was changed")


def put(transport: HttpTransport, definition: dict[str, Any]) -> dict[str, Any]:
    return ask(transport, "PUT", _path(definition["name"]), body=msgspec.json.encode(definition))


def _path(name: str) -> str:
    return f"/v1/meters/{quote(name, safe='')}"


def _list(arguments: argparse.Namespace) -> int:
    meters = ask(connect(arguments), "GET", "/v1/meters").get("meters", [])
    if arguments.output == "json":
        print_json(meters)
        return 0
    columns = ("name", "event", "by", "compute", "version", "state")
    rows = [
        [meter["name"], _words(meter.get("event")), _words(meter.get("by")), _words(meter.get("compute")),
         meter.get("version"), _state(meter)]
        for meter in meters
    ]  # fmt: skip
    print_table(columns, rows)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    meter = ask(connect(arguments), "GET", _path(arguments.name))
    if arguments.output == "json":
        print_json(meter)
    else:
        print_table(
            ["", ""],
            [
                [key, value if isinstance(value, str) else _words(value, _UNKNOWN_MOMENT.get(key, ""))]
                for key, value in meter.items()
            ],
        )
    return 0


def _add(arguments: argparse.Namespace) -> int:
    from tallymark.meters import MeterError, from_mapping

    definition = _definition(arguments)
    try:
        from_mapping(definition)  # the service would say the same, but in one line
    except MeterError as error:
        raise _failed(error.flaws, f"the definition of {arguments.name}") from None
    answer = put(connect(arguments), definition)
    if arguments.output == "json":
        print_json(answer)
    else:
        print(answer.get("note") or f"{arguments.name} counts from now on")
    return 0


def _definition(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as a definition, unchecked."""
    if arguments.event is None and arguments.weights is None:
        raise WrongUsage("which event does it count? Add --event E, or --weights (see `tallymark meters add --help`)")
    definition: dict[str, Any] = {"name": arguments.name}
    for key in ("event", "by", "compute"):
        if given := getattr(arguments, key):
            definition[key] = [word.strip() for word in given.split(",")]
    for key in ("value", "each", "keep", "where", "decimals", "distinct", "grain", "max_series"):
        if (given := getattr(arguments, key)) is not None:
            definition[key] = given
    if arguments.weights is not None:
        definition["weights"] = _weights(arguments.weights)
    late = {"after": arguments.late_after, "then": arguments.late_then}
    if given := {key: value for key, value in late.items() if value is not None}:
        definition["late"] = given
    return definition


def _weights(text: str) -> dict[str, Any]:
    """`view=1,like=3`; what is no number stays text, for the definition to refuse."""
    weights: dict[str, Any] = {}
    for event, number in pairs(text.split(","), example="view=1,like=3"):
        if event.strip() in weights:
            raise WrongUsage(f"--weights has {event.strip()!r} twice")
        weights[event.strip()] = _number(number.strip())
    return weights


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check(arguments: argparse.Namespace) -> int:
    meters = read_file(arguments.file)
    if arguments.output == "json":
        print_json({"file": str(arguments.file), "meters": [meter.name for meter in meters]})
    else:
        print(f"{arguments.file}: {len(meters)} meters, all valid")
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    return _show_plan(arguments, _planned(arguments, connect(arguments)))


def _apply(arguments: argparse.Namespace) -> int:
    from tallymark.meters import to_mapping

    transport = connect(arguments)
    planned = _planned(arguments, transport)
    for meter in (*planned.added, *(change.after for change in planned.changed)):
        put(transport, to_mapping(meter))
    return _show_plan(arguments, planned, done=True)


def _planned(arguments: argparse.Namespace, transport: HttpTransport) -> Any:
    from tallymark.meters import MeterError, from_mapping, plan
    from tallymark.meters.definition import KEYS
    from tallymark.meters.model import BUILT_IN

    wanted = read_file(arguments.file)
    current, registered = [], _registered(transport)
    for found in registered:
        try:
            current.append(from_mapping({key: found[key] for key in KEYS if found.get(key) is not None}))
        except MeterError as error:
            raise CommandFailed(f"the service's meter {found.get('name')} cannot be read here: {error}") from error
    try:
        built_in = {found["name"] for found in registered if found.get("built_in")} if registered else set(BUILT_IN)
        return plan(current, wanted, built_in=built_in)
    except MeterError as error:
        raise CommandFailed(f"{error}; nothing was changed") from None


def _registered(transport: HttpTransport) -> list[dict[str, Any]]:
    """The tenant's meters; none if it does not exist yet: its first meter makes it."""
    try:
        return list(ask(transport, "GET", "/v1/meters").get("meters", []))
    except ServiceRefused as error:
        if error.code != "unknown_tenant":
            raise
        return []


def _show_plan(arguments: argparse.Namespace, planned: Any, *, done: bool = False) -> int:
    if arguments.output == "json":
        print_json(
            {
                "added": [meter.name for meter in planned.added],
                "changed": [change.after.name for change in planned.changed],
                "unchanged": [meter.name for meter in planned.unchanged],
                "not_in_file": [meter.name for meter in planned.missing],
                "applied": done,
            }
        )
        return 0
    for meter in planned.added:
        print(f"+ {meter.name}: {'counts' if done else 'would count'} from now on")
    for change in planned.changed:
        differences = "; ".join(map(str, change.differences))
        print(f"~ {change.after.name}: {differences}: {'a' if done else 'would be a'} new version {_effect(change)}")
    for meter in planned.missing:
        print(f"  {meter.name}: not in the file, kept (`tallymark meters delete {meter.name}` removes it)")
    if not planned.added and not planned.changed:
        print(f"nothing to change; {len(planned.unchanged)} meters match the file")
    return 0


def _effect(change: Any) -> str:
    if not change.keeps_numbers:
        return "that counts from now on"
    new = change.newly_computed
    return "that keeps its numbers" + (f", with {' and '.join(new)} of what is counted from now on" if new else "")


def _delete(arguments: argparse.Namespace) -> int:
    answer = ask(connect(arguments), "DELETE", _path(arguments.name))
    if arguments.output == "json":
        print_json(answer or {"deleted": arguments.name})
    else:
        print(f"{arguments.name} no longer counts")
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    answer = ask(connect(arguments), "POST", f"{_path(arguments.name)}/resume")
    if arguments.output == "json":
        print_json(answer)
    else:
        print(answer.get("note") or f"{arguments.name} counts again")
    return 0


def _later(arguments: argparse.Namespace) -> int:
    raise CommandFailed(
        "not in this version: backfill and recount come with the archive; a meter counts from when it was added"
    )


def _state(meter: dict[str, Any]) -> str:
    missed = f", missed {meter['missed']:,} events" if meter.get("missed") else ""
    return (f"broken: {meter['broken']}" if meter.get("broken") else "counting") + missed


_UNKNOWN_MOMENT = {"since": "later than the others", "kept": "from the beginning"}


def _words(value: Any, missing: str = "") -> str:
    if isinstance(value, dict):  # `since`, `kept`, `weights`, `late`
        return ", ".join(f"{key} {missing if each is None else each}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _with_nothing(parser: argparse.ArgumentParser) -> None:
    add_tenant(parser)
    add_url(parser)


def _with_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    add_tenant(parser)
    add_url(parser)


def _with_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="YAML with a list `meters:`")
    add_tenant(parser)
    add_url(parser)


def _with_definition(parser: argparse.ArgumentParser) -> None:
    _with_name(parser)
    parser.add_argument("--event", metavar="E", help="event to count, or several: sale,refund")
    parser.add_argument("--by", metavar="a,b", help="properties that become labels")
    parser.add_argument("--compute", metavar="count,sum", help=f"{', '.join(EXAMPLES)} … (count)")
    parser.add_argument("--value", metavar="PROP", help="property that holds the number (the event's own value)")
    parser.add_argument(
        "--each", choices=("values",), help="count every named number of the event, with the label `metric`"
    )
    parser.add_argument(
        "--keep",
        choices=("all", "queried"),
        help="with --each: store all metrics, or those that saved queries select (all)",
    )
    parser.add_argument("--where", metavar="EXPR", help="only events for which this holds: \"status = 'ok'\"")
    parser.add_argument("--decimals", type=int, metavar="N", help="exact sums with this many decimals, for money")
    parser.add_argument("--distinct", metavar="PROP", help="count the different values of this property")
    parser.add_argument("--grain", metavar="1m", help="the finest step that is kept: 1s, 10s or 1m (1m)")
    parser.add_argument(
        "--weights", metavar="view=1,like=3", help="what each event counts as; --event can then be left out"
    )
    parser.add_argument("--late-after", metavar="1h", help="an event received this long after its time is late")
    parser.add_argument("--late-then", metavar="count", help="what becomes of late events: count, aside or drop")
    parser.add_argument("--max-series", type=int, metavar="N", help="count new series beyond this many as __other__")


def _sub(name: str, summary: str, example: str, arguments: Any, run: Any) -> Command:
    return Command(f"meters {name}", summary, f"tallymark meters {example}", arguments, run)


COMMANDS = {
    "meters": Group(
        "meters",
        "What is counted.",
        {
            "list": _sub("list", "every meter", "list", _with_nothing, _list),
            "show": _sub("show", "one meter", "show views", _with_name, _show),
            "add": _sub(
                "add", "add or change a meter", "add views --event view --by video,country", _with_definition, _add
            ),
            "check": _sub("check", "check that a file is valid", "check meters.yaml", _with_file, _check),
            "plan": _sub("plan", "show what applying a file would change", "plan meters.yaml", _with_file, _plan),
            "apply": _sub("apply", "make the meters match a file", "apply meters.yaml", _with_file, _apply),
            "delete": _sub("delete", "stop counting a meter", "delete views", _with_name, _delete),
            "resume": _sub("resume", "let a broken meter count again", "resume views", _with_name, _resume),
            "backfill": _sub("backfill", "(later) count the past too", "backfill views", _with_name, _later),
            "recount": _sub("recount", "(later) count again from the archive", "recount views", _with_name, _later),
        },
    )
}
