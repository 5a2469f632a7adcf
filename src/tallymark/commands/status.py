"""`tallymark status`: is anything late or lost? One screen."""

import argparse
from typing import Any

from tallymark.client.transport import HttpTransport
from tallymark.commands.command import Command, CommandFailed
from tallymark.commands.output import cell, print_json, print_line
from tallymark.commands.service import add_url, ask, connect
from tallymark.events.tenants import MAIN
from tallymark.ledger import OUTCOMES

POSITIONS = ("end", "synced", "applied", "behind")
SHOWN_PARTITIONS = 4
WELL = "all is well"
TERMS = (*(term.name for term in OUTCOMES), "in_flight")


def _run(arguments: argparse.Namespace) -> int:
    transport = connect(arguments)
    status = ask(transport, "GET", "/v1/status")
    drops = _drops(_clients(transport))
    if drops:
        status = {**status, "healthy": False, "problems": [*(status.get("problems") or []), *drops]}
    if arguments.output == "json":
        print_json(status)
    else:
        for line in screen(status):
            print_line(line, _style(line))
    return 0 if status.get("healthy") else 1


def _clients(transport: HttpTransport) -> dict[str, Any]:
    """What the clients of the collector that answers say of themselves; nothing if it is a query node."""
    try:
        return ask(transport, "GET", "/v1/clients")
    except CommandFailed:
        return {}


def _drops(clients: dict[str, Any]) -> list[str]:
    """One line if clients dropped something lately: such events are lost, and no other figure shows them."""
    dropping = clients.get("dropping") or {}
    if not dropping.get("clients"):
        return []
    return [
        f"{dropping['clients']:,} clients dropped events within the last hour, {dropping['dropped']:,} in all:"
        " see GET /v1/clients"
    ]


def screen(status: dict[str, Any]) -> list[str]:
    """The verdict first, then the figures behind it."""
    meters = status.get("meters") or []
    lacking = _lacking(meters)
    well = f"{WELL}: nothing is late" + ("" if lacking else ", nothing is lost")
    lines = [*([f"! {problem}" for problem in status.get("problems") or []] or [well]), *lacking]
    lines += [f"  {warning}" for warning in status.get("warnings") or []]
    lines += ["", *_account(status), "", *_speed(status), *_positions(status), "", *_roles(status)]
    dead_letters = status.get("dead_letters") or []
    if dead_letters:
        lines += ["", "dead letters"]
        lines += [f"  {each['events']:>14,}  {each['hop']}: {each['reason']}{_whose(each)}" for each in dead_letters]
    return [*lines, *_tenants(status), "", *_meters(meters), *_dropped(meters), *_queries(status)]


def _whose(dead_letter: dict[str, Any]) -> str:
    tenant = dead_letter.get("tenant", MAIN)
    return "" if tenant == MAIN else f", tenant {tenant}"


def _tenants(status: dict[str, Any]) -> list[str]:
    """Whose events they are, if not all are of `main`."""
    found = status.get("tenants") or []
    return ["", "tenants", *(f"  {each['accepted']:>14,}  {each['name']}" for each in found)] if found else []


def _meters(meters: list[dict[str, Any]]) -> list[str]:
    """Those of `main` first, then a line for each other tenant."""
    names: dict[str, list[str]] = {MAIN: []}
    for meter in meters:
        names.setdefault(meter.get("tenant", MAIN), []).append(meter["name"])
    own = ", ".join(names.pop(MAIN)) or "none"
    return [f"meters    {own}", *(f"          {tenant}: {', '.join(names[tenant])}" for tenant in sorted(names))]


def _queries(status: dict[str, Any]) -> list[str]:
    found = status.get("queries") or {}
    if not found:
        return []
    behind_ms = found.get("behind_ms")
    state = f", {behind_ms / 1000:,.1f} s behind" if behind_ms else ", up to date"
    if behind_ms is None:  # what is complete is unknown, or none can be evaluated
        state = ""
    failing = f", {found['failing']:,} cannot be evaluated" if found.get("failing") else ""
    return [f"queries   {found['saved']:,} saved, {found['windows']:,} windows stored{state}{failing}"]


