"""Pages of the dashboard in Chromium: first paint and what is transferred, cold and again with what the browser kept.

A real query service on a store with an hour of minutes of 1,000 series, saved queries, a board and a table. Cold is a
new browser profile; warm is the same page opened again in it, when every file is asked for and answered by its ETag.
Paint is the browser's own first-contentful-paint, from the start of the navigation. Bytes are those on the wire,
headers included, until the page shows what it is for.
"""

import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, BrowserContext, sync_playwright

from bench import hot_store
from bench.collector import is_open
from bench.figure import Conditions, Figure
from bench.processes import Broken, tallymark, wait_until
from tallymark import log as logs
from tallymark.http import free_port
from tallymark.settings import Settings

BENCHMARK = "pages"
SIZE = hot_store.Size(videos=1_000, minutes=60, servers=0, server_minutes=0, values=0)
TOP = "FROM * SELECT videos WINDOW 1m COMPUTE count BY video LIMIT 10"
ALL = "FROM * SELECT videos WINDOW 1m COMPUTE count"
PAGES = {
    "/": "#hour canvas",
    "/meters": ".sparkline",
    "/meters/videos": "#over canvas",
    "/new-meter": "h1",
    f"/ask?q={quote(TOP)}": "#answer canvas",
    "/boards": "#boards li",
    "/boards/wall": "#panels canvas",
    "/tables": "#tables li",
    "/tables/names": "#rows tbody tr",
    "/dead-letters": "h1",
    "/live": "#tail-state[data-state=good]",
}
"""path -> what it shows when it is there"""
STATIC = "/static/"


@dataclass(frozen=True)
class Visit:
    paint_ms: float
    shown_ms: float
    files_bytes: int
    """HTML, CSS, scripts, icon"""
    answers_bytes: int
    """what the page asked, without streams that are still open"""
    requests: int


def measure(conditions: Conditions) -> Iterator[Figure]:
    folder, port = conditions.folder / BENCHMARK, free_port("127.0.0.1")
    _count(folder)
    url = f"http://127.0.0.1:{port}"
    with tallymark(folder, "query", "--port", str(port)), sync_playwright() as playwright:
        wait_until(lambda: is_open(port), "the query service answers", deadline_s=60)
        _save(url)
        chromium = playwright.chromium.launch(executable_path=_chromium())
        for path, shown in PAGES.items():
            yield from _figures(chromium, url, path, shown, times=conditions.choose(full=7, quick=2))
        chromium.close()


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise Broken("this benchmark needs Chromium: apt-get install chromium")
    return found


def _count(folder: Path) -> None:
    store = hot_store.open_sqlite(folder)
    logs.open_writer(Settings(data=str(folder)), "events").close()
    meter, now_s = hot_store.put_meter(store, hot_store.VIDEOS), int(time.time())
    for part in hot_store.videos(meter, SIZE, now_s):
        hot_store.journal(store, part)
    hot_store.settle(store, now_s)
    store.close()


def _save(url: str) -> None:
    panels = [{"query": "top", "kind": "line", "width": 2}, {"query": "all", "kind": "number", "width": 1}]
    rows = [{"video": f"video-{number}", "title": f"Title {number}"} for number in range(SIZE.videos)]
    for path, body in {
        "/v1/queries/top": {"q": TOP},
        "/v1/queries/all": {"q": ALL},
        "/v1/boards/wall": {"title": "The wall", "panels": panels},
        "/v1/tables/names?key=video": rows,
    }.items():
        asked = Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"}, method="PUT")
        urlopen(asked, timeout=60).close()


def _figures(chromium: Browser, url: str, path: str, shown: str, *, times: int) -> Iterator[Figure]:
    cold, warm = [], []
    for _ in range(times):
        context = chromium.new_context(viewport={"width": 1280, "height": 900})
        cold.append(_visit(context, url + path, shown))
        warm.append(_visit(context, url + path, shown))
        context.close()
    for how, visits in {"cold": cold, "warm": warm}.items():
        typical = Visit(*(statistics.median(getattr(each, name) for each in visits) for name in asdict(visits[0])))
        remark = f"shows its numbers after {typical.shown_ms:.0f} ms; {typical.files_bytes / 1e3:.1f} kB of files"
        remark += f" and {typical.answers_bytes / 1e3:.1f} kB of answers in {typical.requests:.0f} requests"
        details = {"visits": [asdict(each) for each in visits]}
        what = f"first paint of {path.partition('?')[0]}, {how}"
        yield Figure(BENCHMARK, what, typical.paint_ms, "ms", None, remark, details)


def _visit(context: BrowserContext, url: str, shown: str) -> Visit:
    page = context.new_page()
    devtools, paths, sizes = context.new_cdp_session(page), dict[str, str](), dict[str, int]()

    def received(event: dict[str, Any]) -> None:
        paths[event["requestId"]] = event["response"]["url"]

    def finished(event: dict[str, Any]) -> None:
        sizes[event["requestId"]] = int(event["encodedDataLength"])

    devtools.on("Network.responseReceived", received)
    devtools.on("Network.loadingFinished", finished)
    devtools.send("Network.enable")
    begun = time.perf_counter()
    page.goto(url)
    page.locator(shown).first.wait_for(timeout=60_000)
    shown_ms = (time.perf_counter() - begun) * 1000
    paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.close()
    files = sum(size for request, size in sizes.items() if STATIC in paths[request] or paths[request] == url)
    return Visit(paint_ms, shown_ms, files, sum(sizes.values()) - files, len(sizes))
