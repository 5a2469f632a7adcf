"""How up to date an answer is, as a line under its table."""

import sys
from datetime import datetime, timedelta
from typing import Any

LATE_MS = 5_000


def footnote(answer: dict[str, Any]) -> None:
    """One line on stderr, so that the table on stdout stays clean; nothing while everything is well."""
    freshness = answer.get("freshness") or {}
    remarks = []
    stale_s, lag_ms = freshness.get("stale_s"), freshness.get("lag_ms")
    if stale_s is not None:
        remarks.append(f"these are the last known numbers, {float(stale_s):,.0f} s old")
    if lag_ms is not None and lag_ms > LATE_MS:
        remarks.append(f"counts are {float(lag_ms) / 1000:,.1f} s behind")
    loss = freshness.get("loss", 0)
    if loss is None or loss:
        remarks.append(f"loss {'unknown' if loss is None else loss}: see `tallymark status`")
    bounds = freshness.get("error") or {}
    if bounds:
        remarks.append("approximate: " + ", ".join(_bound(name, float(each)) for name, each in bounds.items()))
    if (answer.get("range") or {}).get("widened"):
        start, end = answer["range"]["from"], answer["range"]["to"]
        remarks.append(f"whole buckets: {start or 'the beginning'} to {end or 'now'}")
    if answer.get("left_out"):
        remarks.append(f"{answer['left_out']:,} more series are left out")
    if answer.get("other"):
        remarks.append(
            f"{answer['other']['count']:,} events are under __other__ (max_series): some may be of these labels"
        )
    if answer.get("broken"):
        remarks.append(f"this meter stopped counting: {answer['broken']}")
    remarks += [computed_since(function, moment) for function, moment in (answer.get("since") or {}).items()]
    if remarks:
        print("; ".join(remarks), file=sys.stderr)


def _bound(function: str, error: float) -> str:
    kind = " (standard error)" if function == "distinct" else ""
    return f"{function} ±{100 * error:.1f} %{kind}"


def computed_since(function: str, moment: str | None) -> str:
    """Why a function is `-`, and how to ask for it."""
    if moment is None:
        return f"{function}: not computed from the beginning; ask for less with --from"
    # The minute of the change holds events from before it, so its answer is `-` too.
    whole = datetime.fromisoformat(moment).replace(second=0, microsecond=0) + timedelta(minutes=1)
    return f"{function}: computed since {moment}; ask with --from {whole:%Y-%m-%dT%H:%M:%SZ}"
