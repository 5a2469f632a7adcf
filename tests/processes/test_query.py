"""The role itself: a process over the real store and the real log, asked over HTTP."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tallymark import log as logs
from tallymark.log.protocol import Outgoing
from tallymark.meters.model import Meter
from tallymark.settings import Settings
from tallymark.store import deltas, open_store
from tallymark.store.model import Ledger, Stretch, StretchResult

SERVE = "import sys; from tallymark.query.service import run; from tallymark.settings import load; "
SERVE += "sys.exit(run(load(environment={}, flags={'data': sys.argv[1], 'query.host': sys.argv[2]})))"
NOON = 1_794_744_000
DAY = "2026-11-15"


class Service:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data=str(folder))
        self.store = open_store(self.settings)
        self.log = logs.open_writer(self.settings, "events")
        self.identity = logs.open_reader(self.settings, "events").identity
        self.offset = 0
        self.views = self.store.registry.put_meter("main", Meter("views", ("view",), by=("video", "country")), now_ms=1)
        self.place = self.settings.run_folder / "query.json"
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, str(folder), "127.0.0.1"], stderr=subprocess.PIPE)
        await_(self.place.exists)
        self.address = json.loads(self.place.read_bytes())["address"]

    def send(self, method: str, target: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=10)
        connection.request(method, target, body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    def ask(self, target: str) -> dict:
        return json.loads(self.send("GET", target)[2])

    def count(self, *rows: tuple[str, str, int, int]) -> None:
        """One batch of (video, country, bucket, events), accepted and applied."""
        total = sum(row[3] for row in rows)
        self.log.append([Outgoing(0, b"frame", total)])
        frame = deltas.from_rows(
            [
                (self.views.meter_id, f"{video}\0{country}", bucket, n, 0, None, None, None, None, None)
                for video, country, bucket, n in rows
            ]
        )
        stretch = Stretch(0, self.offset, self.offset + 1)
        revision = self.store.registry.live_meters().revision
        ledger = Ledger(accepted=total, counted=total)
        result = StretchResult(stretch, self.identity, revision, (self.views.meter_id,), deltas.encode(frame), ledger)
        self.store.sink.apply([result], now_ms=int(time.time() * 1000))
        self.offset += 1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)
        self.log.close()
        self.store.close()


def await_(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service(tmp_path_factory.mktemp("query"))
    running.count(("A", "KR", NOON, 3), ("B", "DE", NOON, 1))
    running.count(("A", "KR", NOON + 60, 4), ("A", "DE", NOON + 3600, 2))
    yield running
    running.close()


def test_total_series_and_top_from_the_real_store(service):
    assert service.ask("/v1/meters/views/total?video=A")["value"] == {"count": 9}
    span = f"from={DAY}T12:00:00Z&to={DAY}T14:00:00Z"
    (line,) = service.ask(f"/v1/meters/views/series?{span}&step=1h")["series"]
    assert [point["count"] for point in line["points"]] == [8, 2]
    items = service.ask(f"/v1/meters/views/top?{span}&by=video")["items"]
    assert [(item["labels"]["video"], item["value"]["count"]) for item in items] == [("A", 9), ("B", 1)]


def test_answers_do_not_change_when_the_keeper_folds(service):
    questions = [
        f"/v1/meters/views/series?from={DAY}&to={DAY}T18:00:00Z&step=7m&by=country",
        f"/v1/meters/views/series?from={DAY}&to=2026-11-16&step=1d&tz=Asia/Kathmandu",
        f"/v1/meters/views/top?from={DAY}T12:01:00Z&to={DAY}T13:30:00Z&by=country,video",
        "/v1/meters/views/total",
    ]
    questions = [f"{question}{'&' if '?' in question else '?'}consistency=fresh" for question in questions]
    before = [{**service.ask(question), "freshness": None} for question in questions]
    assert before[-1]["value"] == {"count": 10}
    assert service.store.upkeep.fold(most_points=100).points > 0
    while service.store.upkeep.fold(most_points=100).points:
        pass
    assert service.store.upkeep.marks().folded == service.store.snapshots.journal_end()
    assert [{**service.ask(question), "freshness": None} for question in questions] == before


def test_formats_etags_and_timing_over_http(service):
    question = f"/v1/meters/views/total?video=A&from={DAY}T12:00:00Z&to={DAY}T13:00:00Z"
    status, headers, body = service.send("GET", f"{question}&format=csv")
    assert (status, body, headers["content-type"].partition(";")[0]) == (200, b"count\r\n7\r\n", "text/csv")
    assert headers["server-timing"].startswith("total;dur=")
    assert headers["tallymark-range"] == f"{DAY}T12:00:00Z/{DAY}T13:00:00Z"
    connection = http.client.HTTPConnection(service.address, timeout=10)
    connection.request("GET", f"{question}&format=csv", headers={"If-None-Match": headers["etag"]})
    again = connection.getresponse()
    assert (again.status, again.read(), again.getheader("etag")) == (304, b"", headers["etag"])
    connection.close()


def test_a_query_is_got_or_posted(service):
    text = f"FROM A SELECT views WINDOW 1h COMPUTE count SINCE {DAY}T12:00:00Z UNTIL {DAY}T14:00:00Z"
    status, _, body = service.send("POST", "/v1/query", text.encode())
    assert status == 200
    posted = json.loads(body)
    assert [point["count"] for point in posted["series"][0]["points"]] == [7, 2]
    got = service.ask(f"/v1/query?{urlencode({'q': text})}")
    assert got["series"] == posted["series"]
    status, _, body = service.send("POST", "/v1/query", b"FROM A SELECT vews")
    assert (status, json.loads(body)["position"]) == (404, 14)


def test_freshness_follows_the_log(service):
    assert service.ask("/v1/meters/views/total?consistency=fresh")["freshness"]["lag_ms"] < 1000
    status = service.ask("/v1/status")
    assert (status["accepted"], status["counted"], status["in_flight"]) == (10, 10, 0)
    assert status["positions"][0]["applied"] == status["positions"][0]["synced"] == 2


def test_equal_questions_at_once_get_one_answer_over_http(service):
    answers: list[bytes] = []
    question = "/v1/meters/views/series?from=-24h&by=video&limit=7"
    threads = [
        threading.Thread(target=lambda: answers.append(service.send("GET", question)[2]), daemon=True) for _ in range(8)
    ]
    before = _cache(service)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 8
    after = _cache(service)
    # As many answers as computations: one, unless the threads took longer than an answer is kept.
    assert len(set(answers)) <= after["miss"] - before["miss"]
    assert sum(after.values()) - sum(before.values()) == 8
    assert after["hit"] > before["hit"]


def _cache(service) -> dict[str, float]:
    lines = [line.split() for line in service.send("GET", "/metrics")[2].decode().splitlines()]
    name = "tallymark_query_cache_total"
    found = {line[0]: float(line[1]) for line in lines if line and line[0].startswith(name)}
    return {outcome: found[f'{name}{{outcome="{outcome}"}}'] for outcome in ("hit", "miss", "fresh")}


def test_refusals_have_one_shape(service):
    for method, target, status, code in [
        ("GET", "/v1/meters/vews/total", 404, "unknown_meter"),
        ("GET", "/nowhere", 404, "unknown_path"),
        ("POST", "/v1/meters", 405, "wrong_method"),
        ("GET", "/v1/meters/views/total?video=%FF", 400, "bad_text"),
        ("PUT", "/v1/meters/clicks", 400, "bad_json"),
        ("PUT", "/v1/meters/events", 409, "built_in"),
    ]:
        body = b'{"event": "x"}' if code == "built_in" else b"{" if method == "PUT" else None
        found, headers, content = service.send(method, target, body)
        problem = json.loads(content)
        assert (found, problem["status"], problem["code"]) == (status, status, code)
        assert headers["content-type"] == "application/problem+json"
        assert {"type", "title", "detail"} <= set(problem)


def test_a_meter_can_be_put_asked_and_deleted(service):
    status, _, body = service.send("PUT", "/v1/meters/clicks", b'{"event": "click", "by": ["page"]}')
    assert (status, json.loads(body)["version"]) == (201, 1)
    assert service.ask("/v1/meters/clicks/total?page=x")["value"] == {"count": 0}
    assert service.send("DELETE", "/v1/meters/clicks")[0] == 200
    assert service.send("GET", "/v1/meters/clicks")[0] == 404


def test_a_definition_that_is_too_large_is_not_read(service):
    assert service.send("PUT", "/v1/meters/clicks", b" " * 200_000)[0] == 413


def test_head_has_headers_and_no_body(service):
    status, headers, body = service.send("HEAD", "/healthz")
    assert (status, body) == (200, b"")
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_and_its_files(service):
    for path, kind in [("/", "text/html"), ("/static/app.js", "text/javascript"), ("/static/style.css", "text/css")]:
        status, headers, body = service.send("GET", path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert body


def test_metrics_are_served_and_published(service):
    assert b"tallymark_query_answers_total" in service.send("GET", "/metrics")[2]
    await_((service.settings.run_folder / "query.prom").exists)


def test_live_over_http_goes_on_where_it_was_and_ends_with_the_service(tmp_path):
    service = Service(tmp_path)
    try:
        connection = http.client.HTTPConnection(service.address, timeout=10)
        connection.request("GET", "/v1/meters/views/live?video=A")
        stream = connection.getresponse()
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert _event(stream)["event"] == "start"
        service.count(("A", "KR", NOON, 3), ("B", "DE", NOON, 1))
        change = _event(stream)
        assert json.loads(change["data"])["changes"] == [
            {"labels": {"video": "A", "country": "KR"}, "time": f"{DAY}T12:00:00Z", "count": 3}
        ]
        service.count(("A", "KR", NOON, 5))
        again = http.client.HTTPConnection(service.address, timeout=10)
        again.request("GET", "/v1/meters/views/live", headers={"last-event-id": change["id"]})
        resumed = again.getresponse()
        assert _event(resumed)["event"] == "start"
        assert json.loads(_event(resumed)["data"])["changes"][0]["count"] == 5
        started = time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(5) == 0
        assert time.monotonic() - started < 3
        assert json.loads(_event(resumed)["data"])["reason"] == "stopping"
        assert not service.place.exists()
    finally:
        service.close()


def test_questions_in_hand_are_answered_when_it_stops(tmp_path):
    service = Service(tmp_path)
    statuses: list[int] = []

    def ask() -> None:
        try:
            while True:
                statuses.append(service.send("GET", "/v1/meters/views/series?from=-24h")[0])
        except (OSError, http.client.HTTPException):
            return  # it has stopped

    try:
        asking = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in asking:
            thread.start()
        await_(lambda: len(statuses) > 10)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(10) == 0
        for thread in asking:
            thread.join(10)
        assert set(statuses) == {200}
    finally:
        service.close()


def test_only_pages_and_names_of_its_own_are_answered(service):
    def asked(method: str, target: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(service.address, timeout=10)
        connection.request(method, target, b"{}", headers)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read()).get("code", "")
        connection.close()
        return found

    for host in ("rebound.example", "["):
        assert asked("GET", "/v1/meters", host=host) == (421, "wrong_host")
    assert asked("GET", "/v1/meters", host="localhost", origin="https://b.example") == (200, "")
    for method in ("PUT", "DELETE"):
        assert asked(method, "/v1/meters/views", origin="https://b.example") == (403, "foreign_origin")
    assert asked("DELETE", "/v1/meters/nothing", host="localhost:1", origin="http://localhost:1")[0] == 404


@pytest.mark.parametrize(("sent", "name"), [("no%20such", "no such"), ("no%2520such", "no%20such"), ("a%2Ftotal", "a")])
def test_a_path_is_decoded_once(service, sent, name):
    assert service.ask(f"/v1/meters/{sent}")["meter"] == name


def test_only_loopback_is_served(tmp_path):
    command = [sys.executable, "-c", SERVE, str(tmp_path), "0.0.0.0"]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert b"query.host = 0.0.0.0" in ended.stderr


def _event(stream) -> dict[str, str]:
    """The next message of a stream."""
    found: dict[str, str] = {}
    while True:
        line = stream.readline().decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif "event" in found:
            return found
