"""Answers as a table for people or as JSON for programs."""

import json
import re
from collections.abc import Sequence
from typing import Any

# Surrogates cannot be printed at all.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def harmless(text: str, *, keep: str = "") -> str:
    """Controls as JSON writes them, so that what somebody sent cannot steer the terminal of whoever looks at it."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns; numbers to the right, with thousands apart."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[place]) for row in texts)]) for place, name in enumerate(columns)]
    numeric = [
        bool(rows) and all(_is_number(row[place]) or row[place] is None for row in rows)
        for place in range(len(columns))
    ]
    for line in ([*columns], *texts):
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(parts).rstrip())


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:,.6g}"
    if isinstance(value, list | tuple):
        return harmless(", ".join(map(str, value)))
    return harmless(str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
