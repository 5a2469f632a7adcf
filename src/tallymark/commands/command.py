"""What a command is, and how its arguments are read."""

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from tallymark.suggest import suggest


class CommandFailed(Exception):
    """It did not work (exit code 1): what, with which value, and the way out."""


class WrongUsage(Exception):
    """It was asked for in a way that cannot work (exit code 2)."""


@dataclass(frozen=True)
class Command:
    """One command: what it does, an example, its arguments, and the function that does it and returns the exit code."""

    name: str
    summary: str
    example: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]

    def call(self, arguments: list[str]) -> int:
        parser = Parser(self)
        self.arguments(parser)
        if not any(action.dest == "output" for action in parser._actions):
            add_output(parser)
        try:
            # Intermixed, so that `send view --value 3 video=A` works as well as the other order.
            parsed = parser.parse_intermixed_args(_with_relative_times(arguments))
        except SystemExit as ended:  # --help
            return int(ended.code or 0)
        return self.run(parsed)


@dataclass(frozen=True)
class Group:
    """A command with commands of its own: `tallymark meters list`."""

    name: str
    summary: str
    commands: Mapping[str, Command]

    def call(self, arguments: list[str]) -> int:
        if not arguments or arguments[0] in ("-h", "--help"):
            self._help()
            return 0
        name = arguments[0]
        if name not in self.commands:
            hint = suggest(name, self.commands, form=f"`tallymark {self.name} {{}}`", what="there are")
            raise WrongUsage(f"no command {name}{hint}")
        return self.commands[name].call(arguments[1:])

    def _help(self) -> None:
        width = max(map(len, self.commands))
        print(f"{self.summary}\n\nusage: tallymark {self.name} COMMAND [options]\n")
        for name, command in self.commands.items():
            print(f"  {name:<{width}}  {command.summary}")
        first = next(iter(self.commands.values()))
        print(f"\nexample:\n  {first.example}")


class Parser(argparse.ArgumentParser):
    """Mistakes are one line that names the option that was probably meant."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"tallymark {command.name}",
            description=command.summary,
            epilog="example:\n" + "\n".join(f"  {line}" for line in command.example.splitlines()),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{self._with_hint(message)} (see `{self.prog} --help`)")

    def _with_hint(self, message: str) -> str:
        if not message.startswith("unrecognized arguments: "):
            return message
        first = message.removeprefix("unrecognized arguments: ").split()[0].partition("=")[0]
        return f"no option {first}{suggest(first, self._option_string_actions, otherwise='')}"


def _with_relative_times(arguments: list[str]) -> list[str]:
    """`--from -1h` as `--from=-1h`: argparse would take the time for an option."""
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and re.match(r"-\d", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="for people or for programs")


def pairs(words: list[str], *, example: str) -> list[tuple[str, str]]:
    """`key=value` words as pairs."""
    found = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise WrongUsage(f"{word!r} is not key=value; write it like {example}")
        found.append((key, value))
    return found
