"""A real query service whose store the test fills, and real Chromium: shared by the tests of every page."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tallymark import log as logs
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.tenants import MAIN
from tallymark.events.validation import validate
from tallymark.log.protocol import Outgoing
from tallymark.meters import from_mapping
from tallymark.meters.model import Meter
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.count import count
from tallymark.pipeline.counting.history import LogHistory
from tallymark.settings import Settings
from tallymark.store import deltas, open_store
from tallymark.store.model import Ledger, RegisteredMeter, Stretch, StretchResult
from tallymark.testing import until

# The page asks every few seconds, and the machine may be busy: the default of 5 s is too close.
expect.set_options(timeout=30_000)

SERVE = "import sys; from tallymark.query.service import run; from tallymark.settings import load; "
SERVE += "sys.exit(run(load(environment={}, flags={'data': sys.argv[1], 'query.port': int(sys.argv[2])})))"
CLOCKS = Clocks(accept_past_ms=7 * 86_400_000, accept_future_ms=300_000, tolerance_ms=5_000)


class Service:
    """A query service in a process of its own; the test plays collector and pipeline."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data=str(folder))
        self.store = open_store(self.settings)
        self.log = logs.open_writer(self.settings, "events")
        self.identity = logs.open_reader(self.settings, "events").identity
        self.views = self.store.registry.put_meter("main", Meter("views", ("view",), by=("video", "country")), now_ms=1)
        self.offset = 0
        for role in ("collector", "pipeline", "keeper"):
            self.settings.run_folder.mkdir(exist_ok=True)
            place = {"pid": os.getpid(), "address": None, "ready_ms": 1}
            (self.settings.run_folder / f"{role}.json").write_text(json.dumps(place))
        self.port = 0
        self.start()

    def start(self) -> None:
        place = self.settings.run_folder / "query.json"
        command = [sys.executable, "-c", SERVE, self.settings.data, str(self.port)]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not place.exists():
            assert self.process.poll() is None, "the query service ended"
            assert time.monotonic() < deadline, "the query service is not ready after 30 s"
            time.sleep(0.02)
        self.url = "http://" + json.loads(place.read_bytes())["address"]
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self.log.close()
        self.store.close()

    def accept(self, events: int) -> None:
        self.log.append([Outgoing(0, b"frame", events)])

    def send(self, *events: dict[str, Any], tenant: str = MAIN) -> None:
        """What collector and pipeline do with events: into the log, and counted by every meter of the tenant."""
        now_ms = int(time.time() * 1000)
        accepted = validate(Delivery(msgspec.json.encode(events), now_ms), CLOCKS, max_events=len(events))
        assert not accepted.refusals, accepted.refusals
        accepted.tenant = tenant
        ((number, content),) = frame.frames(columns.batch([accepted]))
        self.log.append([Outgoing(0, content, number)])
        live = self.store.registry.live_meters()
        reader = logs.open_reader(self.settings, "events")
        start, end = self.offset, self.offset + 1
        history = LogHistory(reader, 0)
        claims = Claims(self.settings.run_folder, 0, start=start, end=end, horizon_ms=600_000, history=history)
        with claims:
            counted = count(reader.read(0, start, end), claims=claims, meters=live.meters)
        result = StretchResult(
            Stretch(0, start, end),
            self.identity,
            live.revision,
            tuple(each.meter_id for each in live.meters),
            deltas.encode(counted.deltas),
            counted.ledger,
            received=counted.received,
            tenants=counted.ledgers,
        )
        self.store.sink.apply([result], now_ms=now_ms)
        self.offset = end

    def put_meter(self, *, tenant: str = MAIN, since_minutes: int = 0, **definition: Any) -> None:
        """A meter that has counted for so many minutes."""
        now_ms = int(time.time() * 1000) - since_minutes * 60_000
        self.store.registry.put_meter(tenant, from_mapping(definition), now_ms=now_ms)

    def begin_demo(self) -> None:
        """What `tallymark up --demo` does first."""
        meter = Meter("demo_views", ("demo_view",), by=("video", "country"))
        self.demo_views = self.store.registry.put_meter("demo", meter, now_ms=1)

    def count_demo(self, views: dict[tuple[str, str], int]) -> None:
        self.count(views, meter=self.demo_views)

    def count(
        self,
        views: dict[tuple[str, str], int],
        *,
        duplicate: int = 0,
        meter: RegisteredMeter | None = None,
    ) -> None:
        """One batch of views, accepted and applied."""
        meter = meter or self.views
        events = self.store.registry.meter(meter.tenant, "events")
        now_ms = int(time.time() * 1000)
        total = sum(views.values())
        self.accept(total + duplicate)
        minute = now_ms // 60_000 * 60
        rows = [(meter.meter_id, "\0".join(labels), minute, n, 0, *[None] * 5) for labels, n in views.items()]
        rows.append((events.meter_id, "view", minute, total, 0, *[None] * 5))
        ledger = Ledger(accepted=total + duplicate, counted=total, duplicate=duplicate)
        result = StretchResult(
            Stretch(0, self.offset, self.offset + 1),
            self.identity,
            self.store.registry.live_meters().revision,
            tuple(each.meter_id for each in self.store.registry.all_meters()),
            deltas.encode(deltas.from_rows(rows)),
            ledger,
            received={now_ms - 120: total},
            tenants={meter.tenant: ledger},
        )
        self.store.sink.apply([result], now_ms=now_ms)
        self.offset += 1


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    yield running
    running.close()


# Of a module, not of the run: while it is open, its thread has an event loop, and no other test there may start one.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable)
        yield chromium
        chromium.close()


def ago(minutes: float, *, name: str = "view", value: float | None = None, **props: Any) -> dict[str, Any]:
    """An event of so many minutes ago."""
    sent = {"event": name, "time": int((time.time() - minutes * 60) * 1000), "props": props}
    return sent if value is None else {**sent, "value": value}


def holds(page: Page, script: str) -> None:
    """Waits until it is true. The CSP keeps Playwright's own waiting from evaluating a text."""
    until(lambda: page.evaluate(script), script, deadline_s=30.0)


def violations(page: Page) -> list[str]:
    """What axe finds wrong for people who use a screen reader or a keyboard, or who see little."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes']]}" for each in found]


Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser, service: Service) -> Iterator[Open]:
    """Opens a path of the dashboard. A script error, something that the CSP blocked, or a request elsewhere fails."""
    wrong: list[str] = []
    opened: list[Page] = []

    def open_path(path: str = "/", *, width: int = 1200, height: int = 900, scheme: str = "light", **more: Any) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            locale="en-US",
            timezone_id=more.pop("timezone_id", "UTC"),
            color_scheme=scheme,  # type: ignore[arg-type]
            **more,
        )
        opened.append(page)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if _is_own(request.url, service) else wrong.append(request.url))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
        page.goto(service.url + path)
        return page

    yield open_path
    for page in opened:
        page.close()
    assert not wrong


def _is_own(url: str, service: Service) -> bool:
    return url.startswith((service.url, f"blob:{service.url}"))


@pytest.fixture
def page(open_page: Open) -> Page:
    """The overview."""
    return open_page()
