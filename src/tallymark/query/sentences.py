"""`/v1/query`: a question in the query language, understood as a series."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from tallymark.evaluation.lengths import DAY_S
from tallymark.http import Problem
from tallymark.meters import language
from tallymark.meters.language import Query, QueryError
from tallymark.meters.model import QUERIED
from tallymark.meters.selection import METRIC, Selected
from tallymark.query import parsing
from tallymark.query.joining import Columns
from tallymark.query.parameters import LABEL, Pairs, read_pairs, sort_out
from tallymark.query.parsing import Question
from tallymark.query.routes import MOST_BODY_BYTES, Request
from tallymark.query.sources import Sources
from tallymark.query.tenants_api import require_tenant
from tallymark.store.model import RegisteredMeter, label_column
from tallymark.store.protocol import Store, TooManyBytes, TooManyRows
from tallymark.store.read_plan import Question as StoreQuestion
from tallymark.suggest import suggest

PATH = "/v1/query"
PARAMETERS = ("with", "tz", "format", "consistency")
KEYS = {"q": "the query, as docs/query-language.md has it"}
HOUR_S = 3600
MOST_SUGGESTED = 10_000
MOST_REMEMBERED = 10_000


def understanding(sources: Sources) -> Callable[[Request], Question]:
    """Reads the query of a request, finds its meter, and asks for the series."""
    known: set[tuple[int, str]] = set()

    def understand(request: Request) -> Question:
        query = _query(request)
        meters = meters_of(sources, request.tenant)
        try:
            selected = language.resolve(
                query,
                [each.meter for each in meters.values()],
                lambda meter: Metrics(sources.store, meters[meter.name], known),
            )
            _check_stored(query, selected, Metrics(sources.store, meters[selected.meter.name], known))
            columns = Columns(meters[selected.meter.name], sources.tables)
            where = language.filters(query, selected, columns.is_known)
        except QueryError as error:
            raise refused(error) from None
        given = [pair for pair in request.pairs if pair[0] in PARAMETERS]
        return asked(sources, query, meters[selected.meter.name], where, given)

    return understand


def _check_stored(query: Query, selected: Selected, metrics: "Metrics") -> None:
    """A saved query may wait for its metric; whoever asks now gets no answer from one that was never stored."""
    meter, metric = selected
    if metric is not None and meter.keep == QUERIED and metric not in metrics:
        near = suggest(metric, metrics, otherwise="")
        detail = f"the meter {meter.name!r} stores only metrics that a saved query selects, and none selects {metric!r}"
        raise query.error(
            "unknown_metric", f"{detail}; save one that does, and it is stored from then on{near}", "select"
        )


def meters_of(sources: Sources, tenant: str) -> dict[str, RegisteredMeter]:
    """By name; 404 if there is no such tenant."""
    meters = {each.meter.name: each for each in sources.store.registry.meters(tenant)}
    if not meters:
        require_tenant(sources.store.registry, tenant)
    return meters


def _query(request: Request) -> Query:
    try:
        return language.parse(_text(request))
    except QueryError as error:
        raise refused(error) from None


def _text(request: Request) -> str:
    """From the parameter `q`, or from the body: as text, or as `{"q": …}`."""
    texts = [*sort_out(request.pairs, allowed=PARAMETERS, question=PATH, keys=tuple(KEYS)).where.get("q", ())]
    if request.body and request.method == "POST":
        texts.append(_from_body(request))
    if not texts:
        detail = 'q is missing: give ?q=FROM…, or POST the query as text/plain or as JSON {"q": "FROM …"}'
        raise Problem(400, "missing_parameter", detail, parameter="q")
    if len(texts) > 1:
        raise Problem(400, "repeated_parameter", f"{len(texts)} queries in one request; ask one", parameter="q")
    return texts[0]


def _from_body(request: Request) -> str:
    if len(request.body) > MOST_BODY_BYTES:
        detail = f"a query of over {MOST_BODY_BYTES:,} bytes"
        raise Problem(413, "too_large", detail, limit=MOST_BODY_BYTES, actual=len(request.body))
    kind = request.headers("content-type") or ""
    if "json" not in kind:
        try:
            text = request.body.decode()
        except UnicodeDecodeError:
            raise Problem(400, "bad_text", "the query is not UTF-8") from None
        # `curl --data-urlencode q=…` sends a form; `curl -d` says so of any text. No query begins with q=.
        pairs = read_pairs(text) if "form-urlencoded" in kind and text.startswith("q=") else ()
        return pairs[0][1] if len(pairs) == 1 else text
    try:
        found = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad_json", f"the body is not JSON: {error}") from None
    if not isinstance(found, dict) or list(found) != ["q"] or not isinstance(found["q"], str):
        raise Problem(400, "bad_json", 'the body is JSON, but not {"q": "FROM …"}')
    return found["q"]


def asked(
    sources: Sources, query: Query, meter: RegisteredMeter, where: Mapping[str, Sequence[str]], given_pairs: Pairs
) -> Question:
    """As the same question to `series` would be; `given_pairs` are further parameters of it."""
    given = {
        "step": query.every or query.window,
        "window": _window(query),
        "from": query.since,
        "to": query.until,
        "limit": None if query.limit is None else str(query.limit),
    }
    pairs = [
        *((f"{LABEL}{label}", value) for label, values in where.items() for value in values),
        *((name, value) for name, value in given.items() if value is not None),
        *(("by", label) for label in query.by),
        *(("fn", name) for name in query.compute or ()),
        *given_pairs,
    ]
    try:
        question = parsing.series(
            meter,
            pairs,
            now_ms=sources.clock_ms(),
            settings=sources.settings.query,
            is_whole=query.window is None,
            tables=sources.tables,
        )
    except Problem as problem:
        raise _pointed(problem, query) from None
    return replace(question, query=str(query))


def _window(query: Query) -> str | None:
    """In hours if the step is not of whole days: then it has a fixed length in every zone, as the step has."""
    if query.every_s is None or query.window_s is None:
        return None
    return f"{query.window_s // HOUR_S}h" if query.every_s % DAY_S and query.window_s % DAY_S == 0 else query.window


def refused(error: QueryError) -> Problem:
    status = 404 if error.code in language.NOT_FOUND else 400
    return Problem(status, error.code, error.detail, position=error.position, excerpt=error.excerpt)


def _pointed(problem: Problem, query: Query) -> Problem:
    """A refusal of the series, in the words of the query and with the position there."""
    name = problem.extra.get("parameter")
    step = "every" if query.every else "window"
    clauses = {"step": step, "window": "window", "from": "since", "to": "until", "limit": "limit", "by": "by"}
    clause = f"compute.{problem.extra.get('function')}" if name == "fn" else clauses.get(str(name))
    for place in (f"{name}.{problem.extra.get('key')}", f"where.{name}"):
        clause = place if place in query.positions else clause
    if clause is None or clause not in query.positions:
        return problem
    detail = problem.detail.replace(f"{name} = ", f"{clause.upper()} ", 1) if name in clauses else problem.detail
    at = query.error("bad_query", detail, clause)
    rest = {key: value for key, value in problem.extra.items() if key != "parameter"}
    return Problem(problem.status, problem.code, detail, position=at.position, excerpt=at.excerpt, **rest)


class Metrics(Collection[str]):
    """The metrics that a meter has counted so far. One is looked up; all are listed only to suggest one of them."""

    def __init__(self, store: Store, registered: RegisteredMeter, known: set[tuple[int, str]]) -> None:
        self._store, self._registered, self._known = store, registered, known
        self._all: list[str] | None = None

    def __contains__(self, metric: object) -> bool:
        if not isinstance(metric, str):
            return False
        if self._registered.kept is not None and metric in self._registered.kept.since_ms:
            return True
        entry = self._registered.set_id, metric
        if entry in self._known:
            return True
        question = StoreQuestion(self._registered, where={METRIC: [metric]}, functions=("count",))
        with self._store.snapshots.take() as snapshot:
            found = bool(snapshot.read(question)["n"].sum())
        if found:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known.add(entry)
        return found

    def __iter__(self) -> Iterator[str]:
        if self._all is None:
            question = StoreQuestion(self._registered, by=(METRIC,), functions=("count",))
            try:
                with self._store.snapshots.take() as snapshot:
                    found = snapshot.read(question, most_rows=MOST_SUGGESTED)
                self._all = found[label_column(METRIC)].to_list()
            except (TooManyRows, TooManyBytes):
                self._all = []
            if self._registered.kept is not None:
                self._all = [*self._registered.kept.since_ms.keys() - {*self._all}, *self._all]
        return iter(self._all)

    def __len__(self) -> int:
        return sum(1 for _ in self)
