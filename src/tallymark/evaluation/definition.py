"""What a saved query is: the text under its name, as the store keeps it, and what it asks of the meters there are."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from tallymark.meters import language
from tallymark.meters.language import Query
from tallymark.meters.model import Meter
from tallymark.meters.phrases import refusal
from tallymark.meters.selection import Metrics, Selected
from tallymark.meters.stored_query import Selection


class Definition(msgspec.Struct, frozen=True):
    """The body of a document of the kind `query`."""

    q: str
    """canonical, and it names its meter: `SELECT metrics.'cpu'`"""
    title: str = ""
    tz: str | None = None
    """zone of windows of whole days"""


def encode(definition: Definition) -> str:
    return msgspec.json.encode(definition).decode()


def decode(body: str) -> Definition:
    return msgspec.json.decode(body, type=Definition)


def parse(text: str) -> Query:
    """A query that can be saved: it has windows, and leaves the range to whoever asks for them. Raises QueryError."""
    query = language.parse(text)
    if query.window_s is None:
        detail = "a saved query needs a WINDOW: its values are stored window by window, as in WINDOW 1m"
        raise refusal(text, len(text), detail)
    for clause, parameter in (("since", "from"), ("until", "to")):
        if getattr(query, clause) is not None:
            detail = (
                f"a saved query has no {clause.upper()}: its windows are stored from now on;"
                f" give {parameter}= when you ask for them"
            )
            raise query.error("bad_query", detail, clause)
    return query


def _no_metrics(_: Meter) -> tuple[str, ...]:
    return ()


def resolve(query: Query, meters: Iterable[Meter], metrics: Metrics = _no_metrics) -> tuple[Query, Selected]:
    """The query with its meter named, so that it means the same whatever metrics arrive later. Raises QueryError.

    `metrics` is needed until then. A metric that is named with its meter need not have arrived: a meter may wait for a
    query to select it.
    """
    known = list(meters)
    try:
        selected = language.resolve(query, known, metrics)
    except language.QueryError as error:
        if error.code != "unknown_metric":
            raise
        selected = language.resolve(query, known)
    if selected.metric is None:
        return query, selected
    return replace(query, selection=Selection(selected.metric, meter=selected.meter.name)), selected
