"""`tallymark collector`, `pipeline`, `keeper`, and `query` without a query: one role each, in the foreground."""

import argparse
import importlib
from functools import partial

from tallymark.commands.command import Command, CommandFailed
from tallymark.commands.configuration import add_settings, read_settings
from tallymark.role import RoleBusy

SERVES = ("collector", "query")


def add_role_arguments(parser: argparse._ActionsContainer, role: str) -> None:
    add_settings(parser, address=role in SERVES)
    if role == "pipeline":
        parser.add_argument(
            "--skip-lost",
            action="store_true",
            help="if retention deleted records before they were counted, continue with the first one left; what is"
            " lost is recorded as a dead letter",
        )


def run_role(arguments: argparse.Namespace, *, role: str) -> int:
    settings = read_settings(arguments, section=role)
    from tallymark.log.protocol import LogError
    from tallymark.store.protocol import StoreError
    from tallymark.store.sqlite.failures import FileError

    service = importlib.import_module(f"tallymark.{role}.service")
    try:
        if role == "pipeline":
            return int(service.run(settings, skip_lost=arguments.skip_lost))
        return int(service.run(settings))
    except (LogError, StoreError, RoleBusy) as error:
        raise CommandFailed(str(error)) from error
    except (OSError, FileError) as error:
        raise CommandFailed(
            f"cannot work in the data folder {settings.folder}: {error}; fix that, or choose another with --data"
        ) from error


def _command(role: str, summary: str) -> Command:
    port = " --port 8080" if role == "collector" else ""
    example = f"tallymark {role} --data /var/lib/tallymark{port}"
    return Command(role, summary, example, partial(add_role_arguments, role=role), partial(run_role, role=role))


COMMANDS = {
    "collector": _command("collector", "Accept events over HTTP and make them durable in the log."),
    "pipeline": _command("pipeline", "Count what is in the log, on Spark."),
    "keeper": _command("keeper", "Fold the counts into points and roll them up to hours and days."),
}
