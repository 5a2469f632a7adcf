"""`tallymark.Reader`: asks a running Tallymark."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload
from urllib.parse import quote, urlencode

from tallymark.client.transport import HttpTransport, Request
from tallymark.reader import answers
from tallymark.reader.answers import Items, Series, Total
from tallymark.reader.errors import Unanswered
from tallymark.reader.exchanges import Exchanges
from tallymark.reader.live import Live
from tallymark.reader.parameters import Duration, Labels, LabelValue, Moment, pairs, path

Words = str | Iterable[str]
Consistency = Literal["fresh", "cached", "stale"]
Late = Literal["without", "only", "with"]
LabelFilter = LabelValue | Iterable[LabelValue]

LONGEST_GET = 4_000
"""a longer query is sent as a body: servers on the way may cut an address"""

_Made = TypeVar("_Made")


class Reader:
    """Totals, series, tops and changes of the meters of one tenant.

    Filters are keywords named like the meter's labels, `total("views", video="A")`; a list means any of them. A label
    called like a parameter goes into `where={"step": …}`.

    Asks again when the server is busy or away for a moment, for `timeout_s` in all; then raises `Unanswered`.
    Threads may share a Reader; processes should not.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        tenant: str | None = None,
        key: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0")
        self._url, self._tenant, self._key, self._timeout_s = url, tenant, key, timeout_s
        self._exchanges = Exchanges(self._connect)
        # A wrong address, tenant or key is an error here and not at the first question.
        self.url = self._connect().url

    @overload
    def total(
        self,
        meter: str,
        *,
        where: Labels | None = None,
        by: None = None,
        with_: Words | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        fn: Words | None = None,
        window: Duration | None = None,
        over: Literal["max", "min", "avg"] | None = None,
        compare: Duration | None = None,
        late: Late | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
        **labels: LabelFilter,
    ) -> Total: ...

    @overload
    def total(
        self,
        meter: str,
        *,
        where: Labels | None = None,
        by: Words,
        with_: Words | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        fn: Words | None = None,
        window: Duration | None = None,
        over: Literal["max", "min", "avg"] | None = None,
        compare: Duration | None = None,
        late: Late | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
        **labels: LabelFilter,
    ) -> Items: ...

    def total(  # noqa: PLR0913
        self,
        meter: str,
        *,
        where: Labels | None = None,
        by: Words | None = None,
        with_: Words | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        fn: Words | None = None,
        window: Duration | None = None,
        over: Literal["max", "min", "avg"] | None = None,
        compare: Duration | None = None,
        late: Late | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
        **labels: LabelFilter,
    ) -> Total | Items:
        """One number for each function: over all time, or from `from_` up to but not including `to`.

        With `by`, one item for each combination of these labels, or columns of tables (`videos.channel`); `with_` adds
        columns of tables to each item. With `window`, the greatest number (or what `over`
        says) of all windows of that length in the range. With `compare`, also the number of an earlier range.
        """
        asked = {
            "from": from_, "to": to, "by": by, "with": with_, "fn": fn, "window": window, "over": over,
            "compare": compare, "late": late, "tz": tz, "consistency": consistency,
        }  # fmt: skip
        target = path(meter, "total", pairs(asked, where=where, labels=labels, question="total"))
        if by is None:
            return self._ask(target, answers.total)
        return self._ask(target, lambda data: answers.items(data, _words(by)))

    def series(  # noqa: PLR0913
        self,
        meter: str,
        *,
        where: Labels | None = None,
        by: Words | None = None,
        with_: Words | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        step: Duration | None = None,
        fn: Words | None = None,
        window: Duration | None = None,
        compare: Duration | None = None,
        late: Late | None = None,
        limit: int | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
        **labels: LabelFilter,
    ) -> Series:
        """The meter over time, the last hour by minute unless told otherwise; with `by` a line for each combination.

        `window` longer than `step` makes windows overlap: one of that length begins at every step.
        """
        asked = {
            "from": from_, "to": to, "step": step, "by": by, "with": with_, "fn": fn, "window": window,
            "compare": compare, "late": late, "limit": limit, "tz": tz, "consistency": consistency,
        }  # fmt: skip
        target = path(meter, "series", pairs(asked, where=where, labels=labels, question="series"))
        return self._ask(target, lambda data: answers.series(data, _words(by)))

    def top(  # noqa: PLR0913
        self,
        meter: str,
        *,
        where: Labels | None = None,
        by: Words | None = None,
        with_: Words | None = None,
        k: int | None = None,
        from_: Moment | None = None,
        to: Moment | None = None,
        fn: str | None = None,
        rank: Literal["value", "growth"] | None = None,
        window: Duration | None = None,
        over: Literal["max", "min", "avg"] | None = None,
        compare: Duration | None = None,
        late: Late | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
        **labels: LabelFilter,
    ) -> Items:
        """The largest series by `fn`, the first ten of the last hour unless told otherwise.

        `rank="growth"` ranks by how much more it is than in the range before, or in the one that `compare` names.
        """
        asked = {
            "from": from_, "to": to, "by": by, "with": with_, "k": k, "fn": fn, "rank": rank, "window": window,
            "over": over, "compare": compare, "late": late, "tz": tz, "consistency": consistency,
        }  # fmt: skip
        target = path(meter, "top", pairs(asked, where=where, labels=labels, question="top"))
        return self._ask(target, lambda data: answers.items(data, _words(by)))

    def query(
        self,
        text: str,
        *,
        with_: Words | None = None,
        tz: str | None = None,
        consistency: Consistency | None = None,
    ) -> Series:
        """The answer to a query: `FROM web-1, web-2 SELECT latency WINDOW 1m COMPUTE avg, percentile(99)`."""
        asked = {"with": ",".join(_words(with_)) or None, "tz": tz, "consistency": consistency}
        rest = [(name, value) for name, value in asked.items() if value is not None]
        target = f"/v1/query?{urlencode([('q', text), *rest])}"
        if len(target) <= LONGEST_GET:
            return self._ask(target, answers.series)
        body = text.encode()
        request = Request("POST", f"/v1/query?{urlencode(rest)}", body, {"content-type": "text/plain; charset=utf-8"})
        return self._answer(request, answers.series)

    def live(self, meter: str, *, where: Labels | None = None, since: str | None = None, **labels: LabelFilter) -> Live:
        """What is added to the meter from now on, or after the changes whose `id` was `since`, as it is applied.

        ```python
        with reader.live("views", video="A") as live:
            for changes in live:
                print(sum(change["count"] for change in changes))
        ```
        """
        filters = urlencode(pairs({}, where=where, labels=labels, question="live"))
        target = f"/v1/meters/{quote(meter, safe='')}/live" + (f"?{filters}" if filters else "")
        return Live(self._connect, target, timeout_s=self._timeout_s, since=since)

    def close(self) -> None:
        """Close idle connections. A Live has a connection of its own, and goes on."""
        self._exchanges.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Reader({self.url!r})"

    def _connect(self) -> HttpTransport:
        return HttpTransport(self._url, key=self._key, tenant=self._tenant, timeout_s=self._timeout_s)

    def _ask(self, target: str, make: Callable[[dict[str, Any]], _Made]) -> _Made:
        return self._answer(Request("GET", target), make)

    def _answer(self, request: Request, make: Callable[[dict[str, Any]], _Made]) -> _Made:
        answer = self._exchanges.ask(request, timeout_s=self._timeout_s)
        data = answers.decode(answer.body)
        try:
            if data is not None:
                return make(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unexpected(request) from error
        raise self._unexpected(request)

    def _unexpected(self, request: Request) -> Unanswered:
        where = f"{request.method} {self.url}{request.path.partition('?')[0]}"
        return Unanswered(f"unexpected answer to {where}; is this really a Tallymark server?", status=200)


def _words(by: Words | None) -> tuple[str, ...]:
    if by is None:
        return ()
    return tuple(word.strip() for part in ([by] if isinstance(by, str) else by) for word in part.split(","))
