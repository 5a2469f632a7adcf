"""Boards: saved queries arranged on a page, changed by keyboard and mouse, and on a wall."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, holds
from browser.filling import ask, board, save, views

NUMBER = "FROM * SELECT views WINDOW 1h COMPUTE count"


@pytest.fixture
def filled(service: Service) -> Service:
    views(service)
    save(service, "by_video", title="Views by video")
    save(service, "in_all", NUMBER)
    return service


@pytest.fixture
def page(open_page: Open, filled: Service) -> Page:
    board(filled, {"query": "by_video", "width": 2}, {"query": "in_all", "kind": "table", "width": 1, "title": "All"})
    return open_page("/boards/wall")


def panels(service: Service) -> list[dict[str, Any]]:
    return ask(service, "/v1/boards/wall")["panels"]  # type: ignore[no-any-return]


def titles(page: Page) -> list[str]:
    return page.locator("#panels h2").all_inner_texts()


def test_panels_show_saved_queries_with_how_exact_and_complete_they_are(page: Page) -> None:
    expect(page.get_by_role("heading", name="The wall")).to_be_visible()
    line, table = page.locator("#panels > li").all()
    expect(line.locator(".plot")).not_to_have_attribute("data-points", "0")
    expect(line).to_contain_text(re.compile(r"Views by video.*exact.*complete through", re.S))
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table).to_contain_text("All")


@pytest.mark.parametrize(
    ("kind", "shown"), [("line", ".plot canvas"), ("bars", ".plot canvas"), ("number", ".huge"), ("table", "tbody tr")]
)
def test_a_panel_is_of_every_kind(open_page: Open, filled: Service, kind: str, shown: str) -> None:
    board(filled, {"query": "by_video", "kind": kind})
    expect(open_page("/boards/wall").locator(f"#panels {shown}").first).to_be_visible()


def test_a_board_is_made_and_filled_in_the_page(open_page: Open, filled: Service) -> None:
    page = open_page("/boards")
    expect(page.get_by_role("heading", name="No board yet")).to_be_visible()
    page.get_by_label("Title").fill("The wall")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", name="No panels yet")).to_be_visible()
    page.get_by_label("query", exact=True).select_option("in_all")
    page.get_by_label("as", exact=True).select_option("number")
    page.get_by_role("button", name="Add panel").click()
    expect(page.locator("#panels .huge")).to_have_count(1)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Edit")).to_be_visible()
    assert ask(filled, "/v1/boards/the_wall")["panels"] == [
        {"query": "in_all", "title": "", "kind": "number", "width": 1, "range": None}
    ]
    page.get_by_role("link", name="Boards").click()
    expect(page.locator("#boards")).to_contain_text("The wall1 panel")


def test_panels_are_moved_resized_changed_and_removed_without_a_mouse(page: Page, service: Service) -> None:
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Move by_video: arrow keys").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#said")).to_have_text("Moved to place 2 of 2")
    expect(page.get_by_role("button", name="Move by_video: arrow keys")).to_be_focused()
    assert titles(page) == ["All", "Views by video"]
    page.get_by_role("button", name="Wider (by_video)").press("Enter")
    expect(page.locator("#said")).to_have_text("3 of 4 columns wide")
    page.get_by_role("button", name="Move earlier (by_video)").press("Enter")
    page.get_by_label("Title of by_video").fill("Mine")
    page.get_by_label("Kind of by_video").select_option("bars")
    page.get_by_label("Time of by_video").select_option("15m")
    page.get_by_role("button", name="Remove in_all").press("Enter")
    expect(page.get_by_role("status").filter(has_text="Not saved yet.")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Edit")).to_be_visible()
    assert panels(service) == [{"query": "by_video", "title": "Mine", "kind": "bars", "width": 3, "range": "15m"}]


def test_panels_are_dragged_to_another_place_and_width(page: Page, service: Service) -> None:
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Move by_video: arrow keys").drag_to(page.locator("#panels > li").nth(1))
    expect(page.locator("#panels h2").nth(0)).to_have_text("All")
    edge = page.locator("#panels > li").nth(0).locator(".edge").bounding_box()
    grid = page.locator("#panels").bounding_box()
    assert edge
    assert grid
    page.mouse.move(edge["x"] + 4, edge["y"] + 30)
    page.mouse.down()
    page.mouse.move(grid["x"] + grid["width"] * 0.74, edge["y"] + 30, steps=5)
    page.mouse.up()
    expect(page.locator("#said")).to_have_text("3 of 4 columns wide")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Edit")).to_be_visible()
    assert [(each["query"], each["width"]) for each in panels(service)] == [("in_all", 3), ("by_video", 2)]


def test_what_was_not_saved_can_be_discarded(page: Page, service: Service) -> None:
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Remove in_all").click()
    expect(page.locator("#panels > li")).to_have_count(1)
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("#panels > li")).to_have_count(2)
    assert len(panels(service)) == 2


def test_the_wall_has_no_chrome_and_stays_live(page: Page, service: Service) -> None:
    page.get_by_role("button", name="Full screen").click()
    holds(page, "document.fullscreenElement === document.documentElement")
    expect(page.get_by_role("navigation")).to_be_hidden()
    expect(page.locator("#verdict")).to_be_hidden()
    service.send({"event": "view", "props": {"video": "C"}})
    expect(page.locator("#panels .legend")).to_contain_text("C")
    service.stop()
    expect(page.locator("#banner")).to_be_visible()
    service.start()
    expect(page.locator("#banner")).to_be_hidden()
    page.get_by_role("button", name="Leave full screen").click()
    expect(page.get_by_role("navigation")).to_be_visible()
    holds(page, "document.fullscreenElement === null")


def test_a_wall_opens_by_its_address(open_page: Open, filled: Service) -> None:
    board(filled, {"query": "in_all", "kind": "number"})
    page = open_page("/boards/wall?wall=1", width=2560, height=1440)
    expect(page.locator("#panels .huge")).to_be_visible()
    expect(page.get_by_role("navigation")).to_be_hidden()


def test_the_time_of_a_board_is_chosen_for_all_its_panels(page: Page) -> None:
    page.get_by_role("group", name="Time").get_by_role("button", name="15m").click()
    expect(page.locator("#panels > li").nth(0)).to_contain_text("the last 15 minutes")
    expect(page).to_have_url(re.compile("range=15m"))


def test_a_panel_whose_query_is_gone_says_so(page: Page, service: Service) -> None:
    service.store.documents.delete("query", "main", "by_video")
    page.reload()
    expect(page.locator("#panels > li").nth(0)).to_contain_text("The saved query by_video is gone.")
    expect(page.locator("#panels > li").nth(1).locator("tbody tr")).to_have_count(1)


def test_a_board_is_deleted_after_a_warning(open_page: Open, filled: Service) -> None:
    board(filled, {"query": "in_all"})
    page = open_page("/boards")
    page.get_by_role("button", name="Delete the board wall").click()
    expect(page.get_by_role("dialog")).to_contain_text("The saved queries it shows stay")
    page.get_by_role("button", name="Delete the board", exact=True).click()
    expect(page.get_by_role("heading", name="No board yet")).to_be_visible()


def test_a_saved_query_goes_from_ask_onto_a_board(open_page: Open, filled: Service) -> None:
    board(filled)
    page = open_page("/boards?add=in_all")
    page.get_by_role("link", name="The wall").click()
    expect(page.locator("#panels > li")).to_have_count(1)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Edit")).to_be_visible()
    assert [each["query"] for each in panels(filled)] == ["in_all"]


def test_without_a_saved_query_the_way_to_one_is_shown(open_page: Open, service: Service) -> None:
    page = open_page("/boards")
    expect(page.get_by_role("heading", name="No saved query yet")).to_be_visible()
    expect(page.locator(".curl").first).to_contain_text("curl -X PUT")
    expect(page.locator(".curl").nth(1)).to_contain_text("tallymark queries add")


def test_a_board_that_does_not_exist_names_the_nearest(open_page: Open, filled: Service) -> None:
    board(filled)
    page = open_page("/boards/wal")
    expect(page.get_by_role("heading", name="There is no such board")).to_be_visible()
    expect(page.locator("main")).to_contain_text("wall")
