"""Tables: look, search, upload with a preview and errors at their line, delete."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service
from browser.filling import ask, put, table

FILES = {
    "videos.csv": 'video,title\nA,"Cats, and ""dogs"""\nB,Boats\n',
    "videos.json": '[{"video": "A", "title": "Cats, and \\"dogs\\""}, {"video": "B", "title": "Boats"}]',
    "videos.ndjson": '{"video": "A", "title": "Cats, and \\"dogs\\""}\n{"video": "B", "title": "Boats"}\n',
}


def choose(page: Page, name: str, content: str) -> None:
    page.set_input_files("#file", [{"name": name, "mimeType": "text/plain", "buffer": content.encode()}])


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_previewed_and_uploaded(open_page: Open, service: Service, name: str) -> None:
    page = open_page("/tables")
    choose(page, name, FILES[name])
    rows = page.locator(".preview tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text('ACats, and "dogs"')
    expect(page.get_by_label("Name of the table")).to_have_value("videos")
    page.get_by_label("Key column").select_option("video")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status").filter(has_text="videos has 2 rows: 2 added")).to_be_visible()
    assert ask(service, "/v1/tables/videos")["key"] == "video"
    page.locator("#tables").get_by_role("link", name="videos").click()
    expect(page.locator("#rows tbody tr").nth(0)).to_contain_text('ACats, and "dogs"always')


def test_a_wrong_line_is_named_and_nothing_is_changed(open_page: Open, service: Service) -> None:
    page = open_page("/tables")
    choose(page, "videos.csv", "video,title\nA,Cats\nB,Boats\nA,again\n")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("line 4: the key 'A' is in line 2 already")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed.")
    assert ask(service, "/v1/tables") == {"tables": []}


def test_a_file_that_is_none_is_refused_before_it_is_sent(open_page: Open, service: Service) -> None:
    page = open_page("/tables")
    choose(page, "videos.json", '[{"video": "A"')
    expect(page.get_by_role("alert")).to_contain_text("videos.json cannot be read")
    expect(page.get_by_role("button", name="Upload")).to_be_disabled()


def test_a_name_that_no_table_can_have_is_refused_at_its_field(open_page: Open, service: Service) -> None:
    page = open_page("/tables")
    choose(page, "videos.csv", FILES["videos.csv"])
    page.get_by_label("Name of the table").fill("9 lives!")
    page.get_by_role("button", name="Upload").click()
    expect(page.locator("#table-name-wrong")).to_be_visible()


def test_a_large_file_is_previewed_from_its_beginning(open_page: Open, service: Service, tmp_path: Path) -> None:
    page = open_page("/tables")
    choose(page, "many.csv", "video,title\n" + "".join(f"v{n},Video number {n}\n" for n in range(20_000)))
    expect(page.locator(".preview tbody tr")).to_have_count(5)
    expect(page.locator(".preview")).to_contain_text(re.compile(r"over 2,\d\d\d rows"))
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status").filter(has_text="many has 20,000 rows")).to_be_visible()


def test_rows_are_searched_and_paged(open_page: Open, service: Service) -> None:
    table(service, rows="video,title\n" + "".join(f"v{n:03},Video {n}\n" for n in range(250)))
    page = open_page("/tables/videos")
    rows = page.locator("#rows tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="More rows").click()
    expect(rows).to_have_count(200)
    page.get_by_label("search").fill("video 24")
    expect(rows).to_have_count(11)
    expect(page).to_have_url(re.compile("search=video"))
    page.get_by_label("search").fill("nothing like it")
    expect(page.get_by_role("status").filter(has_text="No row has “nothing like it”")).to_be_visible()


def test_rows_are_added_and_their_history_is_kept(open_page: Open, service: Service) -> None:
    table(service)
    page = open_page("/tables/videos")
    choose(page, "more.csv", "video,title\nA,Dogs\nC,Cars\n")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("status").filter(has_text="1 added, 1 changed")).to_be_visible()
    expect(page.locator("#rows tbody tr")).to_have_count(3)
    page.get_by_role("button", name="History of A").click()
    expect(page.get_by_role("dialog").locator("tbody tr")).to_have_text([re.compile("Dogs"), "alwaysCats"])


def test_a_table_says_how_to_ask_with_it(open_page: Open, service: Service) -> None:
    table(service)
    page = open_page("/tables/videos")
    expect(page.locator("main")).to_contain_text("It joins the meter views by its label video.")
    expect(page.locator(".curl").first).to_contain_text("/v1/meters/views/top?by=videos.title")


def test_a_table_is_deleted_after_a_warning(open_page: Open, service: Service) -> None:
    table(service)
    page = open_page("/tables/videos")
    page.get_by_role("button", name="Delete …").click()
    expect(page.get_by_role("dialog")).to_contain_text("Its 2 rows and their history are lost")
    page.get_by_role("button", name="Delete the table").click()
    expect(page.get_by_role("heading", name="No table yet")).to_be_visible()
    assert ask(service, "/v1/tables") == {"tables": []}


def test_a_newcomer_is_told_how_to_make_one(open_page: Open, service: Service) -> None:
    page = open_page("/tables")
    expect(page.get_by_role("heading", name="No table yet")).to_be_visible()
    expect(page.locator(".curl").first).to_contain_text(f"curl -X PUT '{service.url}/v1/tables/videos?key=video'")


def test_a_table_that_does_not_exist_names_the_nearest(open_page: Open, service: Service) -> None:
    put(service, "/v1/tables/videos?key=video", [{"video": "A", "title": "Cats"}])
    page = open_page("/tables/vidoes")
    expect(page.get_by_role("heading", name="There is no such table")).to_be_visible()
    expect(page.locator("main")).to_contain_text("videos")
