"""`tallymark settings`: every setting with its value, origin and meaning."""

import argparse
import re
from dataclasses import replace

from tallymark.commands.command import Command
from tallymark.commands.configuration import add_settings, read_settings
from tallymark.commands.output import print_json, print_table
from tallymark.settings import entries

HIDDEN = "********"
_SECRET = re.compile(r"password|secret|token|credential", re.IGNORECASE)
# Of options for Kafka and Spark rather too many: `ssl.key.pem` is a private key, and nobody needs to read a path here.
_SECRET_OPTION = re.compile(r"password|secret|key|pem|jaas|token|credential", re.IGNORECASE)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_settings(parser, address=True)


def _run(arguments: argparse.Namespace) -> int:
    table = [replace(row, value=without_secrets(row.key, row.value)) for row in entries(read_settings(arguments))]
    if arguments.output == "json":
        print_json(
            [
                {
                    "key": row.key,
                    "value": row.value,
                    "default": row.default,
                    "origin": row.origin,
                    "meaning": row.meaning,
                }
                for row in table
            ]
        )
        return 0
    print_table([""] * 4, [[row.key, _toml(row.value), row.origin, row.meaning] for row in table])
    return 0


def without_secrets(key: str, value: object) -> object:
    """The value as it may be shown: passwords, and options of Kafka and Spark that are secrets, are hidden."""
    if isinstance(value, list):
        return [_masked(key, word) if isinstance(word, str) else word for word in value]
    return HIDDEN if value and _SECRET.search(key) else value


def _masked(key: str, word: str) -> str:
    name, equals, _ = word.partition("=")
    if not equals:
        # An option without a value is none: it may be what follows the comma in a password.
        return HIDDEN if key.endswith("_options") else word
    return f"{name}={HIDDEN}" if _SECRET_OPTION.search(name) else word


def _toml(value: object) -> str:
    """As one would write it in tallymark.toml."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value)


COMMANDS = {
    "settings": Command(
        "settings",
        "Every setting with its value, its origin and its meaning. A file tallymark.toml (or --profile),\n"
        "then variables (collector.port is TALLYMARK_COLLECTOR_PORT), then flags.",
        "tallymark settings --set log.partitions=4",
        _arguments,
        _run,
    )
}
