"""Every data folder that a released version wrote opens in this one, with every count intact."""

import gc
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tallymark.store.protocol import StoreError
from upgrades import answers, homes, make, story
from upgrades.product import Product

# What is asked of Cassandra's fixtures is asked on a real one and in memory. `lanes` reads the name `stores`.
PLACES = [
    (fixture, place)
    for fixture in homes.fixtures()
    for place in (("sqlite",) if fixture.name.startswith("sqlite") else ("memory", "cassandra"))
]
every_place = pytest.mark.parametrize(
    ("fixture", "stores"), PLACES, ids=[f"{fixture.name}-in-{place}" for fixture, place in PLACES]
)


@pytest.fixture
def home(fixture: homes.Fixture, stores: str, tmp_path: Path) -> Iterator[homes.Home]:
    """A copy of the fixture as this version finds it."""
    found = homes.HOMES[stores](fixture.unpack(tmp_path / "data"))
    yield found
    found.close()


def everything(home: homes.Home, expected: dict[str, Any]) -> dict[str, Any]:
    """The same questions, asked of a store that was just opened."""
    asked = [{name: answer[name] for name in answer if name != "rows"} for answer in expected["answers"]]
    with closing(home.open()) as store:
        return dict(json.loads(json.dumps(answers.everything(store, asked))))


def check(home: homes.Home, expected: dict[str, Any]) -> None:
    found = everything(home, expected)
    for had, has in zip(expected["answers"], found["answers"], strict=True):
        assert has == had
    for name in expected:
        assert found[name] == expected[name], name


def test_fixtures_of_both_stores_are_found() -> None:
    """Nothing below would fail if the folder of the fixtures were empty."""
    assert {fixture.name for fixture in homes.fixtures()} >= {
        *("sqlite-2", "sqlite-5", "sqlite-6", "sqlite-7"),
        *("cassandra-1", "cassandra-5", "cassandra-6", "cassandra-7"),
    }


@every_place
def test_it_answers_as_it_did_and_goes_on_counting_where_it_was_left(home: homes.Home, fixture: homes.Fixture) -> None:
    expected = fixture.read_answers()
    check(home, expected["written"])
    with closing(Product(home.folder, home.open(), deposits=home.deposits)) as product:
        story.goes_on(product)
    check(home, expected["after"])
    with closing(Product(home.folder, home.open(), deposits=home.deposits)) as product:
        sent = count_more(product)
    added = {
        ("events", "n"): Counter(event["event"] for event in sent),
        ("sales", "exact"): Counter(),
        ("refunds", "exact"): Counter(),
    }
    for event in sent:
        if meter := {"purchase": "sales", "refund": "refunds"}.get(event["event"]):
            added[meter, "exact"][event["props"]["shop"]] += round(event["props"]["amount"] * 100)
    before, now = totals(expected["after"]), totals(everything(home, expected["after"]))
    for (meter, aggregate), more in added.items():
        assert len(more) > 1
        had = Counter({label: row[aggregate] for label, row in before[meter].items()})
        had.update(more)
        assert {label: row[aggregate] for label, row in now[meter].items()} == had, meter


def count_more(product: Product) -> list[story.Event]:
    """Events that this version appends itself, some of them twice; what was sent."""
    sent = [event | {"id": f"new {event['id']}"} for event in story.Shop().open(story.at_ms(5, "09:50"), minutes=20)]
    for partition, events in ((0, sent[::2]), (1, sent[1::2]), (1, sent[1:9:2])):
        product.append(partition, story.at_ms(5, "10:11"), events)
    product.apply(now_ms=story.at_ms(5, "10:12"))
    product.fold()
    product.roll(now_ms=story.at_ms(7, "00:00"))
    return sent


def totals(found: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """meter -> label -> aggregates of all time, of the meters with one label; without the estimates behind them."""
    return {
        answer["meter"]: {row[0]: dict(zip(answers.AGGREGATES, row[1:], strict=False)) for row in answer["rows"]}
        for answer in found["answers"]
        if len(answer["by"]) == 1 and not answer["where"] and answer["start_s"] is None and answer["step_s"] is None
    }


@every_place
def test_a_newer_one_is_refused_and_left_as_it_is(home: homes.Home) -> None:
    home.make_newer()
    before = home.contents()
    said = refusal(home)
    assert "has format 1000" in said
    assert "use the version that wrote it" in said
    assert home.contents() == before


def refusal(home: homes.Home) -> str:
    try:
        home.open().close()
    except StoreError as error:
        said = str(error)
    else:
        pytest.fail("it was opened")
    gc.collect()  # the refused store's connection goes with the error that held it
    return said


@pytest.mark.parametrize("place", ["sqlite", "memory"])
def test_the_story_that_fixtures_tell_comes_out_as_reckoned(place: str, tmp_path: Path) -> None:
    """What `make upgrade-fixtures` will write for the next release."""
    home = homes.HOMES[place](tmp_path)
    reckoning = make.tell(home)
    make.checked(home, reckoning)
    with closing(Product(home.folder, home.open(), deposits=home.deposits)) as product:
        story.goes_on(make.Both(product, reckoning))
    make.checked(home, reckoning)
