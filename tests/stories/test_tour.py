"""The tour of docs/tour.md, taken as it is written: its commands in a shell, its steps in real Chromium."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from running import Running

DOCUMENT = Path(__file__).parents[2] / "docs" / "tour.md"
STEP = re.compile(r"^```sh\n(?P<shell>[\s\S]*?)^```|^- (?P<step>[A-Z].*)$", re.M)
# A busy machine may take long to count; what is to be seen must come true in the end.
SLOW_MS = 120_000


@pytest.fixture
def page() -> Iterator[Page]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert executable, "this test needs Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable)
        opened = chromium.new_page(viewport={"width": 1280, "height": 900}, locale="en-US")
        opened.set_default_timeout(SLOW_MS)
        yield opened
        chromium.close()


def run(command: str) -> None:
    done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=True, timeout=120)
    assert "/docs/errors#" not in done.stdout, done.stdout


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).or_(page.get_by_role("link", name=name, exact=True)).click()


def see(page: Page, words: str) -> None:
    expect(page.locator("#main").get_by_text(words).locator("visible=true").first).to_be_visible(timeout=SLOW_MS)


def take(page: Page, url: str, step: str) -> None:
    """One line of the tour; what follows its first sentence is for the reader."""
    steps: dict[str, Callable[..., object]] = {
        r"Open `(.+?)`\.": lambda path: page.goto(url + path),
        r"Write `(.+?)` into \*\*(.+?)\*\*\.": lambda text, name: page.get_by_label(name, exact=True).fill(text),
        r"Press `(.+?)`\.": page.keyboard.press,
        r"Click \*\*(.+?)\*\*\.": lambda name: click(page, name),
        r"See `(.+?)`\.": lambda words: see(page, words),
    }
    for pattern, act in steps.items():
        if found := re.match(pattern, step):
            act(*found.groups())
            return
    raise AssertionError(f"the test does not know how to do this: {step}")


def test_every_step_of_the_tour_can_be_taken(tallymark: Running, page: Page) -> None:
    text = DOCUMENT.read_text().replace("http://127.0.0.1:8080", tallymark.url)
    steps = list(STEP.finditer(text))
    assert len(steps) >= 30
    for found in steps:
        if found["shell"]:
            run(found["shell"])
        else:
            take(page, tallymark.url, found["step"])
