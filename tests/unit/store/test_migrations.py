"""Files of older versions: they open, answer the same, and go on; whatever dies on the way."""

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tallymark.aggregates.columns import COLUMNS
from tallymark.store import deltas
from tallymark.store.format import VERSION
from tallymark.store.grains import DAY_S, GRAINS, HOUR_S, MINUTE_S
from tallymark.store.model import Ledger, Stretch, StretchResult
from tallymark.store.protocol import StoreError
from tallymark.store.read_plan import Question
from tallymark.store.sqlite import connection, migrations
from tallymark.store.sqlite.store import SqliteStore

FORMAT_2 = (Path(__file__).parent / "format_2.sql").read_text()
MIDNIGHT = 1_700_006_400
# What the version that wrote the file answered: n, n_value, sum, exact_high, exact_low, min, max by shop.
SHOPS = [("north", 3, 3, None, 3, 255, 1.0, 2.5), ("south", 1, 1, None, 0, 100, 1.0, 1.0)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Rolled days, a late delta that is only in the journal, a dead letter."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as file:
        file.executescript(FORMAT_2)
        file.execute("PRAGMA journal_mode = WAL")
    return path


def shops(store: SqliteStore, step_s: int | None = None) -> list[tuple[object, ...]]:
    with store.snapshots.take() as snapshot:
        answer = snapshot.read(Question(store.registry.meter("main", "sales"), by=["shop"], step_s=step_s))
    return answer.select("label.shop", "n", "n_value", "sum", "exact_high", "exact_low", "min", "max").rows()


def test_it_answers_what_it_answered(old):
    with closing(SqliteStore(old)) as store:
        for step_s in (None, 60, HOUR_S, DAY_S):
            assert shops(store, step_s) == SHOPS
        hours = MIDNIGHT + 47 * HOUR_S
        assert store.upkeep.marks().rolled == {MINUTE_S: hours, HOUR_S: hours, DAY_S: MIDNIGHT + DAY_S}
        assert [letter.detail for letter in store.dead_letters.search(tenant=None, reasons=["bad_time"])] == ["old"]


def test_it_goes_on_counting_where_it_was(old):
    with closing(SqliteStore(old)) as store:
        meter = store.registry.meter("main", "sales").meter_id
        body = deltas.encode(deltas.from_rows([(meter, "north", MIDNIGHT + 60, 1, 1, None, 0, 1, 0.01, 0.01)]))
        assert store.sink.applied("log-a") == {0: 3}
        added = StretchResult(Stretch(0, 3, 4), "log-a", 4, (meter,), body, Ledger(accepted=1, counted=1))
        assert store.sink.apply([added], now_ms=0)
        while store.upkeep.fold(most_points=1).more:
            pass
        for step_s in (None, 60, HOUR_S, DAY_S):
            assert shops(store, step_s) == [("north", 4, 4, None, 3, 256, 0.01, 2.5), SHOPS[1]]


def test_what_was_added_to_format_2_later_may_be_missing(old):
    with closing(sqlite3.connect(old)) as file:
        file.executescript("DROP TABLE gaps; DROP INDEX letters_by_kind;")
    with closing(SqliteStore(old)) as store:
        assert shops(store) == SHOPS
        assert store.registry.gaps(store.registry.meter("main", "sales").meter_id) == []
    assert {"gaps", "letters_by_kind"} <= set(tables(old))


def test_the_tables_of_points_have_the_columns_of_the_aggregates(tmp_path):
    SqliteStore(tmp_path / "store.db").close()
    found = tables(tmp_path / "store.db")
    for grain_s in GRAINS:
        names = {row[0]: f"{row[1]}{' NOT NULL' * row[2]}" for row in found[f"points_{grain_s}"][2:]}
        assert names == {column.name: column.sql_type for column in COLUMNS}
    assert max(column.since for column in COLUMNS) <= VERSION


def test_a_migrated_file_has_the_tables_of_a_new_one(old, tmp_path):
    SqliteStore(old).close()
    SqliteStore(tmp_path / "new" / "store.db").close()
    assert tables(old) == tables(tmp_path / "new" / "store.db")


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(path)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")]
        found = {name: file.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names}
        return {name: [row[1:] for row in rows] for name, rows in found.items()} | {
            "marks": sorted(file.execute("SELECT name FROM marks")),
            "version": file.execute("PRAGMA user_version").fetchall(),
        }


class Dying(sqlite3.Connection):
    """Ends its process at one statement, before it is done or after."""

    left = 0
    after = False

    def execute(self, sql, parameters=()):  # type: ignore[no-untyped-def, override]
        Dying.left -= 1
        if Dying.left == 0 and not Dying.after:
            os._exit(9)
        found = super().execute(sql, parameters)
        if Dying.left == 0:
            os._exit(9)
        return found


def migrate_in_a_child(path: Path, *, die_at: int, after: bool) -> int:
    """Its exit code: 9 if it died, so that what it left behind is what a killed process leaves behind."""
    child = os.fork()
    if child == 0:
        Dying.left, Dying.after = die_at, after
        try:
            migrations.upgrade(path, partial(connection.connect, factory=Dying), wait_s=0)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("after", [False, True])
def test_one_that_is_killed_at_any_statement_is_done_again(old, tmp_path, after):
    whole = old.read_bytes()
    died = 0
    for number in range(1, 1000):
        path = tmp_path / f"{number}" / "store.db"
        path.parent.mkdir()
        path.write_bytes(whole)
        code = migrate_in_a_child(path, die_at=number, after=after)
        with closing(SqliteStore(path)) as store:
            assert shops(store) == SHOPS
        assert tables(path)["version"] == [(VERSION,)]
        if code == 0:
            break
        assert code == 9
        died += 1
    assert died > 20, "a migration has more statements than that"


def test_while_another_process_has_it_open_it_stays_as_it_was(old):
    with closing(connection.connect(old)) as other:
        other.execute("SELECT * FROM marks").fetchall()
        with pytest.raises(StoreError, match="another process has it open; stop every Tallymark"):
            migrations.upgrade(old, connection.connect, wait_s=0.1)
        assert other.execute("SELECT value FROM marks WHERE name = 'hours_through'").fetchone()
    SqliteStore(old).close()


def test_a_newer_one_is_refused_and_untouched(tmp_path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(StoreError, match=f"has format {VERSION + 1}, but this version of Tallymark reads"):
        SqliteStore(path)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_newer_one_is_refused_also_while_its_version_is_only_in_the_write_ahead_log(tmp_path):
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    with closing(connection.connect(path)) as file:
        file.execute("PRAGMA wal_autocheckpoint = 0")
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
        before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith("-shm")}
        assert before["store.db"][60:64] != (VERSION + 1).to_bytes(4, "big")
        with pytest.raises(StoreError, match=f"has format {VERSION + 1}"):
            SqliteStore(path)
        after = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.name.endswith("-shm")}
        assert after == before


def test_many_may_open_an_old_one_at_once(old):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as threads:
        stores = list(threads.map(lambda _: SqliteStore(old), range(8)))
    for store in stores:
        with closing(store):
            assert shops(store) == SHOPS
