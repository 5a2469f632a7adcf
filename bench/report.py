"""The table on the terminal and the JSON file beside it."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.figure import Figure

COLUMNS = ("benchmark", "what", "figure", "unit", "reach", "reached", "remark")
RIGHT = {"figure", "reach"}


def table(figures: Sequence[Figure]) -> str:
    rows = [_row(figure) for figure in figures]
    widths = [max(len(row[place]) for row in [COLUMNS, *rows]) for place in range(len(COLUMNS))]
    lines = []
    for row in [COLUMNS, tuple("-" * width for width in widths), *rows]:
        cells = (
            cell.rjust(width) if column in RIGHT else cell.ljust(width)
            for column, cell, width in zip(COLUMNS, row, widths, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    reached = {None: "", True: "yes", False: "NO"}[figure.reached]
    reach = str(figure.reach) if figure.reach else ""
    return figure.benchmark, figure.what, figure.spoken(), figure.unit, reach, reached, figure.remark


def write(folder: Path, facts: dict[str, Any], figures: Sequence[Figure]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    measured = [{**asdict(figure), "reached": figure.reached} for figure in figures]
    path.write_text(json.dumps({**facts, "figures": measured}, indent=2) + "\n")
    return path
