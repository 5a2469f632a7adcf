"""The whole product on a data folder of the oldest version that is kept."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from running import Running, to_ms
from upgrades import answers, homes, story

pytestmark = pytest.mark.timeout(900)

OLDEST = min(
    (fixture for fixture in homes.fixtures() if fixture.name.startswith("sqlite")),
    key=lambda fixture: int(fixture.name.partition("-")[2]),
)
STEPS = {3_600: "1h", 86_400: "1d"}
WHOLE = {"from": story.at_ms(1, "00:00"), "to": story.at_ms(6, "00:00")}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    OLDEST.unpack(made.data)
    try:
        yield made.start()
        made.stop()
    finally:
        made.close()


def test_up_answers_as_before_counts_what_waited_and_goes_on(running: Running) -> None:
    expected = OLDEST.read_answers()["after"]
    account = running.settled()
    terms = expected["ledger"].values()
    assert {term: account[term] for term in terms_of(expected)} == {
        term: sum(each[term] for each in terms) for term in terms_of(expected)
    }
    running.wait_until(
        lambda: letters(running) == expected["letter_counts"], seconds=60, what="the dead letters taken in"
    )
    meters = {each["definition"]["name"]: each for each in expected["meters"]}
    for name, meter in meters.items():
        shown = running.get(f"/v1/meters/{name}")
        assert (shown["version"], shown["missed"]) == (meter["version"], meter["missed"])
    asked = 0
    for answer in expected["answers"]:
        definition = meters[answer["meter"]]["definition"]
        for found, row in over_http(running, answer):
            asked += 1
            assert found == spoken(row, definition), answer
    assert asked > 150
    check_that_it_goes_on(running, expected)


def check_that_it_goes_on(running: Running, expected: dict[str, Any]) -> None:
    (total,) = (answer["rows"] for answer in expected["answers"] if is_total_of(answer, "sales"))
    before = dict(zip(answers.AGGREGATES, total[0], strict=True))
    purchase = {"event": "purchase", "props": {"shop": "shop 1", "amount": 0.02}}
    running.send([{**purchase, "id": "after 1"}, {**purchase, "id": "after 2"}, {**purchase, "id": "after 1"}])
    after = running.total("sales")
    assert after["count"] == before["n"] + 2
    assert after["sum"] == float(Decimal(before["exact"] + 4).scaleb(-2))


def terms_of(expected: dict[str, Any]) -> list[str]:
    return list(expected["ledger"]["0"])


def letters(running: Running) -> list[list[Any]]:
    return sorted([each["hop"], each["reason"], each["events"]] for each in running.get("/v1/dlq")["counts"])


def is_total_of(answer: Mapping[str, Any], meter: str) -> bool:
    is_whole = answer["start_s"] is None and answer["step_s"] is None
    return answer["meter"] == meter and is_whole and not answer["by"] and not answer["where"]


def over_http(running: Running, answer: Mapping[str, Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """What is answered now beside the row of what was; nothing for questions that HTTP asks in another way."""
    path = f"/v1/meters/{answer['meter']}"
    where = {f"label.{name}": values for name, values in answer["where"].items()}
    bounds = {"from": answer["start_s"] * 1000, "to": answer["end_s"] * 1000} if answer["start_s"] else {}
    by, step_s, rows = answer["by"], answer["step_s"], answer["rows"]
    if not by and step_s is None:
        yield running.get(f"{path}/total", **bounds, **where, consistency="fresh")["value"], rows[0]
    elif step_s is None:
        found = running.get(f"{path}/top", by=",".join(by), k=1000, **(bounds or WHOLE), **where, consistency="fresh")
        values = {tuple(item["labels"][name] for name in by): item["value"] for item in found["items"]}
        assert len(values) == len(rows)
        for row in rows:
            yield values[tuple(row[: len(by)])], row[len(by) :]
    elif not by and step_s in STEPS and not bounds:
        asked = {"step": STEPS[step_s], **WHOLE, **where, "consistency": "fresh"}
        (only,) = running.get(f"{path}/series", **asked)["series"]
        points = {to_ms(point.pop("time")) // 1000: point for point in only["points"]}
        busy = [bucket_s for bucket_s, point in points.items() if point.get("count", 1)]
        assert {row[0] for row in rows} <= set(busy)
        assert "count" not in points[busy[0]] or len(busy) == len(rows)
        for row in rows:
            yield points[row[0]], row[1:]


def spoken(row: Sequence[Any], definition: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the store as HTTP gives it."""
    of = dict(zip(answers.AGGREGATES, row, strict=True))
    total: Any = of["sum"] or 0.0
    if "decimals" in definition:
        total = Decimal(of["exact"] or 0).scaleb(-definition["decimals"])
    average = float(total / of["n_value"]) if of["n_value"] else None
    values = {"count": of["n"], "sum": float(total), "min": of["min"], "max": of["max"], "avg": average}
    return {function: values[function] for function in definition["compute"]}
