"""Ask, boards, tables, dead letters and live events: for everybody, on every screen, also without a server."""

from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, holds, violations
from browser.filling import VIEWS, board, bury, save, table, views

PATHS = {
    f"/ask?q={quote(VIEWS)}": "#answer canvas",
    f"/ask?q={quote(VIEWS)}&kind=table": "#answer tbody tr",
    "/ask?q=FROM%20*%20SELCT": "#q-wrong",
    "/boards": "#boards li",
    "/boards/wall": "#panels canvas",
    "/boards/wall?edit=1": "#panels canvas",
    "/boards/wall?wall=1": "#panels canvas",
    "/tables": "#tables li",
    "/tables/videos": "#rows tbody tr",
    "/dead-letters": "#letters li",
    "/live": "#events tbody tr",
}
LONG = "a name that is much too long for a phone to show in one line, or in two, or perhaps even in three"


@pytest.fixture
def filled(service: Service) -> Service:
    views(service)
    service.send({"event": "view", "props": {"video": LONG, "country": "W" * 200}})
    save(service, "by_video", title=LONG)
    save(service, "in_all", "FROM * SELECT views WINDOW 1m COMPUTE count")
    kinds = ("line", "bars", "number", "table")
    board(service, *({"query": "by_video", "kind": kind, "width": 1 + place} for place, kind in enumerate(kinds)))
    table(service, rows=f'video,title,{"x" * 60}\nA,Cats,1\n{"W" * 200},"{LONG}",2\n')
    bury(service, ("collector", "bad_json", b"{" * 300), ("pipeline", "damaged", b"\0" * 99), detail="W" * 200)
    return service


def opened(open_page: Open, service: Service, path: str, **more: str) -> Page:
    page = open_page(path, reduced_motion="reduce", **more)
    if path == "/live":
        expect(page.locator("#tail-state")).to_have_text("listening")
        service.send({"event": "view", "props": {"video": LONG, "country": "W" * 200}})
    expect(page.locator(PATHS[path]).first).to_be_visible()
    return page


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_for_everybody_and_fits_every_screen(open_page: Open, filled: Service, path: str) -> None:
    page = opened(open_page, filled, path)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    for width in (360, 390, 768, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        holds(page, "document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("path", ["/boards/wall", "/tables/videos", "/dead-letters"])
def test_a_page_says_that_its_numbers_are_old_while_the_server_is_away(
    open_page: Open, filled: Service, path: str
) -> None:
    page = opened(open_page, filled, path)
    filled.stop()
    expect(page.locator("#banner")).to_contain_text("The server cannot be reached. Numbers are from")
    expect(page.locator("body")).to_have_class("stale")
    expect(page.locator(PATHS[path]).first).to_be_visible()
    filled.start()
    expect(page.locator("#banner")).to_be_hidden()


@pytest.mark.parametrize("path", ["/boards", "/tables"])
def test_a_list_that_could_not_be_read_comes_by_itself(open_page: Open, filled: Service, path: str) -> None:
    page = opened(open_page, filled, path)
    page.locator("#navigation a[href='/meters']").click()
    expect(page.locator(".meters li").first).to_be_visible()
    filled.stop()
    expect(page.locator("#banner")).to_be_visible()
    page.locator(f"#navigation a[href='{path}']").click()
    expect(page.locator("main .problem")).to_contain_text("the server cannot be reached")
    filled.start()
    expect(page.locator(PATHS[path]).first).to_be_visible()