def _dropped(meters: list[dict[str, Any]]) -> list[str]:
    return [
        f"          {_named(each)} dropped {each['dropped_values']:,} numbers that no saved query selects"
        for each in meters
        if each.get("dropped_values")
    ]


def _style(line: str) -> str:
    return "red" if line.startswith(("!", "  MISSING")) else "green" if line.startswith(WELL) else ""


def _lacking(meters: list[dict[str, Any]]) -> list[str]:
    """What meters that count again missed before: nobody can mend it now, so it is no problem, but it is lost."""
    return [
        f"  {_named(each)} counts again, but lacks {each['missed']:,} events from when it was broken"
        for each in meters
        if each.get("missed") and not each.get("broken")
    ]


def _named(meter: dict[str, Any]) -> str:
    tenant = meter.get("tenant", MAIN)
    return f"meter {meter['name']}" + ("" if tenant == MAIN else f" of the tenant {tenant}")


def _account(status: dict[str, Any]) -> list[str]:
    """received = accepted + refused, accepted = the sum of its terms."""
    lines = [f"received  {_events(status, 'received')}", f"refused   {_events(status, 'refused')}"]
    lines.append(f"accepted  {_events(status, 'accepted')}")
    lines += [f"  {name.replace('_', ' '):<10}{_events(status, name)[2:]}" for name in TERMS]
    if status.get("missing"):
        lines.append(f"  MISSING   {_events(status, 'missing')[2:]}")
    return lines


def _events(status: dict[str, Any], name: str) -> str:
    return f"{cell(status.get(name)):>16}"


def _speed(status: dict[str, Any]) -> list[str]:
    lag = status.get("lag_ms") or {}
    figures = ", ".join(
        f"{name} {cell(lag[name])}" for name in ("p50", "p95", "p99", "highest") if lag.get(name) is not None
    )
    freshness = status.get("freshness") or {}
    return [
        f"rate      {cell(status.get('events_per_second'))} events/s",
        f"lag       {figures + ' ms from receipt to count' if figures else 'nothing was counted in the last minute'}",
        f"complete  through {freshness.get('complete_through') or 'unknown'}",
    ]


def _positions(status: dict[str, Any]) -> list[str]:
    """How far each partition has come, those furthest behind first where there are many."""
    found = status.get("positions") or []
    if not found:
        return []
    shown = sorted(found, key=lambda each: (-each["behind"], each["partition"]))[:SHOWN_PARTITIONS]
    shown.sort(key=lambda each: each["partition"])
    lines = ["", "partition " + "".join(f"{name:>14}" for name in POSITIONS)]
    lines += [f"{each['partition']:>9} " + "".join(f"{each[name]:>14,}" for name in POSITIONS) for each in shown]
    more = len(found) - len(shown)
    return [*lines, *([f"and {more:,} more, none further behind: see --output json"] if more else [])]


def _roles(status: dict[str, Any]) -> list[str]:
    found = status.get("roles") or []
    names = [f"{each['role']} {each['instance']}" if each.get("instance") else each["role"] for each in found]
    width = max([9, *map(len, names)])
    return [f"{name:<{width}} {_state(each)}" for name, each in zip(names, found, strict=True)]


def _state(each: dict[str, Any]) -> str:
    where = f" at {each['address']}" if each.get("address") else ""
    return f"{each['state']}{where}" + (", standing by" if (each.get("facts") or {}).get("standby") else "")


COMMANDS = {
    "status": Command(
        "status",
        "Is anything late or lost? The account of every event, the lag and the roles, on one screen.\n"
        "Exit code 1 if something needs a look.",
        "tallymark status",
        add_url,
        _run,
    )
}
