"""Pictures of a running dashboard: `python docs/pictures.py http://127.0.0.1:8080 docs/tour.webp` films a short tour.

Run it against `tallymark up --demo` after some minutes, with the board `wall` that `--prepare` makes. Chromium encodes
each frame as WebP; here they are only put one after the other, so nothing but Playwright is needed.
"""

import argparse
import base64
import json
import shutil
import struct
from pathlib import Path
from urllib.request import Request, urlopen

from playwright.sync_api import Page, sync_playwright

SIZE = {"width": 1120, "height": 700}
QUALITY = 62
QUERIES = {
    "views_by_country": ("Views by country", "FROM * SELECT demo_views WINDOW 1m COMPUTE count BY country LIMIT 5"),
    "revenue": ("Revenue per minute", "FROM * SELECT demo_revenue WINDOW 1m COMPUTE sum"),
    "slowest": ("Latency of servers", "FROM * SELECT demo_latency WINDOW 1m COMPUTE avg, max"),
    "watched": ("Most watched", "FROM * SELECT demo_views WINDOW 5m COMPUTE count BY video LIMIT 6"),
}
PANELS = [
    {"query": "revenue", "kind": "number", "width": 1, "range": "15m"},
    {"query": "views_by_country", "kind": "line", "width": 2, "range": "15m"},
    {"query": "watched", "kind": "table", "width": 1, "range": "15m"},
    {"query": "views_by_country", "kind": "bars", "width": 2, "range": "15m"},
    {"query": "slowest", "kind": "line", "width": 2, "range": "15m"},
]


def prepare(url: str) -> None:
    """Saved queries and a board of the demo."""
    for name, (title, q) in QUERIES.items():
        _put(f"{url}/v1/queries/{name}?tenant=demo", {"q": q, "title": title})
    _put(f"{url}/v1/boards/wall?tenant=demo", {"title": "The wall", "panels": PANELS})


def _put(url: str, body: object) -> None:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"}, method="PUT")
    urlopen(request, timeout=30).close()


def webp(page: Page, *, quality: int = QUALITY) -> bytes:
    """What the page looks like now, as a WebP file."""
    session = page.context.new_cdp_session(page)
    found = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
    session.detach()
    return base64.b64decode(found["data"])


class Film:
    """Frames with how long each is shown; an equal frame lengthens the one before."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[tuple[bytes, int]] = []

    def hold(self, milliseconds: int) -> None:
        frame = webp(self.page)
        if self.frames and self.frames[-1][0] == frame:
            milliseconds += self.frames.pop()[1]
        self.frames.append((frame, milliseconds))

    def encoded(self) -> bytes:
        """An animated WebP (RFC 9649): a header, then each frame's own image data."""
        size = struct.pack("<I", SIZE["width"] - 1)[:3] + struct.pack("<I", SIZE["height"] - 1)[:3]
        parts = [_chunk(b"VP8X", b"\x02\0\0\0" + size), _chunk(b"ANIM", b"\xff\xff\xff\xff\0\0")]
        for frame, milliseconds in self.frames:
            head = b"\0" * 6 + size + struct.pack("<I", milliseconds)[:3] + b"\0"
            parts.append(_chunk(b"ANMF", head + _image_data(frame)))
        body = b"WEBP" + b"".join(parts)
        return b"RIFF" + struct.pack("<I", len(body)) + body


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def _image_data(file: bytes) -> bytes:
    """The chunks of a still picture that hold its image."""
    place, kept = 12, b""
    while place < len(file):
        name, length = file[place : place + 4], struct.unpack("<I", file[place + 4 : place + 8])[0]
        if name in (b"VP8 ", b"VP8L", b"ALPH"):
            kept += _chunk(name, file[place + 8 : place + 8 + length])
        place += 8 + length + length % 2
    return kept


def tour(film: Film, url: str) -> None:
    page = film.page
    page.goto(f"{url}/?tenant=demo")
    page.locator("#top tbody tr").first.wait_for()
    for _ in range(4):
        page.wait_for_timeout(700)
        film.hold(700)
    page.goto(f"{url}/meters/demo_views?tenant=demo&by=country&range=15m")
    page.locator("#over canvas").wait_for()
    page.wait_for_timeout(1500)
    film.hold(1800)
    page.goto(f"{url}/ask?tenant=demo&range=15m")
    field = page.get_by_label("Your question")
    for part in ("FROM * ", "SELECT demo", "_views ", "WINDOW 1m ", "COMPUTE count ", "BY ", "country"):
        field.press_sequentially(part, delay=30)
        page.wait_for_timeout(450)
        film.hold(420)
    page.keyboard.press("Enter")
    page.locator("#answer canvas").wait_for()
    page.wait_for_timeout(800)
    film.hold(1500)
    page.get_by_role("group", name="Shown as").get_by_role("button", name="bars").click()
    page.wait_for_timeout(400)
    film.hold(1300)
    page.goto(f"{url}/live?tenant=demo")
    page.locator("#events tbody tr").first.wait_for()
    for _ in range(4):
        page.wait_for_timeout(600)
        film.hold(600)
    page.goto(f"{url}/boards/wall?tenant=demo&wall=1")
    page.emulate_media(color_scheme="dark")
    page.locator("#panels canvas").first.wait_for()
    page.wait_for_timeout(1500)
    film.hold(2600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--prepare", action="store_true", help="first make the saved queries and the board it shows")
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.url)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = chromium.new_page(viewport=SIZE, locale="en-US", timezone_id="UTC", reduced_motion="reduce")  # type: ignore[arg-type]
        film = Film(page)
        tour(film, arguments.url)
        arguments.file.write_bytes(film.encoded())
        chromium.close()
    seconds = sum(milliseconds for _, milliseconds in film.frames) / 1000
    print(f"{arguments.file}: {len(film.frames)} frames, {seconds:.0f} s, {arguments.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
