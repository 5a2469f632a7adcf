"""`/tallymark.js` in real Chromium: a page of another origin, a real collector, and a network that fails."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from tallymark import log as logs
from tallymark.events import columns, frame
from tallymark.settings import Settings
from tallymark.testing import until

SERVE = "import sys; from tallymark.collector.service import run; from tallymark.settings import load; "
SERVE += "sys.exit(run(load(environment={}, flags={'data': sys.argv[1], 'collector.port': 0,"
SERVE += " 'collector.cors_origins': [sys.argv[2]]})))"
EVENTS = "**/v1/events"


class Site:
    """A page on an origin of its own, which loads the script from the collector."""

    def __init__(self) -> None:
        site = self

        class Pages(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.page if self.path == "/" else b"<!doctype html><title>another page</title>"
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.page = b""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Collector:
    """In a process of its own, alone; the test reads its log."""

    def __init__(self, folder: Path, origin: str) -> None:
        self.settings = Settings(data=str(folder))
        place = self.settings.run_folder / "collector.json"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, str(folder), origin], env=environment)
        until(lambda: place.exists() or self.process.poll() is not None, "the collector is ready", deadline_s=60)
        assert self.process.poll() is None, "the collector ended"
        self.url = "http://" + json.loads(place.read_bytes())["address"]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Those of one name in the log, copies too."""
        reader = logs.open_reader(self.settings, "events")
        found = [
            row
            for partition, at in reader.positions().items()
            for record in reader.read(partition, at.first, at.synced)
            for row in columns.rows(frame.decode(record.payload))
            if row["event"] == name
        ]
        reader.close()
        return found

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture(scope="module")
def collector(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    made = Collector(tmp_path_factory.mktemp("snippet"), site.origin)
    site.page = (
        f'<!doctype html><title>a page</title><script src="{made.url}/tallymark.js"></script>'
        f'<script>tallymark.init({{url: "{made.url}/"}});</script>'
    ).encode()
    yield made
    made.close()


@pytest.fixture
def page(browser: Browser, collector: Collector, site: Site) -> Iterator[Page]:
    wrong: list[str] = []
    opened = browser.new_page()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto(site.origin)
    yield opened
    opened.close()
    assert not wrong


def settled(page: Page) -> dict[str, int]:
    """The counts once nothing is queued."""
    page.wait_for_function("tallymark.stats().queued === 0", timeout=30_000)
    return page.evaluate("tallymark.stats()")


def failing(page: Page, fail: Callable[[Route], None], *, times: int) -> list[dict[str, Any]]:
    """The first requests meet `fail`, the rest go through; the bodies of all, as they are sent."""
    bodies: list[dict[str, Any]] = []

    def handle(route: Route) -> None:
        bodies.append(json.loads(route.request.post_data or ""))
        if len(bodies) <= times:
            fail(route)
        else:
            route.continue_()

    page.route(EVENTS, handle)
    return bodies


def answered(status: int, body: dict[str, Any]) -> Callable[[Route], None]:
    headers = {"access-control-allow-origin": "*", "content-type": "application/json"}
    return lambda route: route.fulfill(status=status, headers=headers, body=json.dumps(body))


def test_events_of_a_foreign_page_arrive_with_all_they_carry(page: Page, collector: Collector) -> None:
    page.evaluate("tallymark.count('plain', {video: 'A', nr: 7})")
    page.evaluate("tallymark.event('plain', {value: 12.5, id: 'mine', time: Date.now() - 60000, values: {cpu: 0.5}})")
    assert settled(page) == {"called": 2, "delivered": 2, "refused": 0, "dropped": 0, "beaconed": 0, "queued": 0}
    first, second = sorted(collector.events("plain"), key=lambda event: event["id"] == "mine")
    assert (first["props"], first["value"], len(first["id"])) == ({"video": "A", "nr": 7}, None, 32)
    assert (second["value"], second["values"], second["id"]) == (12.5, {"cpu": 0.5}, "mine")
    assert 50_000 < second["received"] - second["time"] < 120_000


def test_fifty_go_at_once_and_the_rest_soon_after(page: Page, collector: Collector) -> None:
    bodies = failing(page, lambda route: None, times=0)
    page.evaluate("for (let n = 0; n < 120; n++) tallymark.count('many', {n})")
    assert settled(page)["delivered"] == 120
    assert [len(body["events"]) for body in bodies] == [50, 50, 20]
    assert sorted(event["props"]["n"] for event in collector.events("many")) == list(range(120))


def test_a_lost_answer_is_asked_for_again_with_the_same_id(page: Page, collector: Collector) -> None:
    """The collector has the event; the page cannot know."""

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    failing(page, lose_the_answer, times=1)
    before = page.evaluate("Date.now()")
    page.evaluate("tallymark.count('lost')")
    assert settled(page)["delivered"] == 1
    first, second = collector.events("lost")
    assert first["id"] == second["id"]
    assert first["resent"] is None
    assert second["resent"] >= before, "says when it was first tried"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_refusal_for_now_is_tried_again(page: Page, collector: Collector, status: int) -> None:
    name = f"for_now_{status}"
    bodies = failing(page, answered(status, {"detail": "not now"}), times=2)
    page.evaluate(f"tallymark.count('{name}')")
    assert settled(page)["delivered"] == 1
    assert len({body["events"][0]["id"] for body in bodies}) == 1
    (event,) = collector.events(name)
    # 429 says that nothing was taken; after the others nobody knows.
    assert (event["resent"] is None) == (status == 429)


def test_only_what_is_worth_it_is_sent_again(page: Page, collector: Collector) -> None:
    errors = [{"index": 0, "retryable": False}, {"index": 2, "retryable": True}]
    failing(page, answered(202, {"accepted": 1, "rejected": 2, "errors": errors}), times=1)
    page.evaluate("for (const n of ['bad', 'taken', 'later']) tallymark.count('some', {n})")
    told = settled(page)
    assert (told["called"], told["delivered"], told["refused"]) == (3, 2, 1)
    assert [event["props"]["n"] for event in collector.events("some")] == ["later"]


def test_what_is_wrong_is_refused_for_good(page: Page, collector: Collector) -> None:
    page.evaluate("tallymark.count('no name'); tallymark.count('fine')")
    told = settled(page)
    assert (told["delivered"], told["refused"]) == (1, 1)


def test_the_queue_is_bounded_and_drops_are_counted(page: Page, collector: Collector) -> None:
    bodies = failing(page, lambda route: route.abort(), times=3)
    page.evaluate("for (let n = 0; n < 1100; n++) tallymark.count('flood')")
    assert page.evaluate("tallymark.stats()")["dropped"] == 100
    told = settled(page)
    assert (told["called"], told["delivered"], told["dropped"]) == (1100, 1000, 100)
    assert max(len(body["events"]) for body in bodies) == 50
    copies = Counter(event["id"] for event in collector.events("flood"))
    assert (len(copies), set(copies.values())) == (1000, {1})


def test_what_waits_when_the_page_goes_is_sent_by_beacon(page: Page, collector: Collector, site: Site) -> None:
    """Larger than one beacon may be."""
    page.evaluate("for (let n = 0; n < 45; n++) tallymark.count('going', {n, text: 'é'.repeat(500)})")
    page.goto(f"{site.origin}/other")
    until(lambda: len(collector.events("going")) >= 45, "all of it arrives")
    found = collector.events("going")
    assert len({event["id"] for event in found}) == len(found)


HIDE = """
    Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
"""


def test_a_hidden_page_sends_at_once_and_hears_the_answer(page: Page, collector: Collector) -> None:
    page.evaluate("tallymark.count('hidden');" + HIDE)
    told = settled(page)
    assert (told["beaconed"], told["delivered"]) == (0, 1)
    page.evaluate("tallymark.count('hidden')")
    assert settled(page)["delivered"] == 2
    until(lambda: len(collector.events("hidden")) == 2, "both arrive")


@pytest.mark.parametrize("key", ["", "secret"])
@pytest.mark.parametrize("leaving", [HIDE, "dispatchEvent(new Event('pagehide'))"])
def test_what_fails_while_a_page_leaves_waits_again(page: Page, collector: Collector, key: str, leaving: str) -> None:
    """120 kB, of which 60 may be on their way: a beacon or request beyond that is refused by the browser."""
    name = f"leaving_{bool(key)}_{leaving == HIDE}".lower()
    page.evaluate(f"tallymark.init({{url: '{collector.url}', key: '{key}'}})")
    sent: list[int] = []

    def handle(route: Route) -> None:
        sent.append(len(route.request.post_data or ""))
        if len(sent) == 1 and (key or leaving == HIDE):
            route.abort()
        else:
            route.continue_()

    page.route(EVENTS, handle)
    many = f"for (let n = 0; n < 120; n++) tallymark.count('{name}', {{n, text: 'x'.repeat(900)}});"
    at_once = page.evaluate(f"() => {{ {many} {leaving}; return tallymark.stats(); }}")
    assert at_once["queued"] + at_once["beaconed"] == 120
    assert 0 < at_once["beaconed"] < 60 if not key and leaving != HIDE else at_once["beaconed"] == 0
    told = settled(page)
    assert told["delivered"] + told["beaconed"] == 120
    assert (told["refused"], told["dropped"], told["beaconed"]) == (0, 0, at_once["beaconed"])
    until(lambda: len(collector.events(name)) == 120, "all of it arrives, once")
    found = collector.events(name)
    assert len({event["id"] for event in found}) == 120
    if key or leaving == HIDE:
        assert any(event["resent"] for event in found), "the request that failed may have arrived"


@pytest.mark.parametrize("leaving", ["", "dispatchEvent(new Event('pagehide'))"])
def test_a_page_may_name_its_tenant_also_when_it_leaves(page: Page, collector: Collector, leaving: str) -> None:
    name = "of_a_tenant_leaving" if leaving else "of_a_tenant"
    page.evaluate(f"tallymark.init({{url: '{collector.url}', tenant: 'acme'}})")
    page.evaluate(f"() => {{ tallymark.count('{name}'); {leaving}; }}")
    until(lambda: len(collector.events(name)) == 1, "it arrives")
    assert collector.events(name)[0]["tenant"] == "acme"
    assert settled(page)["beaconed"] == (1 if leaving else 0)


def of_tenants(collector: Collector, name: str) -> Counter[str]:
    return Counter(event["tenant"] for event in collector.events(name))


@pytest.mark.parametrize(
    ("name", "leaving"),
    [("switched", ""), ("switched_hidden", HIDE), ("switched_left", "dispatchEvent(new Event('pagehide'))")],
    ids=["staying", "hidden", "leaving"],
)
def test_queued_events_go_to_the_tenant_they_were_counted_for(
    page: Page, collector: Collector, name: str, leaving: str
) -> None:
    page.evaluate(
        f"""() => {{
            for (const tenant of ["acme", "globex", "acme"]) {{
                tallymark.init({{url: '{collector.url}', tenant}});
                for (let n = 0; n < 10; n++) tallymark.count('{name}');
            }}
            {leaving};
        }}"""
    )
    told = settled(page)
    assert told["delivered"] + told["beaconed"] == 30
    until(lambda: len(collector.events(name)) == 30, "all arrive")
    assert of_tenants(collector, name) == {"acme": 20, "globex": 10}


def test_a_retry_goes_to_the_first_tenant_and_holds_up_no_other(page: Page, collector: Collector) -> None:
    page.evaluate(f"tallymark.init({{url: '{collector.url}', tenant: 'acme'}})")
    down = True

    def handle(route: Route) -> None:
        if "tenant=acme" in route.request.url and down:
            answered(503, {"detail": "not now"})(route)
        else:
            route.continue_()

    page.route(EVENTS + "*", handle)
    with page.expect_response(lambda answer: answer.status == 503):
        page.evaluate("tallymark.count('retried')")
    page.evaluate(f"tallymark.init({{url: '{collector.url}', tenant: 'globex'}}); tallymark.count('retried')")
    page.wait_for_function("tallymark.stats().delivered === 1", timeout=30_000)
    assert of_tenants(collector, "retried") == {"globex": 1}
    down = False
    assert settled(page)["delivered"] == 2
    assert of_tenants(collector, "retried") == {"acme": 1, "globex": 1}


def test_events_before_the_first_init_go_where_it_says(page: Page, collector: Collector) -> None:
    page.evaluate("tallymark = undefined")
    page.add_script_tag(url=f"{collector.url}/tallymark.js?again")
    page.evaluate("tallymark.count('early')")
    assert page.evaluate("tallymark.stats()")["queued"] == 1
    page.evaluate(f"tallymark.init({{url: '{collector.url}', tenant: 'acme'}})")
    assert settled(page)["delivered"] == 1
    assert of_tenants(collector, "early") == {"acme": 1}


def test_a_hidden_page_has_at_most_60_kB_on_their_way(page: Page, collector: Collector) -> None:
    page.evaluate("window.sizes = []; window.fetch = (_, {body}) => new Promise(() => sizes.push(body.length)); 0")
    page.evaluate("for (let n = 0; n < 120; n++) tallymark.count('held', {text: 'x'.repeat(900)});" + HIDE)
    page.evaluate(HIDE)
    assert 50_000 < sum(page.evaluate("sizes")) <= 60_500
    told = page.evaluate("tallymark.stats()")
    assert (told["queued"], told["beaconed"]) == (120, 0)
