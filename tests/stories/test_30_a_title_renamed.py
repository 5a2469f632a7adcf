"""Story 30, its first half: a title is renamed midway, and every range shows the one that held at its end.

minute   0          20                30          40
         3 plays    2 plays           renamed     1 play
"""

import http.client
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def renamed(tallymark, hour_ms):
    tallymark.put_meter(name="story30", event="story30", by=["video"])
    tallymark.send(
        {"event": "story30", "id": f"{minute}/{number}", "time": hour_ms + minute * MINUTE_MS, "props": {"video": "A"}}
        for minute, plays in ((0, 3), (20, 2), (40, 1))
        for number in range(plays)
    )
    status, _ = tallymark.exchange("PUT", "/v1/tables/story30?key=video", [{"video": "A", "title": "Working title"}])
    assert status == 201
    row = {"video": "A", "title": "Final title", "from": hour_ms + 30 * MINUTE_MS}
    status, done = tallymark.exchange("PATCH", "/v1/tables/story30", [row])
    assert (status, done["changed"]) == (200, 1)

    def ask(minutes, **parameters):
        span = {"from": hour_ms, "to": hour_ms + minutes * MINUTE_MS, "consistency": "fresh"}
        return tallymark.get("/v1/meters/story30/top", **span, **parameters)["items"]

    return ask


@pytest.mark.parametrize(
    ("minutes", "title", "plays"), [(10, "Working title", 3), (30, "Working title", 5), (60, "Final title", 6)]
)
def test_the_title_is_that_of_the_end_of_the_range(renamed, minutes, title, plays):
    (item,) = renamed(minutes, by="video", **{"with": "story30.title"})
    assert (item["with"], item["value"]) == ({"story30.title": title}, {"count": plays})
    (item,) = renamed(minutes, by="story30.title")
    assert (item["labels"], item["value"]) == ({"story30.title": title}, {"count": plays})


def test_a_table_that_is_larger_than_events_may_be_goes_through_the_public_port(tallymark):
    rows = [{"video": f"v{number}", "title": "x" * 1000} for number in range(6_000)]
    status, done = tallymark.exchange("PUT", "/v1/tables/story30_large?key=video", rows)
    assert (status, done["rows"]) == (201, 6_000)
    assert tallymark.get("/v1/tables/story30_large/rows/v7")["history"][0]["columns"]["title"] == "x" * 1000
    # Refused by what it declares, before a byte of it is read.
    connection = http.client.HTTPConnection(urlsplit(tallymark.url).netloc)
    connection.putrequest("PATCH", "/v1/tables/story30_large")
    connection.putheader("content-length", "33000000")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (413, "too_large")
    connection.close()


def test_the_example_of_the_document_runs(tallymark, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    first, second = re.findall(r"```sh\n(.*?)```", text, re.S)[:2]
    command = f"{sys.executable} -m tallymark"
    script = re.sub(r"^tallymark ", f"{command} ", first + second, flags=re.MULTILINE)
    environment = {**tallymark._client_environment(), "COLUMNS": "200"}
    done = subprocess.run(
        ["sh", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    told = [line.split() for line in done.stdout.splitlines()]
    assert ["videos:", "3", "rows", "(3", "added)"] in told
    assert ["1", "A", "Alpha", "1"] in told
    assert ["1", "music", "2"] in told
    assert ["2", "news", "1"] in told
