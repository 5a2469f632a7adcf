"""Gentle, lifelike traffic for `tallymark up --demo`: people watching videos, and the calls behind them.

It has a tenant of its own, so it never mixes with the user's events and meters.
"""

import argparse
import logging
import math
import os
import random
import signal
import sys
import threading
import time
import uuid
from typing import Any

import msgspec

from tallymark.client.transport import Answer, HttpTransport, NoAnswer, Request, Transport
from tallymark.events.tenants import DEMO

RATE = 50
BATCH_S = 0.2

logger = logging.getLogger(__name__)

METERS: tuple[dict[str, Any], ...] = (
    {"name": "demo_views", "event": "demo_view", "by": ["video", "country"], "compute": ["count", "sum"]},
    {"name": "demo_latency", "event": "demo_rpc", "by": ["server"], "compute": ["count", "min", "max", "avg"]},
    {"name": "demo_revenue", "event": "demo_sale", "by": ["country"], "compute": ["count", "sum"], "decimals": 2},
)

VIDEOS = (
    "cooking-with-fire", "how-bridges-stand", "tiny-house-tour", "goal-of-the-year", "cat-vs-printer", "deep-sea-live",
    "learn-go-in-an-hour", "city-at-night", "the-last-glacier", "piano-for-beginners", "street-food-seoul", "mars",
    "knots-explained", "guitar-solo-1973", "bread-from-scratch", "fastest-marathon", "origami-crane", "quantum-cat",
)  # fmt: skip
COUNTRIES = {"US": 30, "IN": 22, "BR": 12, "DE": 9, "KR": 8, "JP": 7, "FR": 6, "NG": 4, "PL": 2}
SERVERS = ("web-1", "web-2", "web-3", "web-4")


class Audience:
    """Draws random events; the popularity of videos drifts, so that the top list keeps changing."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._popularity = [1 / (rank + 1) for rank in range(len(VIDEOS))]
        self._random.shuffle(self._popularity)

    def events(self, count: int, now_ms: int) -> list[dict[str, Any]]:
        return [self._event(now_ms - self._random.randrange(int(BATCH_S * 1000))) for _ in range(count)]

    def _event(self, time_ms: int) -> dict[str, Any]:
        draw = self._random
        place = draw.randrange(len(VIDEOS))
        self._popularity[place] = min(1.0, max(0.01, self._popularity[place] * draw.uniform(0.99, 1.0102)))
        kind = draw.random()
        event: dict[str, Any] = {"id": uuid.UUID(int=draw.getrandbits(128)).hex, "time": time_ms}
        country = draw.choices(list(COUNTRIES), list(COUNTRIES.values()))[0]
        if kind < 0.7:
            video = draw.choices(VIDEOS, self._popularity)[0]
            seconds = round(draw.expovariate(1 / 95))
            return {**event, "event": "demo_view", "value": seconds, "props": {"video": video, "country": country}}
        if kind < 0.98:
            millis = round(draw.lognormvariate(math.log(18), 0.6), 1)
            return {**event, "event": "demo_rpc", "value": millis, "props": {"server": draw.choice(SERVERS)}}
        price = draw.choice((1.99, 2.99, 4.99, 9.99))
        return {**event, "event": "demo_sale", "value": price, "props": {"country": country}}


class Refusals:
    """Logs what is refused, each code once: five requests a second would fill the log with the same line."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, request: Request, answer: Answer) -> None:
        for code, detail in _refused(answer):
            if code not in self._logged:
                self._logged.add(code)
                logger.warning("%s %s: %s (HTTP %d, %s)", request.method, request.path, detail, answer.status, code)


def _refused(answer: Answer) -> list[tuple[str, str]]:
    """Code and detail of what was refused: single events, or all of it. A server's trouble (5xx) passes by itself."""
    if answer.status >= 500:
        return []
    told = answer.json()
    told = told if isinstance(told, dict) else {}
    errors = told.get("errors")
    if not errors and answer.status >= 400:
        errors = [told]
    return [
        (str(error.get("code", f"http_{answer.status}")), str(error.get("detail", "refused")))
        for error in errors or []
        if isinstance(error, dict)
    ]


def deliver(transport: Transport, request: Request, stop: threading.Event, refusals: Refusals) -> None:
    """Retries until there is a final answer, always with the same bytes and so the same ids."""
    while not stop.is_set():
        try:
            answer = transport.exchange(request, timeout_s=10.0)
        except NoAnswer:
            stop.wait(1.0)
            continue
        refusals.log(request, answer)
        if not answer.worth_a_retry:
            return
        stop.wait(answer.retry_after_s or 1.0)


def run(transport: Transport, stop: threading.Event, *, rate: float = RATE) -> None:
    refusals = Refusals()
    for meter in METERS:
        path = f"/v1/meters/{meter['name']}"
        headers = {"content-type": "application/json"}
        deliver(transport, Request("PUT", path, msgspec.json.encode(meter), headers), stop, refusals)
    audience = Audience()
    while not stop.wait(BATCH_S):
        # A slow wave, so that a chart has something to show.
        wave = 1 + 0.3 * math.sin(time.time() / 40)
        events = audience.events(max(1, round(rate * BATCH_S * wave)), time.time_ns() // 1_000_000)
        body = msgspec.json.encode(events)
        deliver(transport, Request("POST", "/v1/events", body, {"content-type": "application/json"}), stop, refusals)


def connect(url: str) -> HttpTransport:
    """For the demo's own tenant, whatever is sent."""
    return HttpTransport(url, key=os.environ.get("TALLYMARK_KEY"), tenant=DEMO)


def _watch_parent(stop: threading.Event) -> None:
    # Not through sys.stdin: a thread inside its lock makes the interpreter abort at a clean exit.
    while os.read(0, 4096):
        pass
    stop.set()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tallymark.load.demo", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--rate", type=float, default=RATE, help="events a second")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    if os.environ.get("TALLYMARK_SUPERVISED") == "1":
        threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    run(connect(arguments.url), stop, rate=arguments.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
