"""Answers as a table for people or as JSON for programs.

A terminal gets colours and tables fitted to its width, by rich. A pipe or a file gets plain text, each row on one line
and nothing cut off, and does not pay for the import of rich.
"""

import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, TextIO

# Surrogates cannot be printed at all.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def harmless(text: str, *, keep: str = "") -> str:
    """Controls as JSON writes them, so that what somebody sent cannot steer the terminal of whoever looks at it."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in keep else f"\\u{ord(found[0]):04x}", text)


def is_decorated(stream: TextIO) -> bool:
    """Whether a person watches this stream and rich, which the extra `cli` brings, is there to write to it."""
    is_capable = stream.isatty() and os.environ.get("TERM") != "dumb"
    return is_capable and importlib.util.find_spec("rich") is not None


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_line(line: str, style: str = "") -> None:
    """One line to stdout, in this style (`red`, `bold green`) on a terminal."""
    if style and is_decorated(sys.stdout):
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(line, style), soft_wrap=True)
    else:
        print(line)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns; numbers to the right, with thousands apart. Where no column has a name there is no head."""
    texts = [[cell(value) for value in row] for row in rows]
    numeric = [
        bool(rows) and all(_is_number(row[place]) or row[place] is None for row in rows)
        for place in range(len(columns))
    ]
    if is_decorated(sys.stdout):
        _print_decorated(columns, texts, numeric)
        return
    widths = [max([len(name), *(len(row[place]) for row in texts)]) for place, name in enumerate(columns)]
    for line in ([columns] if any(columns) else []) + texts:
        parts = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _print_decorated(columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns), header_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        # Folded, not cut: a value that is copied must be whole.
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in texts:
        # As Text, because a label like [red] would be taken for markup.
        table.add_row(*map(Text, row))
    Console().print(table)


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:,.6g}"
    if isinstance(value, list | tuple):
        return harmless(", ".join(map(str, value)))
    return harmless(str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
