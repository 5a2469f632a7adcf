"""Scraping Prometheus endpoints: each from a thread of its own, so that a slow one delays nobody."""

import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from tallymark.agent.prometheus import Increases, parse
from tallymark.agent.refusals import Refusals

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 16_000_000
MAX_TIMEOUT_S = 5.0
HANGING_TIMEOUTS = 3
"""after which a scrape counts as failed though it has not ended: headers that drip in renew the socket's time-out"""
_ACCEPT = "text/plain;version=0.0.4"
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(https?://.+)")

Fetch = Callable[[str, float], str]


class ScrapeFailed(Exception):
    """The endpoint returned nothing readable; says why."""


def target(text: str) -> tuple[str, str]:
    """Name and address of `http://…` (no name) or `orders=http://…`; raises ValueError."""
    named = _NAMED.fullmatch(text)
    name, url = (named[1], named[2]) if named else ("", text)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{text!r} is not an address that can be scraped; write it like http://127.0.0.1:9100/metrics")
    return name, url


def fetch(url: str, timeout_s: float) -> str:
    """The exposition at `url`, all of it within the time."""
    deadline = time.monotonic() + timeout_s
    # No proxy: an endpoint is a neighbour.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"accept": _ACCEPT, "user-agent": "tallymark-agent"})
    body = bytearray()
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            announced = answer.length  # None if it is chunked, whose early end http.client finds itself
            while chunk := answer.read1(65_536):
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise ScrapeFailed(f"the response is larger than {MAX_BODY_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise ScrapeFailed(f"no complete response within {timeout_s:g} s")
            # Counted here, since read1() says nothing, and before Python 3.12.2 `answer.length` does not shrink.
            if announced and len(body) < announced:
                raise ScrapeFailed(f"the response ended {announced - len(body):,} bytes early")
    except urllib.error.HTTPError as error:
        error.close()
        raise ScrapeFailed(f"HTTP {error.code}") from error
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise ScrapeFailed(str(getattr(error, "reason", error))) from error
    except Exception as error:  # http.client's, which have no common ancestor but Exception
        if isinstance(error, ScrapeFailed):
            raise
        raise ScrapeFailed(f"{type(error).__name__}: {error}") from error
    return body.decode(errors="replace")


class Endpoint:
    """One endpoint: what its scrapes found since the last `take`."""

    def __init__(
        self,
        text: str,
        refusals: Refusals,
        *,
        max_metrics: int = 20_000,
        fetch: Fetch = fetch,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        self._max_metrics, self._now_s = max_metrics, now_s
        self._hanging_from_s: float | None = None  # when a scrape under way is to be counted as failed
        self._hanging_s = 0.0
        name, self.url = target(text)
        self._prefix = f"{name}." if name else ""
        self._refusals, self._fetch = refusals, fetch
        self._increases = Increases()
        self._trouble = ""
        self._lock = threading.Lock()
        self._found: dict[str, float] = {}

    def scrape(self, timeout_s: float = MAX_TIMEOUT_S) -> None:
        """Failures are counted, and logged when they begin and end; the seconds in between are a gap."""
        with self._lock:
            self._hanging_s = HANGING_TIMEOUTS * timeout_s
            self._hanging_from_s = self._now_s() + self._hanging_s
        try:
            exposition = parse(self._fetch(self.url, timeout_s), self._refusals)
            if not exposition.counters and not exposition.gauges:
                # A maintenance page, say; accepting it would make all counters look new in the next scrape.
                raise ScrapeFailed("the response contains no samples")
        except ScrapeFailed as error:
            with self._lock:
                self._hanging_from_s = None
                self._fail(str(error))
            return
        grown = self._increases.of(exposition.counters)
        with self._lock:
            self._hanging_from_s = None
            if self._trouble:
                logger.info("scraping %s works again (the problem was: %s)", self.url, self._trouble)
                self._trouble = ""
            for name, value in grown.items():
                # Two scrapes in one interval: growth adds up, levels do not.
                self._put(name, self._found.get(self._prefix + name, 0.0) + value)
            for name, value in exposition.gauges.items():
                self._put(name, value)

    def _put(self, name: str, value: float) -> None:
        full = self._prefix + name
        if full not in self._found and len(self._found) >= self._max_metrics:
            self._refusals.count("too_many", full)
        else:
            self._found[full] = value

    def _fail(self, why: str) -> None:
        self.failures += 1
        if not self._trouble:
            logger.warning("cannot scrape %s: %s; will keep trying (logged once)", self.url, why)
        self._trouble = why

    def take(self) -> dict[str, float]:
        with self._lock:
            now_s = self._now_s()
            if self._hanging_from_s is not None and now_s > self._hanging_from_s:
                self._hanging_from_s = now_s + self._hanging_s
                self._fail("its answer does not end")
            found, self._found = self._found, {}
        return found


class Scraper:
    """`with Scraper(endpoints, every_s=10):` scrapes them all until it is left."""

    def __init__(self, endpoints: list[Endpoint], *, every_s: float) -> None:
        self._every_s = every_s
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"scrape {each.url}", daemon=True)
            for each in endpoints
        ]

    def __enter__(self) -> "Scraper":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not waited for: a scrape under way may take seconds, and its threads end with the process.
        self._stopping.set()

    def _run(self, endpoint: Endpoint) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            endpoint.scrape(min(MAX_TIMEOUT_S, self._every_s))
            due = max(due + self._every_s, time.monotonic())
