"""How up to date an answer is, as a line under its table."""

import sys
from datetime import datetime, timedelta
from typing import Any

LATE_MS = 5_000


def footnote(answer: dict[str, Any]) -> None:
    """One line on stderr, so that the table on stdout stays clean; nothing while everything is well."""
    freshness = answer.get("freshness") or {}
    remarks = []
    lag_ms = freshness.get("lag_ms")
    if isinstance(lag_ms, int | float) and lag_ms > LATE_MS:
        remarks.append(f"counts are {lag_ms / 1000:,.1f} s behind")
    loss = freshness.get("loss", 0)
    if loss is None or loss:
        remarks.append(f"loss {'unknown' if loss is None else loss}: see `tallymark status`")
    if (answer.get("range") or {}).get("widened"):
        remarks.append(f"whole buckets: {answer['range']['from']} to {answer['range']['to']}")
    if answer.get("broken"):
        remarks.append(f"this meter stopped counting: {answer['broken']}")
    remarks += [computed_since(function, moment) for function, moment in (answer.get("since") or {}).items()]
    if remarks:
        print("; ".join(remarks), file=sys.stderr)


def computed_since(function: str, moment: str | None) -> str:
    """Why a function is `-`, and how to ask for it."""
    if moment is None:
        return f"{function}: not computed from the beginning; ask for less with --from"
    # The minute of the change holds events from before it, so its answer is `-` too.
    whole = datetime.fromisoformat(moment).replace(second=0, microsecond=0) + timedelta(minutes=1)
    return f"{function}: computed since {moment}; ask with --from {whole:%Y-%m-%dT%H:%M:%SZ}"
