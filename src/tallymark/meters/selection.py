"""What a query is about, once the meters are known: which meter, which metric of it, which series."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from tallymark.aggregates.functions import can_ask
from tallymark.meters.model import METRICS, QUERIED, Meter
from tallymark.meters.stored_query import Query, QueryError
from tallymark.suggest import suggest

METRIC = "metric"
SERVER = "server"

Metrics = Callable[[Meter], Collection[str]]
"""the metrics that a meter with `each` has counted so far"""


class Selected(NamedTuple):
    meter: Meter
    metric: str | None
    """one of the named numbers of a meter with `each`; None is the meter itself"""


def resolve(query: Query, meters: Iterable[Meter], metrics: Metrics | None = None) -> Selected:
    """The meter that SELECT means, or the meter and its metric; raises QueryError with the nearest name.

    Without `metrics` every name can be one of a metric. So it can with `keep: queried`: such a meter waits for a query.
    """
    known = {meter.name: meter for meter in meters}
    selection = query.selection
    if selection.meter is not None:
        return _metric_of(query, known, selection.meter, selection.name, metrics)
    if selection.name in known:
        return Selected(known[selection.name], None)
    first, dot, rest = selection.name.partition(".")
    if dot and rest and first in known and not selection.quoted:
        return _metric_of(query, known, first, rest, metrics)
    return _metric(query, known, metrics)


class Asked(NamedTuple):
    """What a query reads of one meter with `each`."""

    meter: Meter
    metrics: frozenset[str] | None
    """None for all of them"""


def asked_metrics(query: Query, meters: Iterable[Meter]) -> list[Asked]:
    """The metrics that the query reads, of each meter that it can mean, whatever has arrived by now.

    Where a bare name may be a metric of several, it is one of each: what is stored in vain does less harm than what is
    not stored.
    """
    known = {meter.name: meter for meter in meters}
    selection = query.selection
    first, dot, rest = selection.name.partition(".")
    if selection.meter is not None:
        meant = [Selected(known[selection.meter], selection.name)] if selection.meter in known else []
    elif selection.name in known:
        meant = [Selected(known[selection.name], None)]
    elif dot and rest and first in known and not selection.quoted:
        meant = [Selected(known[first], rest)]
    else:
        with_each = [meter for meter in known.values() if meter.each is not None]
        fitting = [meter for meter in with_each if _fits(query, meter)] or with_each
        meant = [Selected(meter, selection.name) for meter in fitting]
    return [Asked(meter, _read(query, metric)) for meter, metric in meant if meter.each is not None]


def _read(query: Query, metric: str | None) -> frozenset[str] | None:
    if metric is not None:
        return frozenset((metric,))
    return frozenset(query.where[METRIC]) if METRIC in query.where else None


def filters(
    query: Query, selected: Selected, is_column: Callable[[str], bool] = lambda name: False
) -> dict[str, tuple[str, ...]]:
    """The values that each label may have, of FROM, SELECT and WHERE together; raises QueryError, also for BY.

    `is_column` says whether a name that is no label is a column of a table.
    """
    meter, metric = selected
    chosen: dict[str, tuple[str, ...]] = {}
    if query.sources is not None:
        chosen[_source_label(query, meter)] = query.sources
    if metric is not None:
        chosen[METRIC] = (metric,)
    for label, values in query.where.items():
        if not is_column(label):
            _check_label(query, meter, label, f"where.{label}")
        if label in chosen:
            clause = "SELECT" if label == METRIC and metric is not None else "FROM"
            detail = f"{clause} already says which {label}; name the values there"
            raise query.error("bad_query", detail, f"where.{label}")
        chosen[label] = values
    for label in query.by:
        if not is_column(label):
            _check_label(query, meter, label, f"by.{label}")
    return chosen


def _metric_of(query: Query, known: dict[str, Meter], name: str, metric: str, metrics: Metrics | None) -> Selected:
    meter = known.get(name)
    if meter is None:
        hint = suggest(name, known, what="there are")
        raise query.error("unknown_meter", f"there is no meter {name!r}{hint}", "select")
    if meter.each is None:
        detail = f"the meter {name!r} has one number, no metrics; write SELECT {name}"
        raise query.error("unknown_metric", detail, "select")
    if metrics is not None and meter.keep != QUERIED and metric not in (found := metrics(meter)):
        hint = suggest(metric, found, what="there are", otherwise=None if found else "none has arrived yet")
        raise query.error("unknown_metric", f"the meter {name!r} has no metric {metric!r}{hint}", "select")
    return Selected(meter, metric)


def _metric(query: Query, known: dict[str, Meter], metrics: Metrics | None) -> Selected:
    """The meter with `each` that has this metric: the one called `metrics` if it fits, else the only one that does."""
    name = query.selection.name
    with_each = [meter for meter in known.values() if meter.each is not None]
    found = {meter.name: metrics(meter) for meter in with_each} if metrics is not None else {}
    having = [meter for meter in with_each if metrics is None or name in found[meter.name]]
    having = having or [meter for meter in with_each if meter.keep == QUERIED]
    if not having:
        near = suggest(name, [*known, *(metric for each in found.values() for metric in each)])
        raise query.error("unknown_meter", f"there is neither a meter nor a metric {name!r}{near}", "select")
    fitting = [meter for meter in having if _fits(query, meter)] or having
    for meter in fitting:
        if meter.name == METRICS.name or len(fitting) == 1:
            return Selected(meter, name)
    raise _ambiguous(query, fitting)


def _fits(query: Query, meter: Meter) -> bool:
    """Whether it has the labels and keeps what the functions need."""
    functions = query.compute or ()
    return {*query.where, *query.by} <= set(meter.labels) and all(
        can_ask(meter.compute, meter.decimals, function) for function in functions
    )


def _ambiguous(query: Query, meters: list[Meter]) -> QueryError:
    names = sorted(meter.name for meter in meters)
    detail = f"the metric {query.selection.name!r} may be one of {' or '.join(names)}"
    return query.error("ambiguous", f"{detail}; say which: SELECT {names[0]}.{query.select}", "select")


def _source_label(query: Query, meter: Meter) -> str:
    if SERVER in meter.by:
        return SERVER
    if not meter.by:
        detail = f"the meter {meter.name!r} has no labels, so there is nothing to choose from; write FROM *"
        raise query.error("bad_query", detail, "from")
    return meter.by[0]


def _check_label(query: Query, meter: Meter, label: str, at: str) -> None:
    if label not in meter.labels:
        hint = suggest(label, meter.labels, what="its labels are", otherwise=None if meter.labels else "it has none")
        raise query.error("unknown_key", f"the meter {meter.name!r} has no label {label!r}{hint}", at)
