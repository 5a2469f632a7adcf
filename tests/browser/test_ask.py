"""Ask: the query language on a page, with completion, errors at their place, charts, saving, sharing and exports."""

import csv
import io
import json
import re
import subprocess
import sys
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, holds
from browser.filling import VIEWS, ask, save, views


def asking(q: str, **more: str) -> str:
    return f"/ask?q={quote(q)}" + "".join(f"&{name}={quote(value)}" for name, value in more.items())


@pytest.fixture
def page(open_page: Open, service: Service) -> Page:
    views(service)
    return open_page("/ask")


def write(page: Page, text: str) -> None:
    page.get_by_label("Your question").press_sequentially(text)


def test_a_question_is_answered_with_a_chart_and_says_how_exact_it_is(page: Page) -> None:
    write(page, VIEWS)
    page.keyboard.press("Enter")
    expect(page.locator("#canonical")).to_have_text(f"{VIEWS} SINCE 1h")
    expect(page.locator("#answer .plot")).not_to_have_attribute("data-points", "0")
    expect(page.locator("#answer .legend")).to_contain_text("AB")
    expect(page.locator("#result .freshness")).to_contain_text(re.compile(r"exact\s*complete through \d\d:\d\d:\d\d"))


def test_words_are_completed_by_keyboard_and_told_to_a_screen_reader(page: Page) -> None:
    field = page.get_by_label("Your question")
    write(page, "FROM * SEL")
    choices = page.get_by_role("listbox", name="Completions")
    expect(choices.get_by_role("option")).to_have_text(["SELECTkeyword"])
    expect(page.locator(".editor [aria-live]")).to_have_text("1 completion, arrow down to choose")
    page.keyboard.press("ArrowDown")
    expect(choices.get_by_role("option")).to_have_attribute("aria-selected", "true")
    active = choices.get_by_role("option").get_attribute("id")
    expect(field).to_have_attribute("aria-activedescendant", active or "")
    page.keyboard.press("Enter")
    expect(field).to_have_value("FROM * SELECT ")
    expect(choices.get_by_role("option", name="views")).to_be_visible()
    page.keyboard.press("Escape")
    expect(choices).to_be_hidden()
    page.keyboard.press("Control+Space")
    choices.get_by_role("option", name="views").click()
    expect(field).to_have_value("FROM * SELECT views ")


def test_an_error_stands_under_the_word_it_is_about(page: Page) -> None:
    write(page, "FROM * SELECT views COMPTE count")
    page.keyboard.press("Enter")
    expect(page.locator("#q-wrong")).to_contain_text("did you mean COMPUTE?")
    expect(page.locator(".paint .at-fault")).to_have_text("COMPTE")
    expect(page.get_by_label("Your question")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#result")).to_be_hidden()
    write(page, "x")
    expect(page.locator("#q-wrong")).to_be_hidden()


def test_an_error_stands_right_after_characters_that_are_two_halves(page: Page) -> None:
    page.get_by_label("Your question").fill("FROM '😀😀' SELECT viewz")
    page.keyboard.press("Enter")
    expect(page.locator(".paint .at-fault")).to_have_text("viewz")


def test_the_same_answer_as_bars_number_and_table(open_page: Open, service: Service) -> None:
    views(service)
    page = open_page(asking(VIEWS))
    kinds = page.get_by_role("group", name="Shown as")
    kinds.get_by_role("button", name="table").click()
    rows = page.locator("#answer tbody tr")
    expect(rows.filter(has_text=re.compile(r"B2$"))).to_have_count(5)
    kinds.get_by_role("button", name="number").click()
    expect(page.locator("#answer .number").filter(has_text="B").locator(".huge")).to_have_text("2")
    kinds.get_by_role("button", name="bars").click()
    expect(page.locator("#answer canvas")).to_be_visible()
    page.locator("#answer summary").click()
    # They are stacked, but read one by one.
    expect(page.locator("#answer .data td").filter(has_text=re.compile("^3$"))).to_have_count(0)


def test_query_range_and_kind_are_in_the_url(page: Page, open_page: Open) -> None:
    write(page, VIEWS)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("group", name="Time").get_by_role("button", name="15m").click()
    page.get_by_role("group", name="Shown as").get_by_role("button", name="table").click()
    expect(page.locator("#canonical")).to_have_text(f"{VIEWS} SINCE 15m")
    other = open_page(page.url.removeprefix(page.evaluate("location.origin")))
    expect(other.locator("#canonical")).to_have_text(f"{VIEWS} SINCE 15m")
    expect(other.locator("#answer tbody tr").first).to_be_visible()
    expect(other.get_by_label("Your question")).to_have_value(VIEWS)


def test_a_link_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    write(page, VIEWS)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_a_question_with_a_time_of_its_own_keeps_it(open_page: Open, service: Service) -> None:
    views(service)
    page = open_page(asking("FROM * SELECT views COMPUTE count SINCE 2m"))
    expect(page.locator("#canonical")).to_have_text("FROM * SELECT views COMPUTE count SINCE 2m")
    expect(page.get_by_role("group", name="Time").get_by_role("button").first).to_be_disabled()
    expect(page.get_by_text("The question says its time itself.")).to_be_visible()


def test_dragging_over_the_chart_asks_for_that_time(open_page: Open, service: Service) -> None:
    views(service)
    page = open_page(asking(VIEWS, range="15m"))
    expect(page.locator("#answer .plot")).not_to_have_attribute("data-points", "0")
    box = page.locator("#answer .u-over").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 40, steps=4)
    page.mouse.up()
    expect(page.locator("#canonical")).to_contain_text(re.compile(r"SINCE 2\d{3}-.+Z UNTIL 2\d{3}-.+Z"))
    assert re.search("from=.+&to=", page.url)


