"""A table in memory: every version of every row, in columns, sorted by key and time."""

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from tallymark.events.labels import EXACT, label
from tallymark.tables.model import ALWAYS_MS, Definition, Type, Value

KEY, FROM_MS, GONE = "key", "from_ms", "gone"
TYPES: dict[Type, pl.DataType] = {"text": pl.String(), "number": pl.Float64(), "boolean": pl.Boolean()}
MOST_VIEWS = 8

Version = tuple[int, bool, tuple[Value, ...]]
"""from when, whether it ends the row, the values in the order of the columns"""
Versions = Mapping[str, Sequence[Version]]
"""key -> its versions by time"""


@dataclass(frozen=True, slots=True)
class Row:
    """One version of a row as it is shown."""

    key: str
    from_ms: int | None
    """None if it has always held"""
    columns: Mapping[str, Value]
    is_deleted: bool = False


def column(name: str) -> str:
    """The name in a frame: prefixed, since a user may call a column `key`."""
    return f"c.{name}"


def schema(columns: Mapping[str, Type]) -> dict[str, pl.DataType]:
    given = {column(name): TYPES[type_] for name, type_ in columns.items()}
    return {KEY: pl.String(), FROM_MS: pl.Int64(), GONE: pl.Boolean(), **given}


def frame_of(versions: Versions, columns: Mapping[str, Type]) -> pl.DataFrame:
    flat = [(key, from_ms, gone, *values) for key, several in versions.items() for from_ms, gone, values in several]
    names = schema(columns)
    by_column = list(zip(*flat, strict=True)) if flat else [()] * len(names)
    series = [pl.Series(name, values, type_) for (name, type_), values in zip(names.items(), by_column, strict=True)]
    return pl.DataFrame(series)


def merged(frames: Sequence[pl.DataFrame], columns: Mapping[str, Type]) -> pl.DataFrame:
    """All versions; of those of one key and time the one of the last frame."""
    wanted = schema(columns)
    whole = pl.concat([pl.DataFrame(schema=wanted), *(completed(each, columns) for each in frames)])
    if len(frames) > 1:
        whole = whole.unique([KEY, FROM_MS], keep="last", maintain_order=True)
    return whole.sort(KEY, FROM_MS)


def patched(frame: pl.DataFrame, patch: pl.DataFrame, columns: Mapping[str, Type]) -> pl.DataFrame:
    """As `merged`, of a frame that is sorted and few versions: only the keys that they name are sorted anew."""
    is_touched = pl.col(KEY).is_in(patch[KEY].unique().implode())
    frame = completed(frame, columns)
    touched = merged([frame.filter(is_touched), patch], columns)
    return frame.filter(~is_touched).merge_sorted(touched, key=KEY)


def completed(frame: pl.DataFrame, columns: Mapping[str, Type]) -> pl.DataFrame:
    """With exactly these columns, null where it lacks one."""
    wanted = schema(columns)
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, type_).alias(name) for name, type_ in wanted.items()
    )


