"""A picture of each page. With TALLYMARK_PICTURES=1 (`make pictures`) they replace those in docs/pictures."""

import base64
import math
import os
import random
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, ago, holds
from browser.filling import board, bury, put, save

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
QUALITY = 80
MOST_BYTES = 120_000
VIDEOS = {"cats": "Cats at night", "boats": "Boats of Busan", "mars": "Live from Mars", "bread": "Bread from scratch"}
ASKED = "FROM%20*%20SELECT%20views%20WINDOW%201m%20COMPUTE%20count%20BY%20video"
# Path, the height of the picture, and what is there once it has its numbers.
PAGES = {
    "overview": ("/", 900, "#top tbody tr"),
    "meters": ("/meters", 620, ".meters .sparkline"),
    "meter": ("/meters/views?by=country", 900, "#over canvas"),
    "new-meter": ("/new-meter", 900, "#preview-top tbody tr"),
    "ask": (f"/ask?q={ASKED}", 820, "#answer canvas"),
    "boards": ("/boards", 620, "#boards li"),
    "board": ("/boards/wall", 900, "#panels canvas"),
    "tables": ("/tables", 720, "#tables li"),
    "table": ("/tables/videos", 720, "#rows tbody tr"),
    "dead-letters": ("/dead-letters", 820, "#letters summary"),
    "live": ("/live", 720, "#events tbody tr"),
}


def traffic(number: int, minute: int) -> dict[str, Any]:
    """An event of some minutes ago; the same ones each time."""
    chance = random.Random(minute * 1000 + number)
    (video,) = chance.choices(list(VIDEOS), (8, 5, 3, 2))
    (country,) = chance.choices(("KR", "DE", "US"), (5, 3, 2))
    return ago(minute + number % 50 / 60, value=round(chance.lognormvariate(3, 0.8)), video=video, country=country)


def fill(service: Service) -> None:
    service.put_meter(name="views", event="view", by=["video", "country"], compute=["count"], since_minutes=120)
    service.put_meter(name="watched", event="view", by=["video"], compute=["p50", "p99"], since_minutes=120)
    for begin in range(0, 60, 20):
        minutes = range(begin, begin + 20)
        service.send(*(traffic(n, m) for m in minutes for n in range(int(30 + 14 * math.sin(m / 7) + 5 * (m % 3)))))
    save(service, "by_video", "FROM * SELECT views WINDOW 1m COMPUTE count BY video", title="Views by video")
    save(service, "by_country", "FROM * SELECT views WINDOW 5m COMPUTE count BY country", title="Views by country")
    save(service, "in_all", "FROM * SELECT views WINDOW 5m COMPUTE count", title="Views in five minutes")
    save(service, "seconds", "FROM * SELECT watched WINDOW 5m COMPUTE p50, p99", title="Seconds watched")
    panels: list[dict[str, Any]] = [
        {"query": "in_all", "kind": "number", "width": 1},
        {"query": "by_video", "kind": "line", "width": 2},
        {"query": "by_country", "kind": "table", "width": 1},
        {"query": "by_country", "kind": "bars", "width": 2},
        {"query": "seconds", "kind": "line", "width": 2},
    ]
    board(service, *panels)
    board(service, *panels[:2], name="office", title="Screen in the office")
    rows = [{"video": key, "title": title, "minutes": len(title), "paid": key > "c"} for key, title in VIDEOS.items()]
    put(service, "/v1/tables/videos?key=video", rows)
    bury(
        service,
        ("collector", "bad_time", b'{"event":"view","time":"noon","props":{"video":"cats"}}'),
        ("collector", "bad_props", b'{"event":"view","props":{"video":{"id":7}}}'),
        detail="`time`: 'noon' is not a time: give RFC 3339 with a zone, or epoch milliseconds",
    )


def opened(page: Page, service: Service, name: str) -> None:
    path, height, shown = PAGES[name]
    page.set_viewport_size({"width": 1280, "height": height})
    page.goto(service.url + path)
    if name == "live":
        expect(page.locator("#tail-state")).to_have_text("listening")
        service.send(*(traffic(n, 0) for n in range(9)))
    expect(page.locator(shown).first).to_be_visible()
    if name == "dead-letters":
        page.locator("#letters summary").nth(1).click()
        expect(page.locator("#letters .raw")).to_be_visible()
    holds(page, "[...document.querySelectorAll('main .plot')].every(each => Number(each.dataset.points) > 0)")
    expect(page.locator("main")).not_to_contain_text(re.compile("cannot be reached"))


def test_each_page_has_a_picture(open_page: Open, service: Service, tmp_path: Path) -> None:
    fill(service)
    page = open_page("/", reduced_motion="reduce")
    for name in PAGES:
        opened(page, service, name)
        session = page.context.new_cdp_session(page)
        found = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
        (tmp_path / f"{name}.webp").write_bytes(base64.b64decode(found["data"]))
    sizes = {each.stem: each.stat().st_size for each in tmp_path.glob("*.webp")}
    assert set(sizes) == set(PAGES)
    assert max(sizes.values()) < MOST_BYTES, sizes
    if os.environ.get("TALLYMARK_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        for each in tmp_path.glob("*.webp"):
            (PICTURES / each.name).write_bytes(each.read_bytes())
