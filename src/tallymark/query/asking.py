"""How a question over HTTP is answered: from the cache, computed now, or from what was last known."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from tallymark.http import APPLIED, Problem, decode_positions
from tallymark.query import formats
from tallymark.query.answers import Answer
from tallymark.query.cache import Computed, Positions
from tallymark.query.delivery import AWAY, delivered, settled, stale
from tallymark.query.parameters import Given, sort_out
from tallymark.query.parsing import Question
from tallymark.query.response import Response
from tallymark.query.retrying import of_a_moment
from tallymark.query.routes import Make, Request
from tallymark.query.sources import Sources
from tallymark.store.protocol import Store

Understand = Callable[[Request], Question]
Compute = Callable[[Sources, Question], Answer]

HOW = ("format", "consistency")


def asking(sources: Sources, kind: str, understand: Understand, compute: Compute) -> Make:
    """Answers requests of one kind. The store may be away in any of these steps."""

    def answer(request: Request) -> Response | Future[Response]:
        how = _how(request)
        form, consistency = how.one("format") or formats.accepted(request.headers("accept")), how.one("consistency")
        text = _text(request, form)

        def deliver(get: Callable[[], Response]) -> Response:
            now_ms = sources.clock_ms()
            try:
                found = get()
            except AWAY:
                last = sources.last_known.get(text)
                if last is None or consistency != "stale":
                    raise
                found = stale(last, now_ms=now_ms)
            else:
                sources.last_known.keep(text, found)
            return delivered(found, if_none_match=request.headers("if-none-match"), now_ms=now_ms)

        try:
            found = _cached(sources, kind, understand(request), compute, request, form, is_fresh=consistency == "fresh")
        except AWAY as error:
            return deliver(_raising(error))
        return settled(found, deliver)

    return answer


def _cached(
    sources: Sources, kind: str, question: Question, compute: Compute, request: Request, form: str, *, is_fresh: bool
) -> Response | Future[Response]:
    def computed() -> Computed:
        """Encoded here, so that a cached answer is not encoded again and its size is known."""
        answer = compute(sources, question)
        if is_fresh:
            _check_fresh(answer, within_s=sources.settings.query.fresh_within_s)
        return Computed(formats.rendered(answer, form, made_ms=sources.clock_ms()), answer.applied)

    # A header that cannot be decoded is not from one of our collectors: then the answer is computed afresh.
    said = request.headers(APPLIED)
    since = {} if said is None else decode_positions(said)
    return sources.cache.get(
        question.key(f"{kind} {form}"),
        lambda: of_a_moment(computed),
        fresh=is_fresh or since is None,
        since=since,
        applied=lambda: of_a_moment(lambda: _applied(sources.store)),
    )


def _check_fresh(answer: Answer, *, within_s: float) -> None:
    lag_ms = answer.freshness["lag_ms"]
    if lag_ms is not None and lag_ms <= within_s * 1000:
        return
    behind = (
        "it is unknown how far the counts are behind" if lag_ms is None else f"counts are {lag_ms / 1000:,.1f} s behind"
    )
    raise Problem(
        503,
        "not_fresh",
        f"{behind}, and consistency=fresh allows query.fresh_within_s = {within_s:g} s;"
        " try again, or ask with consistency=cached",
        headers={"retry-after": "5"},
        limit=within_s,
        **({} if lag_ms is None else {"actual": lag_ms / 1000}),
    )


def _applied(store: Store) -> Positions:
    with store.snapshots.take() as snapshot:
        return snapshot.applied()


def _how(request: Request) -> Given:
    """How it is to be answered: checked before the store is asked, since that may be away."""
    return sort_out([pair for pair in request.pairs if pair[0] in HOW], allowed=HOW, question=request.path)


def _text(request: Request, form: str) -> str:
    """What the last known answer is known by: all of the request but how it may be answered."""
    pairs: Sequence[tuple[str, str]] = [pair for pair in request.pairs if pair[0] not in HOW]
    return repr((request.tenant, request.path, pairs, request.body, form))


def _raising(error: Exception) -> Callable[[], Response]:
    def get() -> Response:
        raise error

    return get
