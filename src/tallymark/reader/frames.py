"""Answers as flat rows, and those as data frames of Polars or pandas, which are imported when they are asked for."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars


def row(
    labels: Mapping[str, str],
    value: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    change: Mapping[str, Any] | None,
    *,
    time: datetime | None = None,
    at: Mapping[str, datetime | None] | None = None,
    added: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One flat row. A comparison adds `before.count`, `difference.count` and `percent.count`, a window `at.count`.

    A label called like another column becomes `label.NAME`, a column of a table `with.NAME`. The server names the
    columns of its CSV so, too.
    """
    rest: dict[str, Any] = {} if time is None else {"time": time}
    numbers: dict[str, Any] = {**value, **{f"at.{name}": moment for name, moment in (at or {}).items()}}
    for name, number in (before or {}).items():
        numbers[f"before.{name}"] = number
    for name, each in (change or {}).items():
        numbers |= {f"difference.{name}": each.difference, f"percent.{name}": each.percent}
    taken = rest.keys() | numbers.keys()
    named = {f"label.{name}" if name in taken else name: text for name, text in labels.items()}
    taken |= named.keys()
    beside = {f"with.{name}" if name in taken else name: each for name, each in (added or {}).items()}
    return rest | named | beside | numbers


def to_polars(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "polars.DataFrame":
    try:
        import polars
    except ModuleNotFoundError as error:
        raise _missing("polars") from error
    if not rows:
        moment = polars.Datetime("ms", "UTC")
        return polars.DataFrame(schema={name: moment if name == "time" else polars.String for name in columns})
    data = {name: [row.get(name) for row in rows] for name in _columns(rows, columns)}
    return polars.DataFrame(data, schema={name: _dtype(values) for name, values in data.items()})


def _dtype(values: Sequence[Any]) -> Any:
    """By all values, not the first hundred: a column of nulls is of floats, and one Decimal makes a column exact."""
    import polars

    present = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in present):
        return polars.String
    if any(isinstance(value, datetime) for value in present):
        return polars.Datetime("ms", "UTC")
    if any(isinstance(value, Decimal) for value in present):
        places = max(-int(value.as_tuple().exponent) for value in present if isinstance(value, Decimal))
        return polars.Decimal(38, max(0, places))
    if present and all(isinstance(value, bool) for value in present):
        return polars.Boolean
    if present and all(isinstance(value, int) for value in present):
        return polars.Int64 if all(-(2**63) <= value < 2**63 for value in present) else polars.Int128
    return polars.Float64


def to_pandas(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pandas.DataFrame":
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise _missing("pandas") from error
    return pandas.DataFrame(list(rows), columns=_columns(rows, columns))


def _columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row)) if rows else list(columns)


def _missing(package: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f'to_{package}() needs {package}, which is not installed; pip install "tallymark[{package}]"', name=package
    )
