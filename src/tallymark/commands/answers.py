"""Answers to questions as people see them: tables, charts, CSV."""

import csv
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from tallymark.commands import chart
from tallymark.commands.command import CommandFailed
from tallymark.commands.freshness import footnote
from tallymark.commands.output import cell, harmless, print_table
from tallymark.reader import answers
from tallymark.reader.answers import Item, Line, Value

MOST_LINES = len(chart.COLOURS)
OUTPUTS = ("table", "json", "csv")

Answer = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """How an answer is printed."""

    output: str = "table"
    draw: bool = False
    draw_every: bool = False
    """every function, not just the first"""
    ranked: bool = False
    """with numbered rows"""
    compact: bool = False
    """JSON on one line"""


def show(answer: Answer, form: Form) -> None:
    if form.output == "json":
        encoded = msgspec.json.Encoder(decimal_format="number").encode(answer)
        print((encoded if form.compact else msgspec.json.format(encoded, indent=2)).decode())
        return
    try:
        lines, rows = (_drawn(answer, form.draw_every), []) if form.draw else ([], _rows(answer))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CommandFailed("unexpected answer; is this really Tallymark? Check --url") from error
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if form.draw:
        print("\n".join([*lines, *_unfinished(answer)]))
    elif form.output == "csv":
        _print_csv(columns, [[row.get(name) for name in columns] for row in rows])
        return
    else:
        places = [[place] for place in range(1, len(rows) + 1)] if form.ranked else [[] for _ in rows]
        shown = [[*place, *(row.get(name) for name in columns)] for place, row in zip(places, rows, strict=True)]
        print_table([*([""] if form.ranked else []), *columns], shown)
    footnote(answer)


def _rows(answer: Answer) -> list[dict[str, Any]]:
    if "series" in answer:
        return answers.series(answer).rows()
    if "items" in answer:
        return answers.items(answer).rows()
    return answers.total(answer).rows()


def _print_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """As RFC 4180 wants it but for the ends of lines; nothing is an empty field."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_plain(value) for value in row] for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return cell(value) if isinstance(value, datetime) else value


def _drawn(answer: Answer, every: bool) -> list[str]:
    """Lines if there are moments to draw them over, else bars; of the first function, or of every one."""
    size = shutil.get_terminal_size()
    if "series" in answer:
        series = answers.series(answer).lines
        moments = list(dict.fromkeys(point.time for line in series for point in line.points))
        functions = _functions((point.value for line in series for point in line.points), every)
        if len(moments) > 1:
            return _lines(series, moments, functions, width=size.columns, height=max(6, min(16, size.lines - 12)))
        return _bars([(line.labels, point.value) for line in series for point in line.points], functions, size.columns)
    found = answers.items(answer).items if "items" in answer else [Item(value=answers.total(answer).value)]
    functions = _functions((item.value for item in found), every)
    return _bars([(item.labels, item.value) for item in found], functions, size.columns)


def _unfinished(answer: Answer) -> list[str]:
    """A last bucket that still fills looks like a fall."""
    end, complete = (answer.get("range") or {}).get("to"), (answer.get("freshness") or {}).get("complete_through")
    has_moments = any(len(line["points"]) > 1 for line in answer.get("series") or ())
    if not has_moments or end is None or complete is None:
        return []
    is_open = datetime.fromisoformat(end) > datetime.fromisoformat(complete)
    return ["the last point is not complete yet"] if is_open else []


def _functions(values: Iterable[Value], every: bool) -> list[str]:
    """Counts and sums, drawn together, would make one of them a line at the bottom."""
    functions = list(dict.fromkeys(name for value in values for name in value))
    return functions if every else functions[:1]


def _lines(
    series: Sequence[Line], moments: Sequence[datetime], functions: Sequence[str], *, width: int, height: int
) -> list[str]:
    drawn = []
    for line in series:
        found = {point.time: point.value for point in line.points}
        for function in functions:
            values = [_float(found[moment].get(function)) if moment in found else None for moment in moments]
            drawn.append(chart.Line(_name(line.labels, function, functions), values))
    # Beyond what can be told apart, the largest.
    largest = sorted(drawn, key=lambda line: -sum(abs(value) for value in line.values if value is not None))
    kept = [line for line in drawn if line in largest[:MOST_LINES]][:MOST_LINES]
    more = len(drawn) - len(kept)
    texts = chart.line_chart(kept, moments, width=width, height=height, colour=_has_colours())
    left_out = [f"the {len(kept)} largest of {len(drawn)}: choose others with filters"] if more else []
    return [*_title(series[0].labels, functions), *texts, *left_out]


def _bars(found: Sequence[tuple[Mapping[str, str], Value]], functions: Sequence[str], width: int) -> list[str]:
    if not found:
        return ["nothing to draw: no series in this range"]
    numbers = [
        (_name(labels, function, functions), value.get(function)) for labels, value in found for function in functions
    ]
    bars = [(name, _float(number)) for name, number in numbers]
    drawn = chart.bar_chart(bars, [cell(number) for _, number in numbers], width=width)
    return [*_title(found[0][0], functions), *drawn]


def _title(labels: Mapping[str, str], functions: Sequence[str]) -> list[str]:
    by = f" by {', '.join(labels)}" if labels else ""
    return [harmless(f"{', '.join(functions)}{by}")]


def _name(labels: Mapping[str, str], function: str, functions: Sequence[str]) -> str:
    """What tells it from the others: its labels, and its function if there are several."""
    return harmless(
        " ".join([*(text or "''" for text in labels.values()), *([function] if len(functions) > 1 else [])])
    )


def _float(number: int | float | Decimal | None) -> float | None:
    return None if number is None else float(number)


def _has_colours() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
