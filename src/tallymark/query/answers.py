"""What every answer says beside its numbers: which meter, which range, how fresh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from tallymark.evaluation.values import kept_since, lacking, since
from tallymark.fidelity.freshness import Freshness, freshness
from tallymark.query.cache import Positions
from tallymark.query.functions import errors
from tallymark.query.parsing import Question
from tallymark.query.sources import Sources
from tallymark.store.protocol import Snapshot


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer before it takes a form."""

    question: Question
    body: Mapping[str, Any]
    """all but the freshness"""
    lines: Sequence[Mapping[str, Any]]
    """the same numbers, one item for each series: its labels, and its points or values"""
    freshness: Mapping[str, Any]
    applied: Positions


def answered(
    question: Question,
    fresh: Freshness,
    rows: Sequence[pl.DataFrame],
    found: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    *,
    other: int = 0,
) -> Answer:
    """`rows` are those of the store for each range, `found` what is made of them; `other` events lost their labels."""
    meter, window = question.meter, question.window
    if fresh.loss is not None:
        fresh = replace(fresh, loss=fresh.loss + meter.missed)
    body = {
        **({"query": question.query} if question.query else {}),
        "meter": meter.meter.name,
        "where": {key: list(wanted) for key, wanted in question.where.items()},
        **found,
        "range": question.range.to_json(),
        **({"compare": question.comparison.to_json()} if question.comparison else {}),
        **({"window": window.text} if window else {}),
        **({"over": window.over} if window and window.over else {}),
        **({"late": question.late} if question.late != "without" else {}),
        **({"tz": question.tz} if question.tz else {}),
        # Says that sums are exact, with so many places: who reads 0.10 as a float would lose that.
        **({} if meter.meter.decimals is None else {"decimals": meter.meter.decimals}),
        # A key that `max_series` put there would otherwise look as if it had no events.
        **({"other": {"count": other}} if other else {}),
        **({"broken": meter.broken} if meter.broken else {}),
        # Explains the nulls of functions that the meter did not compute from the beginning.
        **since(meter, dict.fromkeys(name for each in rows for name in lacking(each, question.functions, meter))),
        **kept_since(meter, question.where),
    }
    freshness = fresh.to_json(meter_version=meter.version, errors=errors(question.functions))
    return Answer(question, body, lines, freshness, fresh.applied)


def fresh(sources: Sources, snapshot: Snapshot, question: Question) -> Freshness:
    return freshness(
        snapshot,
        sources.events,
        clock_ms=sources.clock_ms,
        accept_past_s=sources.settings.events.accept_past_s,
        records_lost=sources.lost.known(sources.store),
        tenant=question.meter.tenant,
    )
