"""Parameters of questions: the table of those there are, and how a query string becomes their values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from tallymark.http import Problem
from tallymark.suggest import suggest
from tallymark.tenants import PARAMETER as TENANT

LABEL = "label."
MOST_PAIRS = 2_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row of the table: what the documents say of it."""

    name: str
    meaning: str
    example: str
    repeats: bool = False
    choices: tuple[str, ...] = ()


PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("from", "start of the range: RFC 3339, epoch milliseconds, or relative", "-1h"),
        Parameter("to", "end of the range, exclusive", "now"),
        Parameter("step", "length of a bucket: 1m, 5m, 1h, 1d, 1mo, or any multiple of the meter's grain", "1m"),
        Parameter("window", "length of a window that moves by steps (series) or by grains (total, top)", "5m"),
        Parameter("over", "which of all windows a total or top shows", "max", choices=("max", "min", "avg")),
        Parameter("compare", "what to compare with: previous (the range before), 1d, 1w, 1mo, any length", "1d"),
        Parameter(
            "rank", "top by value, or by growth against the range compared with", "value", choices=("value", "growth")
        ),
        Parameter(
            "late",
            "for meters that put late events aside: without them, only them, or with them",
            "without",
            choices=("without", "only", "with"),
        ),
        Parameter(
            "by", "keys to group by, or columns of tables; several with commas, or repeated", "country", repeats=True
        ),
        Parameter("with", "columns of tables to show with each series, by its key", "videos.title", repeats=True),
        Parameter("k", "how many items", "10"),
        Parameter("fn", "aggregates wanted; top ranks by it", "count", repeats=True),
        Parameter("tz", "zone of days, months and bare dates", "Europe/Vienna"),
        Parameter("limit", "most series (or letters, events) in the answer; the rest is said, not shown", "20"),
        Parameter(
            "format", "form of the answer; else `Accept` decides", "json", choices=("json", "ndjson", "csv", "arrow")
        ),
        Parameter(
            "consistency",
            "`cached` may be an answer up to `query.cache_ttl_s` old; `fresh` is computed now, and refused while the"
            " counts are too far behind; `stale` is the last known answer if the store is away",
            "cached",
            choices=("fresh", "cached", "stale"),
        ),
        Parameter(TENANT, "whose meters and events; the header Tallymark-Tenant says the same", "main"),
    )
}
RESERVED = tuple(PARAMETERS)
"""a key with such a name is filtered by `label.KEY=`"""

Pairs = Sequence[tuple[str, str]]


def read_pairs(query_string: str) -> Pairs:
    """The decoded pairs of a query string, in order; without the tenant, which `tallymark.tenants` reads."""
    try:
        pairs = parse_qsl(query_string, keep_blank_values=True, errors="strict", max_num_fields=MOST_PAIRS)
    except UnicodeDecodeError:
        raise Problem(400, "bad_text", "the query string is not UTF-8 after percent-decoding") from None
    except ValueError:
        raise Problem(400, "too_many_parameters", f"more than {MOST_PAIRS:,} parameters in one question") from None
    return [pair for pair in pairs if pair[0] != TENANT]


@dataclass(frozen=True, slots=True)
class Given:
    """What a question gave: parameters, and labels to filter by."""

    values: Mapping[str, Sequence[str]]
    where: Mapping[str, tuple[str, ...]]

    def one(self, name: str) -> str | None:
        """The value of a parameter that cannot repeat."""
        values = self.values.get(name, ())
        if len(values) > 1:
            raise Problem(
                400, "repeated_parameter", f"{name} is given {len(values)} times; give it once", parameter=name
            )
        return values[0] if values else None

    def words(self, name: str, *, known: Collection[str] = ()) -> tuple[str, ...]:
        """The values of a parameter that may repeat or be a list with commas, each once; a known one stays whole."""
        values = self.values.get(name, ())
        words = [word for value in values for word in ([value] if value in known else map(str.strip, value.split(",")))]
        return tuple(dict.fromkeys(word for word in words if word))

    def whole(self, name: str, *, default: int, most: int, setting: str = "") -> int:
        """A number from 1 to `most`, which a setting may have set."""
        text = self.one(name)
        if text is None:
            return min(default, most)
        if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < 1:
            raise Problem(400, "bad_number", f"{name} = {text!r} is not a whole number from 1", parameter=name)
        if int(text) > most:
            limit = f"{setting} = {most:,}" if setting else f"{most:,}, the most that one answer can have"
            detail = f"{name} = {int(text):,} exceeds {limit}; ask for less"
            raise Problem(400, "over_limit", detail, parameter=name, limit=most, actual=int(text))
        return int(text)


def sort_out(pairs: Pairs, *, allowed: Collection[str], question: str, keys: Sequence[str] = ()) -> Given:
    """Parameters apart from filters; whatever is neither is refused, with the nearest that is known."""
    values: dict[str, list[str]] = {}
    where: dict[str, dict[str, None]] = {}
    for name, value in pairs:
        key = _key(name, allowed, keys, question)
        if key is None:
            values.setdefault(name, []).append(value)
        else:
            where.setdefault(key, {})[value] = None
    given = Given(values, {key: tuple(wanted) for key, wanted in where.items()})
    for name in values:
        _check_choice(given, name)
    return given


def _key(name: str, allowed: Collection[str], keys: Sequence[str], question: str) -> str | None:
    """The key that a pair filters by, or None if it is a parameter."""
    if name.startswith(LABEL):
        key = name.removeprefix(LABEL)
        if key not in keys:
            raise Problem(
                400,
                "unknown_key",
                f"{question} has no key {_cut(key)!r}{suggest(key, keys, what='its keys are')}",
                key=key,
            )
        return key
    if name in RESERVED:
        if name in allowed:
            return None
        if name in keys:
            detail = f"{name} is the name of a parameter; to filter by the key {name} write {LABEL}{name}="
        else:
            detail = f"{question} takes no {name}; it takes {', '.join([*allowed, *keys]) or 'none'}"
        raise Problem(400, "unknown_parameter", detail, parameter=name)
    if name in keys:
        return name
    near = suggest(name, [*keys, *allowed, TENANT])
    raise Problem(400, "unknown_parameter", f"{question} has no key or parameter {_cut(name)!r}{near}", parameter=name)


def _check_choice(given: Given, name: str) -> None:
    choices = PARAMETERS[name].choices
    if choices and (text := given.one(name)) not in choices:
        near = suggest(text or "", choices)
        raise Problem(400, "bad_choice", f"{name} = {_cut(text or '')!r} is not known{near}", parameter=name)


def _cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
