"""Events by tenant: a tenant's events meet that tenant's meters and no others.

Nearly every stretch has one tenant, and then nothing is split.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl

from tallymark.pipeline.counting.decode import NO_VALUES, Decoded


def by_tenant(events: Decoded) -> Iterator[tuple[str, Decoded]]:
    """Each tenant with its part of `table` and `values`, in the order of `tenants`; `table` has the column `row`."""
    if events.owner is None:
        yield events.tenants[0], events
        return
    tables = _parts(events.table, events.owner)
    values = _parts(events.values, events.owner)
    for place, tenant in enumerate(events.tenants):
        table = tables.get((place,), events.table.clear())
        names = frozenset(table["event"].unique())
        yield tenant, replace(events, table=table, values=values.get((place,), NO_VALUES), names=names)


def per_tenant(events: Decoded, chosen: npt.NDArray[np.bool_] | None = None) -> list[int]:
    """How many of the decoded events, or of those chosen, each tenant has, in the order of `tenants`."""
    if events.owner is None:
        return [len(events.ids.high) if chosen is None else int(chosen.sum())]
    owner = events.owner if chosen is None else events.owner[chosen]
    counts: list[int] = np.bincount(owner, minlength=len(events.tenants)).tolist()
    return counts


def _parts(rows: pl.DataFrame, owner: npt.NDArray[np.int32]) -> dict[tuple[object, ...], pl.DataFrame]:
    """In one pass over the rows, however many tenants there are."""
    if rows.is_empty():
        return {}
    owned = rows.with_columns(owner=pl.Series(owner[rows["row"].to_numpy()]))
    return owned.partition_by("owner", as_dict=True, include_key=False)