def test_an_answer_follows_what_is_counted(open_page: Open, service: Service) -> None:
    service.count({("A", "KR"): 5})
    page = open_page(asking("FROM * SELECT views COMPUTE count", kind="number"))
    expect(page.locator("#answer .huge")).to_have_text("5")
    service.count({("A", "KR"): 5})
    expect(page.locator("#answer .huge")).to_have_text("10")


def test_estimates_are_called_approximate(open_page: Open, service: Service) -> None:
    service.put_meter(name="latency", event="rpc", compute=["p99"], by=["server"])
    service.send(*({"event": "rpc", "value": n, "props": {"server": "a"}} for n in range(1, 101)))
    page = open_page(asking("FROM * SELECT latency COMPUTE p99", kind="number"))
    expect(page.locator("#answer .huge")).to_contain_text("≈")
    expect(page.locator("#result .exactness")).to_have_text("approximate: p99 ±1.1 %")


def test_a_query_is_saved_opened_and_deleted(page: Page, service: Service) -> None:
    write(page, f"{VIEWS} SINCE 15m")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save …").click()
    page.get_by_label("Title").fill("Views, by video")
    expect(page.get_by_label("Name")).to_have_value("views_by_video")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#saved-note")).to_contain_text("Saved as views_by_video.")
    assert ask(service, "/v1/queries/views_by_video")["q"] == VIEWS
    page.locator("#saved").get_by_role("link", name="Views, by video").click()
    expect(page.get_by_label("Your question")).to_have_value(VIEWS)
    page.get_by_role("button", name="Delete views_by_video").click()
    expect(page.get_by_role("dialog")).to_contain_text("The windows stored for views_by_video are deleted with it.")
    page.get_by_role("button", name="Delete the saved query").click()
    expect(page.locator("#saved li")).to_have_count(0)
    assert ask(service, "/v1/queries") == {"queries": []}


def test_what_cannot_be_saved_says_why_in_its_place(open_page: Open, service: Service) -> None:
    views(service)
    page = open_page(asking("FROM * SELECT views COMPUTE count"))
    page.get_by_role("button", name="Save …").click()
    page.get_by_label("Name").fill("9 lives")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#save-name-wrong")).to_contain_text("is not a name for a query")
    page.get_by_label("Name").fill("lives")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("a saved query needs a WINDOW")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_files_and_commands_of_an_export_give_the_same_numbers(open_page: Open, service: Service) -> None:
    views(service)
    page = open_page(asking(f"{VIEWS} SINCE 15m"))
    page.locator(".export summary").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
    assert sum(int(row["count"]) for row in rows if row["video"] == "B" and row["count"]) == 10
    with page.expect_download() as started:
        page.get_by_role("link", name="JSON").click()
    assert json.loads(started.value.path().read_text())["query"] == f"{VIEWS} SINCE 15m"
    curl = ["sh", "-c", page.locator("#export-curl").inner_text()]
    assert "video,time,count" in subprocess.run(curl, capture_output=True, text=True, check=True).stdout
    python = [sys.executable, "-c", page.locator("#export-python").inner_text()]
    assert "{'video': 'B'}" in subprocess.run(python, capture_output=True, text=True, check=True).stdout


def test_examples_are_made_from_the_meters_there_are(page: Page, service: Service) -> None:
    service.put_meter(name="sales", event="sale", compute=["sum", "count"], by=["shop"], decimals=2)
    examples = page.locator("#examples")
    expect(examples).to_contain_text("sales: how many, the largest five by shop")
    examples.get_by_role("link", name="views: how many, the largest five by video").click()
    expect(page.get_by_label("Your question")).to_have_value(f"{VIEWS} LIMIT 5")
    expect(page.locator("#answer .plot")).not_to_have_attribute("data-points", "0")


def test_the_saved_queries_say_how_far_they_are_stored(open_page: Open, service: Service) -> None:
    views(service)
    save(service, title="Per minute")
    page = open_page("/ask")
    expect(page.locator("#saved li")).to_contain_text("windows of 1m from the meter views")


def test_a_newcomer_is_told_how_to_send_the_first_event(open_page: Open, service: Service) -> None:
    page = open_page("/ask")
    expect(page.get_by_text("Nothing has been counted yet.")).to_be_visible()
    expect(page.locator(".curl").first).to_contain_text(f"curl '{service.url}/v1/events'")
    expect(page.locator("#examples li").first).to_be_visible()


def test_nothing_found_says_what_to_do(open_page: Open, service: Service) -> None:
    page = open_page(asking("FROM * SELECT views WINDOW 1m COMPUTE count BY video"))
    expect(page.locator("#result")).to_contain_text("Ask for a longer time, or look at Live events")


def test_a_server_that_goes_away_is_said_and_the_answer_comes_back(open_page: Open, service: Service) -> None:
    service.count({("A", "KR"): 5})
    page = open_page(asking("FROM * SELECT views COMPUTE count", kind="number"))
    expect(page.locator("#answer .huge")).to_have_text("5")
    service.stop()
    expect(page.locator("#banner")).to_contain_text("cannot be reached")
    expect(page.locator("#answer .huge")).to_have_text("5")
    service.start()
    service.count({("A", "KR"): 2})
    expect(page.locator("#answer .huge")).to_have_text("7")
    holds(page, "document.getElementById('banner').hidden")