def encode(frame: pl.DataFrame) -> bytes:
    """As Arrow's stream, which every later version can read."""
    text = io.BytesIO()
    frame.write_ipc_stream(text, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return text.getvalue()


def decode(content: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(content))


def live_rows(frame: pl.DataFrame) -> int:
    """Keys whose last version is a row."""
    return int(frame.select((is_last() & ~pl.col(GONE)).sum()).item())


def is_last() -> pl.Expr:
    """Of its key, in a frame that is sorted."""
    return pl.col(KEY).ne_missing(pl.col(KEY).shift(-1))


def pruned(frame: pl.DataFrame, *, most: int) -> tuple[pl.DataFrame, int | None]:
    """Without the versions that ended first, if there are too many, and the time up to which some are missing.

    A row that holds is never dropped.
    """
    excess = frame.height - most
    if excess <= 0:
        return frame, None
    next_ms = pl.when(is_last()).then(pl.when(pl.col(GONE)).then(pl.col(FROM_MS))).otherwise(pl.col(FROM_MS).shift(-1))
    ended = frame.select(next_ms.alias("ended"), pl.col(FROM_MS)).with_row_index().filter(pl.col("ended").is_not_null())
    gone = ended.sort("ended", FROM_MS).head(excess)
    if gone.is_empty():
        return frame, None
    kept = frame.with_row_index().join(gone.select("index"), on="index", how="anti").drop("index")
    return kept.sort(KEY, FROM_MS), int(gone["ended"].max())  # type: ignore[arg-type]


class View:
    """The rows that hold at one moment, one a key."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self._texts: dict[str, pl.Series] = {}

    def texts(self, keys: pl.Series, name: str) -> pl.Series:
        """The value of a column as a label, for each key; an unknown key is shown as itself, a null as nothing."""
        found = self._text_column(name).gather(self._found(keys))
        return pl.DataFrame({"text": found, "key": keys}).select(pl.coalesce("text", "key")).to_series()

    def values(self, keys: Sequence[str], name: str) -> list[Value]:
        """The value of a column for each key; null for an unknown one."""
        return [
            shown_value(each) for each in self.frame[column(name)].gather(self._found(pl.Series(keys, dtype=pl.String)))
        ]

    def keys_with(self, name: str, texts: Iterable[str]) -> list[str]:
        """The keys that are shown as one of these texts, unknown ones among them."""
        wanted = pl.Series(list(dict.fromkeys(texts)), dtype=pl.String)
        known = self.frame[KEY].filter(self._text_column(name).is_in(wanted.implode()))
        return [*known, *wanted.filter(self._found(wanted).is_null())]

    def _found(self, keys: pl.Series) -> pl.Series:
        """The place of each key, null where there is none. They are sorted, so no index is needed that would have to
        be made anew after every patch: 10,000 keys among 200,000 take 8 ms of CPU."""
        known = self.frame[KEY]
        if known.is_empty():
            return pl.Series([None] * keys.len(), dtype=pl.UInt32)
        places = known.search_sorted(keys, side="left").clip(0, known.len() - 1)
        return places.set((known.gather(places) != keys).fill_null(True), None)

    def _text_column(self, name: str) -> pl.Series:
        if name not in self._texts:
            values = self.frame[column(name)]
            if values.dtype != pl.String:
                values = pl.Series([label(each) for each in values], dtype=pl.String)
            self._texts[name] = values.fill_null("")
        return self._texts[name]


class Table:
    """See `Definition`; `token` is another one whenever anything of it changes."""

    def __init__(self, definition: Definition, frame: pl.DataFrame, *, token: str = "") -> None:
        self.definition, self.frame, self.token = definition, frame, token
        self._views: OrderedDict[int, View] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """Of memory, about, with the rows of one moment."""
        return 2 * int(self.frame.estimated_size())

    @cached_property
    def _moments(self) -> list[int]:
        return sorted(self.frame[FROM_MS].unique().to_list())

    def at(self, moment_ms: int) -> View:
        """What holds at a moment."""
        place = bisect_right(self._moments, moment_ms)
        found = self._views.get(place)
        if found is None:
            frame = self.frame
            if place < len(self._moments):
                frame = frame.filter(pl.col(FROM_MS) <= moment_ms)
            found = self._views[place] = View(frame.filter(is_last() & ~pl.col(GONE)))
            while len(self._views) > MOST_VIEWS:
                self._views.popitem(last=False)
        return found

    def page(self, *, at_ms: int, search: str, after: str | None, limit: int) -> tuple[list[Row], bool]:
        """Rows by key, and whether more follow. `search` is a part of a key or value, in any case."""
        rows = self.at(at_ms).frame
        if after is not None:
            rows = rows.filter(pl.col(KEY) > after)
        if search:
            texts = [pl.col(name).cast(pl.String) for name in rows.columns if name not in (FROM_MS, GONE)]
            wanted = search.lower()
            rows = rows.filter(
                pl.any_horizontal(
                    each.str.to_lowercase().str.contains(wanted, literal=True).fill_null(False) for each in texts
                )
            )
        return self._rows(rows.head(limit)), rows.height > limit

    def history(self, key: str) -> list[Row]:
        """Every version of one row, the newest first."""
        return self._rows(self.frame.filter(pl.col(KEY) == key))[::-1]

    def versions(self, columns: Iterable[str], *, keys: Sequence[str] | None = None) -> dict[str, list[Version]]:
        """Of all keys or of some, with the values of these columns; null where it has none of that name."""
        frame = self.frame
        if keys is not None:
            frame = frame.filter(pl.col(KEY).is_in(pl.Series(keys, dtype=pl.String).implode()))
        names = [column(name) if column(name) in frame.columns else None for name in columns]
        lists = [frame[name].to_list() if name else [None] * frame.height for name in names]
        values: Iterable[tuple[Value, ...]] = zip(*lists, strict=True) if lists else [()] * frame.height
        found: dict[str, list[Version]] = {}
        for key, from_ms, gone, each in zip(frame[KEY], frame[FROM_MS], frame[GONE], values, strict=True):
            found.setdefault(key, []).append((from_ms, gone, each))
        return found

    def _rows(self, frame: pl.DataFrame) -> list[Row]:
        names = list(self.definition.columns)
        return [
            Row(
                key,
                None if from_ms == ALWAYS_MS else from_ms,
                {} if gone else dict(zip(names, map(shown_value, values), strict=True)),
                is_deleted=gone,
            )
            for key, from_ms, gone, *values in frame.select(list(schema(self.definition.columns))).iter_rows()
        ]


def shown_value(value: Value) -> Value:
    """A whole number without the .0 that its float has."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    return value
