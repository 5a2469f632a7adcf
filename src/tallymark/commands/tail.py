"""`tallymark tail`: events as they pass."""

import argparse
import json
import sys
from functools import partial
from typing import Any
from urllib.parse import urlencode

from tallymark.commands.command import Command, CommandFailed
from tallymark.commands.output import harmless, is_decorated
from tallymark.commands.service import Away, add_tenant, add_url, connect
from tallymark.events.labels import label
from tallymark.reader.errors import QuestionRefused, Unanswered
from tallymark.reader.live import Messages

WIDEST_NAME = 24
_PLAIN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/+-@%")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("events", metavar="EVENT", nargs="*", default=[], help="only events of these names")
    parser.add_argument("--where", metavar="EXPR", help='only events that this keeps, as in a meter: "ms > 250"')
    parser.add_argument("--rate", type=int, metavar="N", help="show at most so many a second (20; at most 200)")
    add_tenant(parser)
    add_url(parser)


def _run(arguments: argparse.Namespace) -> int:
    given = [*(("event", name) for name in arguments.events), ("where", arguments.where), ("rate", arguments.rate)]
    query = urlencode([(name, value) for name, value in given if value is not None])
    path = f"/v1/tail?{query}" if query else "/v1/tail"
    counts = {"passed": 0, "matched": 0, "shown": 0}
    show = _json if arguments.output == "json" else _Lines(sys.stdout.isatty()).show
    try:
        with Messages(partial(connect, arguments), path, kind="events", timeout_s=30.0, lost=_lost) as messages:
            if arguments.output != "json":
                _say("waiting for events; Ctrl-C ends")
            while (message := messages.next()) is not None:
                told = json.loads(message.data)
                for event in told.get("events") or ():
                    show(event)
                sys.stdout.flush()
                _note(counts, told)
    except KeyboardInterrupt:
        _say(f"{counts['passed']:,} passed, {counts['matched']:,} matched, {counts['shown']:,} shown")
    except QuestionRefused as refused:
        raise CommandFailed(harmless(str(refused).partition("\n")[0])) from None
    except Unanswered as error:
        raise Away(f"{error}; start it with `tallymark up`, or say where it runs with --url") from None
    return 0


def _note(counts: dict[str, int], told: dict[str, Any]) -> None:
    had_all = counts["matched"] == counts["shown"]
    for name in counts:
        counts[name] += int(told.get(name) or 0)
    if had_all and counts["matched"] > counts["shown"]:
        _say("more match than are shown: --rate shows more, EVENT and --where pick")


def _lost() -> None:
    _say("the connection was lost; trying again")


def _say(remark: str) -> None:
    """Beside the events, which may go to a file."""
    print(f"tallymark tail: {remark}", file=sys.stderr, flush=True)


def _json(event: dict[str, Any]) -> None:
    # A control character escaped means the same inside a JSON text.
    print(harmless(json.dumps(event, ensure_ascii=False)))


class _Lines:
    """One line an event: when it was received, its name, and what it carries."""

    def __init__(self, is_a_terminal: bool) -> None:
        self._is_decorated = is_a_terminal and is_decorated(sys.stdout)
        self._width = 8

    def show(self, event: dict[str, Any]) -> None:
        time = harmless(str(event.get("received", "")))[11:23]
        name = harmless(str(event.get("event", "")))
        self._width = min(WIDEST_NAME, max(self._width, len(name)))
        parts = [(each, _shown(value)) for each, value in _carried(event)]
        if not self._is_decorated:
            rest = "  ".join(f"{key}={value}" for key, value in parts)
            print(f"{time}  {name:<{self._width}}  {rest}".rstrip())
            return
        from rich.console import Console
        from rich.text import Text

        # As Text, because a label like [red] would be taken for markup.
        line = Text.assemble((time, "dim"), "  ", (f"{name:<{self._width}}", "bold cyan"))
        for key, value in parts:
            line.append("  ").append(f"{key}=", "dim").append(value)
        Console().print(line, soft_wrap=True, highlight=False)


def _carried(event: dict[str, Any]) -> list[tuple[str, Any]]:
    value = [("value", event["value"])] if event.get("value") is not None else []
    named = [*(event.get("values") or {}).items(), *(event.get("props") or {}).items()]
    more = [("left_out_values", event["left_out_values"])] if event.get("left_out_values") else []
    return [*value, *((_key(name), each) for name, each in named), *more]


def _key(name: str) -> str:
    return name if name and set(name) <= _PLAIN else harmless(json.dumps(name, ensure_ascii=False))


def _shown(value: Any) -> str:
    """Text with quotes where it would not stand as one word."""
    if isinstance(value, str):
        return value if value and set(value) <= _PLAIN else harmless(json.dumps(value, ensure_ascii=False))
    return label(value)


COMMANDS = {
    "tail": Command(
        "tail",
        "Events as they pass, one line each, until Ctrl-C; those of one tenant.\n"
        "If many pass, a fair sample of them is shown; counts of what passed and matched are then estimates.",
        "tallymark tail\ntallymark tail view sale --where \"country = 'KR' and ms > 250\" --rate 5",
        _arguments,
        _run,
    )
}
