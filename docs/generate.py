"""`python docs/generate.py`: writes the pages that are made from the code, settings.md and metrics.md."""

import json
from itertools import groupby
from pathlib import Path

import tallymark.pipeline.sink  # noqa: F401  (registers its metrics when imported, and does not need Spark)
from tallymark import telemetry
from tallymark.settings import entries

DOCS = Path(__file__).resolve().parent
STAGES = ("collector", "log", "pipeline", "keeper", "query")
MADE = "<!-- Made by docs/generate.py; change the code instead. -->\n"

SETTINGS_HEAD = """# Settings

A setting is taken from the first of these that has it: a flag, a variable, the file, the default.

- Flags: `--data`, `--host`, `--port`, and `--set key=value` for any other (`--set log.partitions=4`).
- Variables: the name in capitals, `TALLYMARK_LOG_PARTITIONS=4`. In lists the words are separated by commas.
- The file: `tallymark.toml` in the working folder, or the one named by `--profile`. Sections are TOML tables.
- `TALLYMARK_URL` and `TALLYMARK_KEY` are not settings: they tell commands where a running Tallymark is.

An unknown name is an error that names the nearest known one. `tallymark settings` prints every setting with its value
and where that came from.
"""

METRICS_HEAD = """# Metrics

`GET /metrics` answers in the text format of Prometheus. On one machine the public port shows the metrics of all four
roles: the collector's are live, those of the pipeline, the keeper and the query service at most two seconds old. The
Prometheus library adds a `…_created` gauge (when a series began) to counters and histograms.

Every name begins with the stage it belongs to. [operations.md](operations.md) says which to watch.
"""


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
        rows = [metric for metric in telemetry.METRICS if metric.name.startswith(f"tallymark_{stage}_")]
        parts.append(f"## {stage}\n")
        table = [
            f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels)} | {row.meaning} |"
            for row in rows
        ]
        parts.append("\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *table]) + "\n")
    return MADE + "\n".join(parts)


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
