"""Writes the fixture of this version: `make upgrade-fixtures`, once for every release that changed how data is stored.

The story is told to the product and to the reckoning; only if both come to the same is the folder kept.
"""

import json
import lzma
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import cassandras
from tallymark.settings import Settings
from tallymark.store.format import VERSION
from upgrades import answers, homes, story
from upgrades.product import Product
from upgrades.reckoning import Reckoning, Version


class Both:
    """Tells the product and the reckoning alike."""

    def __init__(self, product: Product, reckoning: Reckoning) -> None:
        self._both = (product, reckoning)

    def __getattr__(self, name: str) -> Any:
        def tell(*arguments: Any, **named: Any) -> None:
            for each in self._both:
                getattr(each, name)(*arguments, **named)

        return tell


def tell(home: homes.Home) -> Reckoning:
    """Brings a new folder into the state that is kept."""
    reckoning = Reckoning()
    product = Product(home.folder, home.open(), deposits=home.deposits)
    try:
        # Held when the folder is left, as after a kill.
        assert all(product.store.lease(role, "one", lease_s=10).take() for role in ("pipeline", "keeper"))
        story.told(Both(product, reckoning))
    finally:
        product.close()
    return reckoning


def asked(reckoning: Reckoning) -> list[answers.Question]:
    """About every meter that has not been deleted."""
    found: list[answers.Question] = []
    for name, version in reckoning.versions.items():
        definition = version.definition
        own = list(answers.questions(name, definition.labels, _one_series(version), grain_s=definition.grain_s))
        found += own
        if "late" in definition.mapping:
            found += [question | {"late": True} for question in own]
    return found


def checked(home: homes.Home, reckoning: Reckoning) -> dict[str, Any]:
    """What the store answers, once it is what was reckoned."""
    store = home.open()
    try:
        found = json.loads(json.dumps(answers.everything(store, asked(reckoning))))
    finally:
        store.close()
    for answer in found["answers"]:
        _check_rows(answer, reckoning.read(answer), reckoning.versions[answer["meter"]])
    for partition, terms in reckoning.ledger.items():
        assert found["ledger"][str(partition)] == dict.fromkeys(found["ledger"][str(partition)], 0) | terms
    assert found["applied"] == {str(partition): end for partition, end in reckoning.applied.items()}
    assert found["letter_counts"] == sorted([*kind, events] for kind, events in reckoning.letters.items())
    assert set(found["tenants"]) == set(reckoning.tenants)
    for tenant, terms in reckoning.tenants.items():
        assert found["tenants"][tenant] == dict.fromkeys(found["tenants"][tenant], 0) | terms
    assert {(kind, name): body for kind, _, name, body, *_ in found["documents"]} == reckoning.documents
    assert {each["name"]: _titles(each) for each in found["tables"]} == reckoning.tables
    assert {each["name"]: _stored(each) for each in found["windows"]} == reckoning.windows
    assert {_name(each) for each in found["meters"]} == set(reckoning.versions)
    for each in found["meters"]:
        _check_meter(each, reckoning.versions[_name(each)])
    return dict(found)


def make(kind: str, target: Path) -> homes.Fixture:
    """The fixture of this version; raises if there is one already, since one that was released never changes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        home = homes.HOMES[kind](folder)
        reckoning = tell(home)
        fixture = homes.Fixture(f"{kind}-{_schema(kind, folder)}", target)
        if fixture.archive.exists():
            raise FileExistsError(f"{fixture.archive} exists, and what a version wrote never changes")
        written = checked(home, reckoning)
        left = homes.copy(folder, Path(scratch) / "left")
        if isinstance(home, homes.CassandraHome):
            (left / homes.TABLES).write_text(json.dumps(home.dump()))
        product = Product(folder, home.open(), deposits=home.deposits)
        story.goes_on(Both(product, reckoning))
        product.close()
        expected = {"written": written, "after": checked(home, reckoning)}
        home.close()
        homes.pack(left, fixture.archive)
    fixture.answers.write_bytes(lzma.compress(json.dumps(expected).encode(), preset=9))
    return fixture


def _one_series(version: Version) -> dict[str, str]:
    """The labels of the first series that was counted."""
    labels = next(iter(version.measured))[0]
    return dict(zip(version.definition.labels, labels, strict=True))


def _check_rows(answer: dict[str, Any], expected: list[list[Any]], version: Version) -> None:
    rough = len(version.definition.approximate)
    found, exact = answer["rows"], [row[: len(row) - rough] for row in expected]
    assert [row[: len(row) - rough] for row in found] == exact, answer
    for row, other in zip(found, expected, strict=True):
        for value, right in zip(row[len(row) - rough :], other[len(other) - rough :], strict=True):
            # Percentiles within 1.09 %; of so few distinct values none is missed.
            assert value == right or abs(value - right) <= 0.0109 * abs(right), (answer, row, other)


def _titles(table: dict[str, Any]) -> list[Any]:
    """Of each row, the newest first."""
    return [[version["columns"]["title"] for version in history] for _, history in sorted(table["histories"].items())]


def _stored(lineage: dict[str, Any]) -> dict[int, bytes]:
    return {start_s: body.encode() for start_s, body in lineage["stored"]}


def _name(found: dict[str, Any]) -> str:
    name = found["definition"]["name"]
    return f"{found['tenant']}/{name}" if "tenant" in found else str(name)


def _check_meter(found: dict[str, Any], version: Version) -> None:
    gaps = [[partition, *gap] for partition, gaps in sorted(version.gaps.items()) for gap in gaps]
    assert found["version"] == version.number
    assert found["live_from"] == sorted(map(list, version.live_from.items()))
    assert (found["gaps"], found["missed"]) == (gaps, sum(missed for *_, missed in gaps))
    assert (found["broken"] is not None) == version.is_broken


def _schema(kind: str, folder: Path) -> int:
    if kind == "cassandra":
        return VERSION
    with closing(sqlite3.connect(Settings(data=str(folder)).store_file)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


if __name__ == "__main__":
    homes.WRITTEN.mkdir(exist_ok=True)
    try:
        for chosen in sys.argv[1:] or ("sqlite", "cassandra"):
            try:
                print(f"wrote {make(chosen, homes.WRITTEN).archive}")
            except FileExistsError as error:
                print(error)
    finally:
        cassandras.stop()
