"""Scraping: growth and levels of an endpoint, and what its failures cost (their seconds, nothing else)."""

import http.server
import logging
import threading

import pytest

from tallymark.agent import scraping
from tallymark.agent.scraping import Endpoint, ScrapeFailed, Scraper, fetch, target
from tallymark.testing import until


class Pages:
    """A fetch that answers with the next page; an exception is raised."""

    def __init__(self, *pages: str | Exception) -> None:
        self._pages = list(pages)

    def __call__(self, url: str, timeout_s: float) -> str:
        page = self._pages.pop(0)
        if isinstance(page, Exception):
            raise page
        return page


def page(requests: int, temperature: float = 20) -> str:
    return f"# TYPE requests_total counter\nrequests_total {requests}\ntemperature {temperature}\n"


def test_counters_are_growth_since_the_last_scrape_and_gauges_as_they_are(refusals):
    endpoint = Endpoint("http://x/metrics", refusals, fetch=Pages(page(100), page(103, 21), page(2)))
    endpoint.scrape()
    assert endpoint.take() == {"temperature": 20}
    endpoint.scrape()
    assert endpoint.take() == {"requests_total": 3, "temperature": 21}
    assert endpoint.take() == {}  # between scrapes there is nothing, not the same again
    endpoint.scrape()
    assert endpoint.take() == {"requests_total": 2, "temperature": 20}


def test_two_scrapes_in_one_interval_add_up(refusals):
    endpoint = Endpoint("http://x/metrics", refusals, fetch=Pages(page(1), page(3), page(6, 25)))
    for _ in range(3):
        endpoint.scrape()
    assert endpoint.take() == {"requests_total": 5, "temperature": 25}


def test_a_failing_endpoint_is_counted_every_time_and_said_once(refusals, caplog):
    caplog.set_level("INFO")
    failed = ScrapeFailed("connection refused")
    endpoint = Endpoint("http://x/metrics", refusals, fetch=Pages(page(1), failed, failed, page(5), failed))
    for _ in range(4):
        endpoint.scrape()
    assert endpoint.failures == 2
    assert endpoint.take()["requests_total"] == 4  # what it counted meanwhile is not lost
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "cannot scrape http://x/metrics: connection refused; will keep trying (logged once)",
        "scraping http://x/metrics works again (the problem was: connection refused)",
    ]
    endpoint.scrape()
    assert len(caplog.records) == 3


MAINTENANCE = "<html>back soon</html>\n"


@pytest.mark.parametrize("nothing", ["", "# TYPE requests_total counter\n", MAINTENANCE])
def test_an_answer_without_a_sample_is_a_failure_and_nothing_is_forgotten(refusals, nothing):
    endpoint = Endpoint("http://x/metrics", refusals, fetch=Pages(nothing, page(100), nothing, nothing, page(103)))
    for _ in range(2):
        endpoint.scrape()
    assert endpoint.take() == {"temperature": 20}  # the first look of all, though the second scrape
    for _ in range(3):
        endpoint.scrape()
    assert endpoint.take() == {"requests_total": 3, "temperature": 20}
    assert endpoint.failures == 3


def test_a_scrape_that_does_not_end_is_counted_and_said_once(refusals, caplog):
    caplog.set_level(logging.INFO)  # whatever a test before it in this process has set
    moment, told = 100_000.0, []

    def drip(url: str, timeout_s: float) -> str:
        nonlocal moment
        for _ in range(7):  # the agent takes, meanwhile and from another thread
            moment += timeout_s
            endpoint.take()
            told.append(endpoint.failures)
        return page(1)

    endpoint = Endpoint("http://x/metrics", refusals, fetch=drip, now_s=lambda: moment)
    endpoint.scrape(5)
    assert told == [0, 0, 0, 1, 1, 1, 1]
    moment += 1000  # nothing is under way
    assert endpoint.take() == {"temperature": 20}
    assert endpoint.failures == 1
    assert [record.getMessage() for record in caplog.records] == [
        "cannot scrape http://x/metrics: its answer does not end; will keep trying (logged once)",
        "scraping http://x/metrics works again (the problem was: its answer does not end)",
    ]


def test_further_metrics_than_allowed_are_refused_and_those_that_are_there_go_on(refusals):
    churn = [f"# TYPE hits_total counter\nhits_total {number}\njob{number} 1\n" for number in range(10)]
    endpoint = Endpoint("http://x/metrics", refusals, max_metrics=3, fetch=Pages(*churn))
    for _ in churn:
        endpoint.scrape()
    assert endpoint.take() == {"hits_total": 9, "job0": 1, "job1": 1}
    assert refusals.totals == {"too_many": 8}


def test_a_named_endpoint_has_its_name_before_its_metrics(refusals):
    endpoint = Endpoint("orders=http://x/metrics?a=b", refusals, fetch=Pages(page(1)))
    endpoint.scrape()
    assert endpoint.take() == {"orders.temperature": 20}
    assert endpoint.url == "http://x/metrics?a=b"


@pytest.mark.parametrize("text", ["", "x", "ftp://x/", "http://", "a b=http://x/", "http://x:99999/", "=http://x/"])
def test_no_endpoints(text):
    with pytest.raises(ValueError, match="is not an address that can be scraped"):
        target(text)


@pytest.fixture
def serve():
    """A server with this body and status; its address."""
    servers = []

    def start(body: bytes, status: int = 200, *, length: int | None = None) -> str:
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                if length is not None:
                    self.send_header("content-length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_endpoints_are_scraped_while_it_runs(serve, refusals):
    endpoint = Endpoint(serve(page(1).encode()), refusals)
    with Scraper([endpoint], every_s=1):
        assert until(endpoint.take, "it is scraped") == {"temperature": 20}


def test_what_an_endpoint_does_wrong_is_said(serve, monkeypatch):
    with pytest.raises(ScrapeFailed, match="HTTP 404"):
        fetch(serve(b"", 404), 5)
    with pytest.raises(ScrapeFailed, match="refused"):
        fetch("http://127.0.0.1:9/metrics", 5)
    monkeypatch.setattr(scraping, "MAX_BODY_BYTES", 10)
    with pytest.raises(ScrapeFailed, match="larger than 10 bytes"):
        fetch(serve(b"x" * 11), 5)


def test_an_answer_that_ends_early_is_no_answer(serve):
    body = page(100).encode()
    assert fetch(serve(body, length=len(body)), 5) == page(100)
    with pytest.raises(ScrapeFailed, match="ended 9 bytes early"):
        fetch(serve(body, length=len(body) + 9), 5)


def test_an_endpoint_that_drips_does_not_hold_us_for_longer_than_its_time(serve, monkeypatch):
    moments = iter([0.0, 1.0, 6.0])
    monkeypatch.setattr(scraping.time, "monotonic", lambda: next(moments))
    with pytest.raises(ScrapeFailed, match="within 5 s"):
        fetch(serve(b"x" * 200_000), 5)
