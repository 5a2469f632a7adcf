"""The journal as questions and folds see it: with the limits to the series of meters applied."""

import sqlite3
from collections.abc import Collection, Generator, Mapping

from tallymark.store.admission import Admission, Source
from tallymark.store.folding import Batch
from tallymark.store.point_sets import Limit, PointSets
from tallymark.store.sqlite.journal import entries
from tallymark.store.sqlite.registry import all_sets
from tallymark.store.sqlite.series import all_series


class LimitedJournal:
    def __init__(self) -> None:
        self._admission = Admission()
        self._sets = PointSets()

    def grains(self, connection: sqlite3.Connection, sets: Collection[int]) -> Mapping[int, int]:
        """As `base_grains`."""
        return self._sets.grains(sets, lambda: all_sets(connection))

    def applied(self, connection: sqlite3.Connection, batches: Generator[Batch], *, folded: int) -> Generator[Batch]:
        """These batches of the journal, for a connection that sees this mark."""

        def limits(sets: Collection[int]) -> Mapping[int, Limit]:
            return self._sets.limits(sets, lambda: all_sets(connection))

        source = Source(
            folded,
            limits,
            series=lambda set_id: all_series(connection, set_id),
            batches=lambda after, through: entries(connection, after=after, through=through, sketches=False),
        )
        return self._admission.applied(batches, source)
