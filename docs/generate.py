"""`python docs/generate.py`: writes the pages that are made from the code: commands, settings, metrics."""

import importlib
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import tallymark.pipeline.spark.sink  # noqa: F401  (registers its metrics when imported, and does not need Spark)
from tallymark import cli, problems, telemetry
from tallymark.commands.command import Command, Group, Parser
from tallymark.settings import entries

DOCS = Path(__file__).resolve().parent
STAGES = ("client", "collector", "log", "pipeline", "keeper", "query")
MADE = "<!-- Made by docs/generate.py; change the code instead. -->\n"

SETTINGS_HEAD = """# Settings

A setting comes from the first of these that has it: a flag, a variable, the file, the default.

- Flags: `--data`, `--host`, `--port`, and `--set key=value` for any other (`--set log.partitions=4`).
- Variables: the name in capitals, `TALLYMARK_LOG_PARTITIONS=4`. Separate the items of a list with commas.
- The file: `tallymark.toml` in the working folder, or the one named by `--profile`. Sections are TOML tables.
- `TALLYMARK_URL`, `TALLYMARK_TENANT` and `TALLYMARK_KEY` are not settings: they tell commands where Tallymark
  runs, and for whom to ask.

An unknown name is an error that names the nearest known one. `tallymark settings` prints every setting with its value
and where that came from.
"""

METRICS_HEAD = """# Metrics

`GET /metrics` answers in Prometheus' text format. On one machine the public port shows the metrics of all four
roles: the collector's are live, those of the pipeline, the keeper and the query service at most two seconds old. Where
a role has several instances, ask each collector and query node for its own. The Prometheus library adds a `…_created`
gauge (when a series began) to counters and histograms.

Every name starts with its stage. [operations.md](operations.md) says which to watch.
"""

COMMANDS_HEAD = """# Commands

Every command takes `--help` and `--output table|json` (those that ask also `csv`), ends with 0 (ok), 1 (failed) or 2
(wrong usage), and says what went wrong in one line on stderr. Commands that talk to a running Tallymark find it by
`--url`, else `TALLYMARK_URL`, else `http://127.0.0.1:8080`, and send `TALLYMARK_KEY` as a bearer token if it is set.
Commands about events and meters are for the tenant in `--tenant`, else `TALLYMARK_TENANT`, else `main`;
`--tenant demo` is the demo's traffic.

A terminal gets colours, tables of its width and progress bars (the extra `cli`, part of `all`, brings them;
`NO_COLOR` turns colours off). A pipe or a file gets plain text: one line a row, nothing cut off.
"""


ERRORS_HEAD = """# Errors

Every refusal is a problem document (RFC 9457). Its `type` links to its code on `/docs/errors` of the instance that
refused: this table, as of that instance's version. Single events are refused with a code too, in `errors` of the
answer. [http.md](http.md) says which requests can get which codes.
"""


def commands_page() -> str:
    return MADE + "\n".join([COMMANDS_HEAD, *map(_command, _commands())])


def _commands() -> Iterator[Command]:
    for name, (module, _) in cli.COMMANDS.items():
        found = importlib.import_module(f"tallymark.commands.{module}").COMMANDS[name]
        yield from found.commands.values() if isinstance(found, Group) else [found]


def _command(command: Command) -> str:
    parser = Parser(command)
    command.arguments(parser)
    parts = [f"## {command.name}\n", command.summary, f"```sh\n{command.example}\n```"]
    table = [
        f"| `{' '.join([*action.option_strings[-1:], *_values(action)])}` | {(action.help or '').replace('%%', '%')} |"
        for action in parser._actions
        if action.dest != "help"
    ]
    if table:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *table]))
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _values(action: Any) -> list[str]:
    if action.choices:
        return ["|".join(action.choices).replace("|", "\\|")]
    return [] if action.nargs == 0 else [action.metavar or action.dest.upper()]


def settings_page() -> str:
    parts = [SETTINGS_HEAD]
    for section, rows in groupby(entries(), key=lambda row: row.key.rpartition(".")[0]):
        parts.append(f"## {section or 'Everything'}\n")
        table = [f"| `{row.key}` | `{json.dumps(row.default)}` | {row.meaning} |" for row in rows]
        parts.append("\n".join(["| setting | default | meaning |", "|---|---|---|", *table]) + "\n")
    return MADE + "\n".join(parts)


def metrics_page() -> str:
    parts = [METRICS_HEAD]
    for stage in STAGES:
        rows = [
            metric
            for metric in telemetry.METRICS
            if metric.name.startswith((f"tallymark_{stage}_", f"tallymark_{stage}s"))
        ]
        parts.append(f"## {stage}\n")
        table = [
            f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels)} | {row.meaning} |"
            for row in rows
        ]
        parts.append("\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *table]) + "\n")
    return MADE + "\n".join(parts)


def errors_page() -> str:
    table = [f"| `{code}` | {meaning.place} | {meaning.text} |" for code, meaning in sorted(problems.MEANINGS.items())]
    return MADE + "\n".join([ERRORS_HEAD, "| code | status, or where | means |", "|---|---|---|", *table]) + "\n"


PAGES = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
