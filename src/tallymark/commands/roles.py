"""`tallymark collector`, `pipeline`, `keeper`, `query`: one role each, in the foreground."""

import argparse
import importlib
from functools import partial

from tallymark.commands.command import Command, CommandFailed
from tallymark.commands.configuration import add_settings, read_settings

SERVES = ("collector", "query")


def _arguments(parser: argparse.ArgumentParser, *, role: str) -> None:
    add_settings(parser, address=role in SERVES)


def _run(arguments: argparse.Namespace, *, role: str) -> int:
    settings = read_settings(arguments, section=role)
    from tallymark.log.protocol import LogError

    service = importlib.import_module(f"tallymark.{role}.service")
    try:
        return int(service.run(settings))
    except LogError as error:
        raise CommandFailed(str(error)) from error


def _command(role: str, summary: str) -> Command:
    port = " --port 8080" if role == "collector" else ""
    example = f"tallymark {role} --data /var/lib/tallymark{port}"
    return Command(role, summary, example, partial(_arguments, role=role), partial(_run, role=role))


COMMANDS = {
    "collector": _command("collector", "Take events in over HTTP and make them durable in the log."),
    "pipeline": _command("pipeline", "Count what is in the log, on Spark."),
    "keeper": _command("keeper", "Fold the counts into points and roll them up to hours and days."),
    "query": _command("query", "Answer questions about the counts over HTTP."),
}
