"""Which functions a question asks for, and why some cannot be asked."""

from collections.abc import Sequence

from tallymark.aggregates.functions import NAMES, can_ask, function, is_percentile
from tallymark.evaluation.values import RATE
from tallymark.http import Problem
from tallymark.meters.function_names import in_order, is_function, meant
from tallymark.store.model import RegisteredMeter

# As many as a meter may compute. Each takes its own pass over the sketches of every point.
MOST = 64


def asked(words: Sequence[str], registered: RegisteredMeter) -> tuple[str, ...]:
    """Those in `fn`, else all that the meter computes. Any can be asked for whose columns the meter keeps."""
    meter = registered.meter
    if len(words) > MOST:
        detail = f"{len(words):,} functions in one question exceed {MOST}; ask in several"
        raise Problem(400, "over_limit", detail, limit=MOST, actual=len(words), parameter="fn")
    for name in words:
        if not is_function(name) or not can_ask(meter.compute, meter.decimals, name):
            raise Problem(400, "unknown_function", _why_not(name, registered), parameter="fn", function=name[:60])
    return tuple(words) or meter.compute


def check_rate(words: Sequence[str], *, has_beginning: bool) -> None:
    """Events per second of all time would be a number of nothing. If nobody asked for it, it is null instead."""
    if RATE in words and not has_beginning:
        detail = "rate is events per second of a range, and all time has no beginning: give from=, as in from=-1h"
        raise Problem(400, "needs_range", detail, parameter="fn")


def errors(functions: Sequence[str]) -> dict[str, float]:
    """The relative error of those that are approximate."""
    return {name: function(name).relative_error for name in functions if function(name).approximate}


def _why_not(name: str, registered: RegisteredMeter) -> str:
    meter = registered.meter
    subject = f"meter {meter.name}"
    if is_percentile(name):
        return f"{subject} keeps no percentiles: a percentile needs one in compute, as in compute: [count, {name}]"
    if name == "distinct":
        return f"{subject} counts no distinct values: that needs distinct: PROPERTY in its definition"
    if not is_function(name):
        return f"there is no function {name[:60]!r}{meant(name)}"
    known = [each for each in in_order((*NAMES, *meter.compute)) if can_ask(meter.compute, meter.decimals, each)]
    return f"{subject} does not compute {name}; it computes {', '.join(known)}"
