"""Settings as the commands of the service get them: file, environment, flags."""

import argparse
from pathlib import Path
from typing import Any

from tallymark.commands.command import WrongUsage, pairs
from tallymark.settings import Settings, SettingsError, load


def add_settings(parser: argparse._ActionsContainer, *, address: bool = False) -> None:
    parser.add_argument("--data", metavar="DIR", help="folder of the log, the store and the log files")
    parser.add_argument("--profile", metavar="FILE", type=Path, help="settings file (tallymark.toml if there is one)")
    parser.add_argument(
        "--set", metavar="key=value", action="append", default=[], help="any setting, for example log.partitions=4"
    )
    if address:
        parser.add_argument("--host", help="address to serve on")
        parser.add_argument("--port", type=int, help="port to serve on")


def read_settings(arguments: argparse.Namespace, *, section: str = "collector") -> Settings:
    """The settings in force; --host and --port belong to `section`. Wrong ones are wrong usage."""
    flags: dict[str, Any] = dict(pairs(arguments.set, example="log.partitions=4"))
    flags["data"] = arguments.data or flags.get("data")
    for name in ("host", "port"):
        if getattr(arguments, name, None) is not None:
            flags[f"{section}.{name}"] = getattr(arguments, name)
    try:
        return load(arguments.profile, flags=flags)
    except SettingsError as error:
        raise WrongUsage(str(error)) from error


def as_flags(arguments: argparse.Namespace, settings: Settings) -> list[str]:
    """The flags by which a child process gets the same settings, wherever its working folder is."""
    flags = ["--data", str(settings.folder.absolute())]
    if arguments.profile is not None:
        flags += ["--profile", str(arguments.profile.absolute())]
    for pair in arguments.set:
        flags += ["--set", pair]
    return flags
