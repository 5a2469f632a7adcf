"""`/v1/query/words`: completion for the query language: what the grammar allows, filled in from meters and series."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tallymark.aggregates.functions import NAMES, can_ask
from tallymark.http import Problem
from tallymark.meters import completion, language
from tallymark.meters.completion import Expected
from tallymark.meters.language import Query, QueryError
from tallymark.meters.model import METRICS
from tallymark.meters.phrases import LABEL, METER, METRIC, SOURCE, VALUE
from tallymark.meters.selection import METRIC as METRIC_LABEL
from tallymark.meters.selection import SERVER
from tallymark.meters.stored_query import is_bare, quote, written
from tallymark.query.parameters import Given, Pairs, sort_out
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.store.protocol import TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question

PATH = "/v1/query/words"
KEYS = {"q": "the query so far", "at": "the position in it, in characters from 0; its end unless given"}
MOST_WORDS = 50
MOST_SERIES = 10_000
HOUR_S = 3600
PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")
DURATIONS = {"10s": 10, "1m": 60, "5m": 300, "15m": 900, "1h": 3600, "1d": 86_400}
MOMENTS = ("15m", "1h", "6h", "1d", "7d")
LIMITS = ("10", "20", "100")


class Word(NamedTuple):
    text: str
    kind: str
    """keyword, meter, metric, label, function or value"""
    note: str = ""


def words(sources: Sources, tenant: str, pairs: Pairs) -> dict[str, Any]:
    given = sort_out(pairs, allowed=(), question=PATH, keys=tuple(KEYS))
    text, at = _asked(given)
    meters = {each.meter.name: each for each in sources.store.registry.meters(tenant)}
    if not meters:
        require_tenant(sources.store.registry, tenant)
    found = completion.expected(text, at)
    shown = _matching(found, _Completion(sources, meters, found).words())
    return {"from": found.start, "to": found.end, "words": [word._asdict() for word in shown]}


def _asked(given: Given) -> tuple[str, int]:
    values = Given({name: given.where.get(name, ()) for name in KEYS}, {})
    text, at = values.one("q"), values.one("at")
    if text is None:
        raise Problem(400, "missing_parameter", "q is missing: give the query so far, ?q=FROM…", parameter="q")
    if len(text) > language.MAX_LENGTH:
        detail = f"a query of {len(text):,} characters exceeds {language.MAX_LENGTH:,}; ask in several"
        raise Problem(400, "bad_query", detail, position=language.MAX_LENGTH)
    if at is None:
        return text, len(text)
    if not at.isascii() or not at.isdigit() or len(at) > 9 or int(at) > len(text):
        detail = f"at = {at[:20]!r} is not a position in the query: it has {len(text):,} characters"
        raise Problem(400, "bad_number", detail, parameter="at")
    return text, int(at)


def _matching(found: Expected, offered: Iterable[Word]) -> list[Word]:
    typed = found.typed.casefold()
    kept: dict[str, Word] = {}
    for word in offered:
        if word.text.lstrip("'").casefold().startswith(typed):
            kept.setdefault(word.text, word)
        if len(kept) == MOST_WORDS:
            break
    return list(kept.values())


class _Completion:
    """What fits at one position of one query."""

    def __init__(self, sources: Sources, meters: dict[str, RegisteredMeter], found: Expected) -> None:
        self._sources, self._meters, self._found = sources, meters, found

    def words(self) -> Iterator[Word]:
        found = self._found
        names: dict[str, Callable[[], Iterable[Word]]] = {
            SOURCE: self._sources_of,
            METER: self._selectable,
            METRIC: self._metrics,
            LABEL: self._labels,
            VALUE: lambda: self._values(found.label),
            completion.FUNCTION: self._functions,
            completion.DURATION: self._durations,
            completion.MOMENT: lambda: (Word(each, "value") for each in self._moments()),
            completion.NUMBER: lambda: (Word(each, "value") for each in LIMITS),
        }
        if not found.is_quoted:
            yield from (Word(each, "keyword") for each in found.keywords)
        if found.wants is not None:
            yield from names[found.wants]()

    @property
    def _meter(self) -> RegisteredMeter | None:
        """The one that the query selects, as far as it can be told."""
        if self._found.selection is None:
            return None
        try:
            known = [each.meter for each in self._meters.values()]
            return self._meters[language.resolve(Query(None, self._found.selection), known).meter.name]
        except QueryError:
            return None

    def _sources_of(self) -> Iterator[Word]:
        meter = self._meter
        if meter is not None and meter.meter.by:
            label = SERVER if SERVER in meter.meter.by else meter.meter.by[0]
            yield from self._named(meter, label, "value")

    def _selectable(self) -> Iterator[Word]:
        for name, registered in self._meters.items():
            yield Word(written(name), "meter", ", ".join(registered.meter.compute))
        for name, registered in self._meters.items():
            if registered.meter.each is not None:
                is_asked = self._found.typed.casefold().startswith(f"{name}.")
                for metric in self._top(registered, METRIC_LABEL):
                    # Without its meter only where that is the one meant by default.
                    alone = name == METRICS.name and is_bare(metric) and not is_asked
                    rest = metric if is_bare(metric) else quote(metric)
                    yield Word(metric if alone else f"{written(name)}.{rest}", "metric", name)

    def _metrics(self) -> Iterator[Word]:
        meter = self._meter
        if meter is None and self._found.selection is not None:
            meter = self._meters.get(self._found.selection.name.removesuffix("."))
        if meter is not None and meter.meter.each is not None:
            yield from (Word(quote(each), "metric", meter.meter.name) for each in self._top(meter, METRIC_LABEL))

    def _labels(self) -> Iterator[Word]:
        meter = self._meter
        for label in meter.labels if meter is not None else ():
            if label not in self._found.listed:
                yield Word(written(label), "label")

    def _values(self, label: str | None) -> Iterator[Word]:
        meter = self._meter
        if meter is not None and label in meter.labels:
            yield from (Word(quote(each), "value") for each in self._top(meter, label or ""))

    def _named(self, meter: RegisteredMeter, label: str, kind: str) -> Iterator[Word]:
        yield from (Word(written(each), kind, label) for each in self._top(meter, label))

    def _functions(self) -> Iterator[Word]:
        meter = self._meter
        for name in (*NAMES, *PERCENTILES):
            if name in self._found.listed:
                continue
            if meter is None or can_ask(meter.meter.compute, meter.meter.decimals, name):
                yield Word(name, "function")

    def _durations(self) -> Iterator[Word]:
        meter = self._meter
        grain_s = 1 if meter is None else meter.meter.grain_s
        yield from (Word(each, "value") for each, seconds in DURATIONS.items() if seconds >= grain_s)

    def _moments(self) -> Iterable[str]:
        return ("now", *MOMENTS) if self._found.clause == "UNTIL" else MOMENTS

    def _top(self, registered: RegisteredMeter, label: str) -> list[str]:
        """Values of a label with the most events of the last hour, else of all time; none of a label with too many."""
        recent_s = (self._sources.clock_ms() // 1000 // HOUR_S - 1) * HOUR_S
        with self._sources.store.snapshots.take() as snapshot:
            for start_s in (recent_s, None):
                question = Question.between(registered, start_s=start_s, end_s=None, by=(label,), functions=("count",))
                try:
                    rows = snapshot.read(question, most_rows=MOST_SERIES)
                except (TooManyRows, TooManyBytes):
                    return []
                if rows.height:
                    column = label_column(label)
                    return rows.sort("n", column, descending=[True, False])[column].to_list()
        return []
