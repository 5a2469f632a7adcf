"""The dashboard of a real `tallymark up` in real Chromium: numbers move while `tallymark load` runs."""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from loading import Load
from running import Running

# A busy machine may take long to count; what is shown must come true in the end.
SLOW_MS = 120_000


@pytest.fixture
def page(tallymark: Running) -> Iterator[Page]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "these tests need Chromium: apt-get install chromium"
    wrong: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable)
        opened = chromium.new_page(viewport={"width": 1200, "height": 1000}, locale="en-US")
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.goto(tallymark.url)
        yield opened
        chromium.close()
    assert not wrong


def number(page: Page, place: str) -> int:
    """The number shown at a place; 0 while there is none."""
    digits = re.sub(r"\D", "", page.locator(place).inner_text())
    return int(digits) if digits else 0


def more_than(page: Page, before: int) -> int | None:
    shown = number(page, "#counted")
    return shown if shown > before else None


def test_numbers_move_while_load_runs_and_agree_at_the_end(tallymark: Running, page: Page, tmp_path: Path) -> None:
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_visible()
    load = Load(tallymark, "watched", events=12_000, rate=800, duplicates=0.05, late=0.02)

    shown = 0
    for _ in range(5):
        shown = tallymark.wait_until(partial(more_than, page, shown), seconds=60, what=f"more than {shown:,} counted")
    assert number(page, "#rate") > 0
    expect(page.locator("#chart .plot")).not_to_have_attribute("data-points", "0")
    page.get_by_label("meter", exact=True).select_option(load.outcomes.plan.meter)
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("k0")
    page.screenshot(path=tmp_path / "during.png", full_page=True)

    load.finish()
    load.check()
    counted = load.distinct
    expect(page.locator("#counted")).to_have_text(f"{counted:,}", timeout=SLOW_MS)
    expect(page.locator("#accepted")).to_have_text(f"{tallymark.status()['accepted']:,} accepted")
    expect(page.locator("#term-in_flight")).to_have_text("0")
    expect(page.locator("#term-missing")).to_have_text("0")
    assert number(page, "#accepted") == number(page, "#term-counted") + number(page, "#term-duplicate")
    assert number(page, "#term-counted") == counted
    expect(page.locator("#verdict")).to_have_text("nothing late, nothing lost", timeout=SLOW_MS)
    page.screenshot(path=tmp_path / "end.png", full_page=True)
