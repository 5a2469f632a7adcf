"""Where the windows of a saved query lie."""

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.evaluation import definition
from tallymark.evaluation.definition import Definition
from tallymark.evaluation.plan import NoPlan, Plan, plan, zone_of
from tallymark.meters.model import METRICS, Meter
from tallymark.store.documents import Document
from tallymark.store.model import RegisteredMeter

VIEWS = Meter("views", ("view",), by=("video", "country"))
METERS = [RegisteredMeter(1, 1, METRICS, 0), RegisteredMeter(2, 1, VIEWS, 5_000)]


def planned(
    text: str, *, tz: str | None = None, meters: Any = METERS, changed_ms: int = 9_000, title: str = ""
) -> Plan:
    body = definition.encode(Definition(str(definition.parse(text)), title, tz))
    return plan(Document("query", "main", "q", body, 1, 0, changed_ms), meters)


@given(
    window=st.sampled_from(["1m", "5m EVERY 1m", "1h EVERY 15m", "2d", "3d EVERY 1d", "7d"]),
    tz=st.sampled_from([None, "Europe/Vienna", "America/New_York"]),
    bucket=st.integers(29_000_000, 30_000_000),
    behind=st.integers(0, 20),
)
def test_the_windows_that_cover_a_bucket_are_those_in_which_it_lies(
    window: str, tz: str | None, bucket: int, behind: int
) -> None:
    each, bucket_s = planned(f"FROM * SELECT views WINDOW {window}", tz=tz), bucket * 60
    first = each.at(bucket_s)
    for _ in range(behind):
        first = each.at(first - 1)
    end_s = each.following(bucket_s)
    starts = each.starts(first, end_s)
    assert starts[0] == first
    assert list(starts[1:]) == [each.following(start) for start in starts[:-1]]
    expected = [start for start in starts if start <= bucket_s < each.end(start)]
    assert each.covering(bucket_s, first, end_s) == expected


def test_a_day_of_the_zone_may_have_25_hours() -> None:
    each = planned("FROM * SELECT views WINDOW 1d", tz="Europe/Vienna")
    start = each.at(1_792_900_800)  # noon of 25 October 2026
    assert each.end(start) - start == 25 * 3600
    assert zone_of("UTC") is zone_of(None) is UTC
    assert zone_of("Europe/Vienna") == ZoneInfo("Europe/Vienna")


def test_another_text_zone_or_version_is_another_lineage_and_another_title_is_not() -> None:
    text = "FROM * SELECT views WINDOW 1d"
    same = planned(text).digest
    assert planned(text, title="Views").digest == same
    newer = [RegisteredMeter(7, 2, VIEWS, 20_000)]
    others = {
        planned(text + " BY video").digest,
        planned(text, tz="Europe/Vienna").digest,
        planned(text, meters=newer).digest,
    }
    assert len(others | {same}) == 4
    assert planned(text).since_s == 9
    assert planned(text, meters=newer).since_s == 20


@pytest.mark.parametrize(
    ("text", "meters", "why"),
    [
        ("FROM * SELECT plays WINDOW 1m", METERS, "there is no meter 'plays'"),
        ("FROM * SELECT views WINDOW 1m BY video", [RegisteredMeter(2, 1, Meter("views", ("view",)), 0)], "no label"),
        ("FROM * SELECT views WINDOW 1m COMPUTE p99", METERS, "the meter views no longer computes p99"),
        ("FROM * SELECT views WINDOW 10s", METERS, "10s are no multiple of the meter's grain, 60 s"),
    ],
)
def test_what_the_meters_no_longer_answer_says_why(text: str, meters: Any, why: str) -> None:
    with pytest.raises(NoPlan, match=why):
        planned(text, meters=meters)


@pytest.mark.parametrize(
    "body", ['{"q": 7}', "no JSON", '{"q": "FORM *"}', '{"q": "FROM * SELECT views WINDOW 1d", "tz": "Mars/Base"}']
)
def test_one_that_cannot_be_read_is_a_problem_of_its_own(body: str) -> None:
    with pytest.raises(NoPlan, match="it cannot be read here"):
        plan(Document("query", "main", "q", body, 1, 0, 0), METERS)


@pytest.mark.parametrize("keep", ["all", "queried"])
def test_a_meter_that_is_gone_does_not_become_a_metric_of_another(keep: Any) -> None:
    each = Meter("servers", ("server",), each="values", keep=keep)
    with pytest.raises(NoPlan, match="there is no meter 'views'; there are servers"):
        planned("FROM * SELECT views WINDOW 1m", meters=[RegisteredMeter(3, 1, each, 0)])


def test_a_metric_is_that_of_the_meter_it_was_saved_with() -> None:
    each = planned("FROM * SELECT metrics.'views' WINDOW 1m")
    assert (each.meter.meter.name, each.where) == ("metrics", {"metric": ("views",)})
