"""Dead letters: by reason, newest first, readable, filtered, explained."""

import re

from playwright.sync_api import expect

from browser.conftest import Open, Service
from browser.filling import bury


def test_reasons_are_counted_and_explained_newest_first(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_time", b"{}"), ("pipeline", "damaged", b"\xff\x00"))
    page = open_page("/dead-letters")
    rows = page.locator("#reasons tbody tr")
    expect(rows.nth(0)).to_contain_text(re.compile("damaged.*pipeline.*1.*the checksum does not fit"))
    expect(rows.nth(1)).to_contain_text("Not a time. Send RFC 3339 with a zone, or epoch milliseconds.")
    expect(page.locator("#letters summary").nth(0)).to_contain_text("damaged")
    bury(service, ("collector", "bad_json", b"{"))
    expect(page.locator("#letters summary").nth(0)).to_contain_text("bad_json")


def test_json_is_read_with_line_breaks(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_time", b'{"event":"view","time":"noon"}'))
    page = open_page("/dead-letters")
    page.locator("#letters summary").click()
    expect(page.locator("#letters .raw")).to_have_text('{\n  "event": "view",\n  "time": "noon"\n}')
    expect(page.locator("#letters .curl")).to_contain_text("/v1/dlq/")


def test_what_is_not_json_is_read_as_text_and_bytes(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_json", b"{broken <b>"))
    page = open_page("/dead-letters")
    page.locator("#letters summary").click()
    expect(page.locator("#letters .raw").nth(0)).to_have_text("{broken <b>")
    expect(page.locator("#letters .raw").nth(1)).to_contain_text("00000000  7b 62 72 6f 6b 65 6e 20 3c 62 3e")


def test_a_record_that_cannot_be_read_is_shown_in_hex(open_page: Open, service: Service) -> None:
    bury(service, ("pipeline", "damaged", b"\xde\xad\xbe\xef"))
    page = open_page("/dead-letters")
    page.locator("#letters summary").click()
    expect(page.locator("#letters .raw")).to_contain_text("de ad be ef")
    expect(page.locator("#letters .letter")).to_contain_text("its events cannot be read")


def test_letters_are_filtered_by_hop_and_reason_and_the_url_says_so(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_time", b"{}"), ("collector", "bad_json", b"{"), ("pipeline", "damaged", b"x"))
    page = open_page("/dead-letters")
    letters = page.locator("#letters > li")
    expect(letters).to_have_count(3)
    page.get_by_label("where", exact=True).select_option("collector")
    expect(letters).to_have_count(2)
    page.get_by_label("reason", exact=True).select_option("bad_json")
    expect(letters).to_have_count(1)
    expect(page).to_have_url(re.compile("hop=collector&reason=bad_json"))
    page.reload()
    expect(letters).to_have_count(1)
    page.get_by_label("where", exact=True).select_option("pipeline")
    expect(page.get_by_text("No letter that is kept fits.")).to_be_visible()
    page.locator("#reasons").get_by_role("button", name="damaged").click()
    expect(letters).to_have_count(1)


def test_an_open_letter_stays_open_while_others_come(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_time", b'{"event":"view","time":"noon"}'))
    page = open_page("/dead-letters")
    page.locator("#letters summary").click()
    expect(page.locator("#letters .raw")).to_be_visible()
    bury(service, ("collector", "bad_json", b"{"))
    expect(page.locator("#letters > li")).to_have_count(2)
    expect(page.locator("#letters .raw")).to_be_visible()


def test_none_says_how_one_would_look(open_page: Open, service: Service) -> None:
    page = open_page("/dead-letters")
    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    expect(page.locator("#no-letters .curl")).to_contain_text('"time": "noon"')


def test_the_letters_of_other_tenants_are_pointed_to(open_page: Open, service: Service) -> None:
    bury(service, ("collector", "bad_time", b"{}"))
    bury(service, ("collector", "bad_time", b"{}"), tenant="acme")
    page = open_page("/dead-letters?tenant=main")
    expect(page.get_by_text("Other tenants have dead letters, too: acme 1.")).to_be_visible()
