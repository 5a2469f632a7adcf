"""Charts in the terminal: lines in braille dots, bars in eighths of a block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

COLOURS = (36, 33, 35, 32, 34, 31)
"""of the terminal: cyan, yellow, magenta, green, blue, red"""
# The dots of a braille letter: two columns of four, from the top. U+2800 is the letter without dots.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SAME, _SMALLEST = 1e-9, 1e-290


@dataclass(frozen=True)
class Line:
    """The numbers of one line, one for each moment of the chart; None is a gap."""

    name: str
    values: Sequence[float | None]


def line_chart(
    lines: Sequence[Line], moments: Sequence[datetime], *, width: int, height: int, colour: bool
) -> list[str]:
    """All lines in one picture if colours tell them apart, else a picture for each, on one scale."""
    present = [value for line in lines for value in line.values if value is not None]
    if not present:
        return ["nothing to draw: there are no numbers in this range"]
    ticks = _ticks(min(present), max(present))
    groups = [lines] if colour else [[line] for line in lines]
    texts: list[str] = []
    for group in groups:
        if len(lines) > 1 or lines[0].name:
            texts.append("  ".join(_painted(f"■ {line.name}" if colour else line.name, place, colour)
                                   for place, line in enumerate(group)))  # fmt: skip
        texts += _picture(group, moments, ticks, width=width, height=height, colour=colour)
    return texts


def bar_chart(bars: Sequence[tuple[str, float | None]], texts: Sequence[str], *, width: int) -> list[str]:
    """A bar for each name with its number, which `texts` has as it is to be written; below zero they are hatched."""
    most = max((abs(value) for _, value in bars if value is not None), default=0.0)
    name_width = min(max((len(name) for name, _ in bars), default=0), max(8, width // 3))
    text_width = max(map(len, texts), default=0)
    room = max(4, width - name_width - text_width - 4)
    found = []
    for (name, value), text in zip(bars, texts, strict=True):
        eighths = 0 if not most or value is None else round(abs(value) / most * room * 8)
        whole, rest = divmod(eighths, 8)
        bar = "▒" * max(1, whole) if value is not None and value < 0 else "█" * whole + _EIGHTHS[rest].strip()
        cut = name if len(name) <= name_width else f"{name[: name_width - 1]}…"
        found.append(f"{cut:<{name_width}}  {text:>{text_width}}  {bar}".rstrip())
    return found


def _picture(
    lines: Sequence[Line], moments: Sequence[datetime], ticks: Sequence[float], *, width: int, height: int, colour: bool
) -> list[str]:
    labels = _tick_labels(ticks)
    margin = max(map(len, labels))
    columns = max(10, width - margin - 2)
    grid = _Grid(columns, height, low=ticks[0], high=ticks[-1])
    for place, line in enumerate(lines):
        grid.draw(line.values, place)
    named = {grid.row(tick): label for tick, label in zip(ticks, labels, strict=True)}
    texts = [
        f"{named.get(row, ''):>{margin}} {'┤' if row in named else '│'}{grid.text(row, colour)}".rstrip()
        for row in range(height)
    ]
    texts.append(f"{'':>{margin}} └{'─' * columns}")
    texts.append(f"{'':>{margin}}  {_moment_labels(moments, columns)}".rstrip())
    return texts


class _Grid:
    """Cells of two by four dots; a cell has the colour of the line that came last."""

    def __init__(self, columns: int, rows: int, *, low: float, high: float) -> None:
        self._columns, self._rows, self._low, self._high = columns, rows, low, high
        self._dots = [[0] * columns for _ in range(rows)]
        self._lines = [[0] * columns for _ in range(rows)]

    def row(self, value: float) -> int:
        return self._height_of(value) // 4

    def draw(self, values: Sequence[float | None], line: int) -> None:
        """Neighbours are joined; next to a gap a value stands alone."""
        last = max(1, len(values) - 1)
        before: tuple[int, int] | None = None
        for place, value in enumerate(values):
            if value is None:
                before = None
                continue
            x = round(place / last * (2 * self._columns - 1))
            y = self._height_of(value)
            for each_x, each_y in _between(before or (x, y), (x, y)):
                row, column = each_y // 4, each_x // 2
                self._dots[row][column] |= _DOTS[each_x % 2][each_y % 4]
                self._lines[row][column] = line
            before = x, y

    def text(self, row: int, colour: bool) -> str:
        cells = zip(self._dots[row], self._lines[row], strict=True)
        runs = groupby(((chr(_BLANK + dots), line) if dots else (" ", -1) for dots, line in cells), key=itemgetter(1))
        texts = ((line, "".join(letter for letter, _ in run)) for line, run in runs)
        return "".join(_painted(text, line, colour and line >= 0) for line, text in texts)

    def _height_of(self, value: float) -> int:
        """In dots from the top."""
        part = (value - self._low) / (self._high - self._low)
        return round((1 - part) * (4 * self._rows - 1))


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Every dot on the way, so that steep lines have no holes."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * step / steps), round(start[1] + (end[1] - start[1]) * step / steps))
        for step in range(steps + 1)
    ]


def _painted(text: str, place: int, colour: bool) -> str:
    return f"\x1b[{COLOURS[place % len(COLOURS)]}m{text}\x1b[0m" if colour else text


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers around what is drawn; from zero, unless that would press the line into a corner."""
    most = max(abs(low), abs(high))
    # Averages of equal numbers may differ in their last digit: they are one level line.
    is_level = high - low <= most * _SAME
    if most < _SMALLEST:
        low, high = 0.0, 1.0
    elif 0 < low < high / 2 or (is_level and low > 0):
        low = 0.0
    elif is_level:
        high = 0.0
    unit = 10.0 ** math.floor(math.log10((high - low) / 4))
    step = next(unit * each for each in (1, 2, 2.5, 5, 10) if unit * each * 4 >= (high - low) * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [place * step for place in range(first, last + 1)]


def _tick_labels(ticks: Sequence[float]) -> list[str]:
    most = max(abs(tick) for tick in ticks)
    if most >= 1e15 or most < 1e-4:
        return [f"{tick:.4g}" for tick in ticks]
    step = ticks[1] - ticks[0]
    places = max(
        0, min(8, -math.floor(math.log10(step)) + (1 if step * 10 ** -math.floor(math.log10(step)) % 1 else 0))
    )
    return [f"{tick:,.{places}f}" for tick in ticks]


def _moment_labels(moments: Sequence[datetime], width: int) -> str:
    """The first, the middle and the last moment, as far as there is room."""
    span = moments[-1] - moments[0]
    form = "%Y-%m-%d" if span > timedelta(days=60) else "%m-%d %H:%M" if span >= timedelta(days=1) else "%H:%M"
    if form == "%H:%M" and any(moment.second for moment in moments):
        form = "%H:%M:%S"
    first, middle, last = (f"{moments[place]:{form}}" for place in (0, len(moments) // 2, -1))
    if len(moments) == 1:
        return first
    gap = width - len(first) - len(last)
    if gap < len(middle) + 4:
        return f"{first}{last:>{max(gap + len(last), len(last) + 1)}}"
    left = width // 2 - len(first) - len(middle) // 2
    return f"{first}{'':{left}}{middle}{last:>{width - len(first) - left - len(middle)}}"
