"""An answer as a table: one row for each series, or for each point of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tallymark.query.answers import Answer
from tallymark.query.parsing import Question

Kind = Literal["text", "moment", "whole", "exact", "number", "boolean"]

WHOLE = ("count", "distinct")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[tuple[Any, ...]]
    decimals: int | None
    """places of exact numbers"""


def table(answer: Answer) -> Table:
    question, is_series = answer.question, "series" in answer.body
    rows = _points(answer) if is_series else _values(answer)
    return Table(_columns(question, is_series=is_series), list(rows), question.meter.meter.decimals)


def _columns(question: Question, *, is_series: bool) -> list[Column]:
    window, kinds = question.window, {name: _kind(question, name) for name in question.functions}
    numbers = [Column("time", "moment")] if is_series else []
    numbers += [Column(name, kind) for name, kind in kinds.items()]
    if window and window.over in ("max", "min"):
        numbers += [Column(f"at.{name}", "moment") for name in kinds]
    if question.comparison:
        for part in ("before", "difference"):
            numbers += [Column(f"{part}.{name}", kind) for name, kind in kinds.items()]
        numbers += [Column(f"percent.{name}", "number") for name in kinds]
    taken = {column.name for column in numbers}
    # A label may be called like a function.
    labels = [Column(f"label.{label}" if label in taken else label, "text") for label in question.by]
    taken |= {column.name for column in labels}
    added = [Column(f"with.{each.name}" if each.name in taken else each.name, each.type) for each in question.added]
    return [*labels, *added, *numbers]


def _kind(question: Question, name: str) -> Kind:
    if question.window and question.window.over == "avg":
        return "number"
    if name in WHOLE:
        return "whole"
    return "exact" if name == "sum" and question.meter.meter.decimals is not None else "number"


def _values(answer: Answer) -> Iterator[tuple[Any, ...]]:
    for item in answer.lines:
        yield (*_names(item), *item["value"].values(), *item.get("at", {}).values(), *_compared(item))


def _points(answer: Answer) -> Iterator[tuple[Any, ...]]:
    functions = answer.question.functions
    for line in answer.lines:
        labels = _names(line)
        for point in line["points"]:
            yield (*labels, point["time"], *(point[name] for name in functions), *_compared(point))


def _names(item: Any) -> tuple[Any, ...]:
    return (*item["labels"].values(), *item.get("with", {}).values())


def _compared(item: Any) -> tuple[Any, ...]:
    if "before" not in item:
        return ()
    changes = item["change"].values()
    parts = ([each[part] for each in changes] for part in ("difference", "percent"))
    return (*item["before"].values(), *(value for part in parts for value in part))
