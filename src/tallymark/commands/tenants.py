"""`tallymark tenants`: whose events and meters there are."""

import argparse

from tallymark.commands.command import Command
from tallymark.commands.output import print_json, print_table
from tallymark.commands.service import add_url, ask, connect


def _run(arguments: argparse.Namespace) -> int:
    tenants = ask(connect(arguments), "GET", "/v1/tenants").get("tenants") or []
    if arguments.output == "json":
        print_json(tenants)
        return 0
    columns = ("name", "events", "meters")
    print_table(columns, [[each.get(name) for name in columns] for each in tenants])
    return 0


COMMANDS = {
    "tenants": Command(
        "tenants",
        "Every tenant with its events and its number of meters, the built-in ones included.\n"
        "One whose every event was refused has neither: see `tallymark dlq list --tenant NAME`.",
        "tallymark tenants",
        add_url,
        _run,
    )
}
