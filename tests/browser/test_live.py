"""Live events: a bounded, filtered, sampled stream of what passes."""

import re

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service


def view(video: str, **more: object) -> dict[str, object]:
    return {"event": "view", "props": {"video": video, **more}}


@pytest.fixture
def page(open_page: Open, service: Service) -> Page:
    return listening(open_page("/live"))


def listening(page: Page) -> Page:
    expect(page.locator("#tail-state")).to_have_text("listening")
    return page


def test_events_come_as_they_pass_and_are_counted(page: Page, service: Service) -> None:
    expect(page.get_by_role("heading", name="Nothing has passed yet")).to_be_visible()
    service.send(view("A"), view("B", ms=5))
    rows = page.locator("#events tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="video B")).to_contain_text("ms 5")
    expect(page.locator("#passed")).to_contain_text(re.compile(r"Since \d\d:\d\d:\d\d: 2 passed, 2 shown\."))
    service.send(view("C"))
    expect(rows.nth(0)).to_contain_text("video C")


def test_a_row_opens_the_whole_event(page: Page, service: Service) -> None:
    service.send({**view("A"), "id": "v1", "value": 2.5, "values": {"cpu": 1}})
    page.get_by_role("button", name=re.compile("^Open view of")).press("Enter")
    expect(page.get_by_role("dialog").locator(".raw")).to_contain_text('"id": "v1"')
    expect(page.get_by_role("dialog").locator(".raw")).to_contain_text('"cpu": 1')
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.locator("#events tbody td").nth(1).click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_events_are_filtered_by_name_and_expression_and_the_url_says_so(page: Page, service: Service) -> None:
    page.get_by_label("Event", exact=True).fill("view")
    page.get_by_label("Where").fill("video = 'B' and ms > 3")
    expect(page).to_have_url(re.compile("event=view&where=video"))
    listening(page)
    service.send(view("A", ms=9), view("B", ms=1), view("B", ms=9), {"event": "sale"})
    rows = page.locator("#events tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("ms 9")
    expect(page.locator("#passed")).to_contain_text("4 passed, 1 matched, 1 shown")
    page.reload()
    expect(page.get_by_label("Where")).to_have_value("video = 'B' and ms > 3")


def test_what_is_wrong_with_a_filter_stands_at_its_field(page: Page) -> None:
    page.get_by_label("Where").fill("video = ")
    expect(page.locator("#where-wrong")).to_contain_text("expected a 'text', a number, true or false")
    expect(page.locator("#where-wrong")).to_contain_text("^")
    expect(page.get_by_label("Where")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#tail-state")).to_have_text("not listening")
    page.get_by_label("Where").fill("video = 'A'")
    expect(page.locator("#where-wrong")).to_be_hidden()
    page.get_by_label("Event", exact=True).fill("no name")
    expect(page.locator("#event-wrong")).to_contain_text("is not the name of an event")


def test_a_rate_bounds_what_is_shown_but_not_what_is_counted(open_page: Open, service: Service) -> None:
    page = listening(open_page("/live?rate=5"))
    service.send(*(view(f"v{n}") for n in range(400)))
    expect(page.locator("#passed")).to_contain_text("400 passed, 2 shown.")
    expect(page.locator("#events tbody tr")).to_have_count(2)


def test_rows_are_bounded(open_page: Open, service: Service) -> None:
    page = listening(open_page("/live?rate=200"))
    for turn in range(1, 7):
        service.send(*(view(f"{turn}-{n}") for n in range(100)))
        expect(page.locator("#passed")).to_contain_text(f"{turn}00 passed")
    expect(page.locator("#passed")).to_contain_text("the newest 500 are below")
    expect(page.locator("#events tbody tr")).to_have_count(500)


def test_it_pauses_goes_on_and_is_cleared(page: Page, service: Service) -> None:
    service.send(view("A"))
    rows = page.locator("#events tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    service.send(view("B"))
    expect(page.locator("#passed")).to_contain_text("2 passed, 1 shown. Paused: nothing is added.")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Go on").click()
    service.send(view("C"))
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(0)


def test_names_to_choose_from_are_those_seen_lately(open_page: Open, service: Service) -> None:
    service.send(view("A"), {"event": "sale"})
    page = open_page("/live")
    expect(page.locator("#names option")).to_have_count(2)


def test_it_comes_back_when_the_server_does(page: Page, service: Service) -> None:
    service.stop()
    expect(page.locator("#tail-state")).to_have_attribute("data-state", "bad")
    expect(page.locator("#banner")).to_contain_text("cannot be reached")
    service.start()
    listening(page)
    service.send(view("back"))
    expect(page.locator("#events tbody tr")).to_contain_text("back")


def test_a_newcomer_is_told_how_to_send_an_event(page: Page, service: Service) -> None:
    expect(page.locator("#nothing .curl").nth(0)).to_contain_text(f"curl '{service.url}/v1/events'")
    expect(page.locator("#nothing .curl").nth(1)).to_contain_text("from tallymark import Client")
