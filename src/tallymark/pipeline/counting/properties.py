"""Properties as meters see them: the label text, and the number if it is one."""

from collections.abc import Collection
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from tallymark.events.frame import PROP
from tallymark.events.labels import label
from tallymark.meters.evaluate import number as number_of


def text_column(name: str) -> str:
    """The column with a property's label text; null where it is missing or empty."""
    return f"text:{name}"


def number_column(name: str) -> str:
    """The column with a property as a finite number; null where it is none."""
    return f"number:{name}"


class PropertyColumns:
    """How compiled `where` expressions reach the columns of a decoded table (`meters.compile.Columns`)."""

    def text(self, name: str) -> pl.Expr:
        if name == "value":
            return label_of_number(pl.col("value"))
        return pl.col("event") if name == "event" else pl.col(text_column(name))

    def number(self, name: str) -> pl.Expr:
        if name == "value":
            return pl.col("value")
        return finite(pl.col("event")) if name == "event" else pl.col(number_column(name))


def property_columns(table: pa.Table, properties: Collection[str]) -> list[pl.Series]:
    """Text and number of each asked property, for the events of one table."""
    strays = _strays(table, properties)
    columns = []
    for name in sorted(properties):
        typed = _series(table, name)
        text, number = _text(typed), _number(typed)
        if name in strays:
            stray_text = pl.Series([label(value) for value in strays[name]], dtype=pl.String)
            stray_number = pl.Series([number_of(value) for value in strays[name]], dtype=pl.Float64)
            text = pl.select(pl.coalesce(text, stray_text)).to_series()
            number = pl.select(pl.coalesce(number, stray_number)).to_series()
        columns.append(pl.select(pl.when(text != "").then(text)).to_series().alias(text_column(name)))
        columns.append(number.alias(number_column(name)))
    return columns


def _series(table: pa.Table, name: str) -> pl.Series:
    if PROP + name not in table.column_names:
        return pl.Series([None] * table.num_rows, dtype=pl.String)
    series = pl.from_arrow(table[PROP + name])
    assert isinstance(series, pl.Series)
    return series


def _text(series: pl.Series) -> pl.Series:
    if series.dtype == pl.Boolean:
        return series.cast(pl.Int8).replace_strict({1: "true", 0: "false"}, return_dtype=pl.String)
    if series.dtype == pl.Float64:
        return pl.select(label_of_number(pl.lit(series))).to_series()
    return series.cast(pl.String)


def label_of_number(number: pl.Expr) -> pl.Expr:
    """The label text of floats: as `events.labels.label` has it, worked out once a distinct value."""
    return number.map_batches(_float_labels, return_dtype=pl.String)


def _float_labels(numbers: pl.Series) -> pl.Series:
    distinct = numbers.drop_nulls().unique()
    if distinct.is_empty():
        return pl.Series(numbers.name, [None] * len(numbers), dtype=pl.String)
    labels = [label(value) for value in distinct]
    return numbers.replace_strict(distinct, labels, default=None, return_dtype=pl.String)


def _number(series: pl.Series) -> pl.Series:
    if series.dtype == pl.Boolean:
        return pl.Series([None] * len(series), dtype=pl.Float64)
    return pl.select(finite(pl.lit(series))).to_series()


def finite(column: pl.Expr) -> pl.Expr:
    """The column as finite numbers; text that is no number is null."""
    number = column.cast(pl.Float64, strict=False)
    return pl.when(number.is_finite()).then(number)


def _strays(table: pa.Table, properties: Collection[str]) -> dict[str, list[Any]]:
    """Values of asked properties that got no column of their own in their frame: rare, so taken one by one."""
    if "rest" not in table.column_names or table["rest"].null_count == table.num_rows:
        return {}
    found: dict[str, list[Any]] = {}
    for row, text in enumerate(table["rest"].to_pylist()):
        for name, value in (msgspec.json.decode(text) if text else {}).items():
            if name in properties:
                found.setdefault(name, [None] * table.num_rows)[row] = value
    return found
