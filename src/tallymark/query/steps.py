"""Steps as users write them."""

from datetime import UTC, tzinfo

from tallymark.evaluation.steps import Days, Edges, Fixed, Months, Step
from tallymark.http import Problem
from tallymark.query import lengths


def parse(text: str, zone: tzinfo, *, grain_s: int) -> Step:
    """`10s`, `1m`, `90m`, `1h`, `1d`, `1mo` … in multiples of what the meter keeps."""
    length = lengths.parse("step", text, code="bad_step")
    if length.unit == "w":
        detail = f"step = {text!r} is not a step; write 1m, 5m, 15m, 1h, 1d, 7d, 1mo …"
        raise Problem(400, "bad_step", detail, parameter="step")
    if length.unit == "mo":
        return Months(length.count, zone)
    if length.unit == "d" and zone is not UTC:
        return Days(length.count, zone)
    return Fixed(lengths.on_the_grain("step", text, length.seconds, grain_s, code="bad_step"))


def one_bucket(start_ms: int, end_ms: int, *, grain_s: int) -> Edges:
    """The whole range, widened to the grain."""
    grain_ms = grain_s * 1000
    return Edges((start_ms // grain_ms * grain_s, -(-end_ms // grain_ms) * grain_s), grain_s)
