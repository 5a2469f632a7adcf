"""What all pages share: navigation, themes, time zones, keyboard, hostile labels, and screens of every width."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, ago, holds, violations

PATHS = ("/", "/meters", "/meters/views", "/meters/views?by=video&compare=previous", "/new-meter")
NASTY = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "<svg/onload=alert(1)>",
    "'-alert(1)-'",
    "\u202etxt.exe",
)


def filled(service: Service) -> None:
    service.send(*(ago(n, video="ABC"[n % 3], country="KR") for n in range(1, 13)))


def ready(page: Page) -> None:
    """The page has its numbers, not only its frame."""
    expect(page.locator("main .page")).to_be_visible()
    expect(page.locator("#verdict")).to_have_attribute("data-state", "good")
    holds(
        page,
        "[...document.querySelectorAll('main .plot')].every(each => each.querySelector('canvas')) && "
        "![...document.querySelectorAll('#total, #counted, .total, #seen-note')]"
        ".some(each => ['–', 'Looking at the newest events …'].includes(each.textContent))",
    )


@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing_wrong(open_page: Open, service: Service, path: str) -> None:
    filled(service)
    page = open_page(path, reduced_motion="reduce")
    ready(page)
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []


def test_axe_finds_nothing_wrong_with_what_opens(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/meters/views", width=390, height=844, reduced_motion="reduce")
    ready(page)
    page.get_by_role("button", name="Menu").click()
    for summary in page.locator("main summary").all():
        summary.click()
    page.get_by_label("Compute").fill("nonsense")
    expect(page.locator("#definition-compute-wrong")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []


@pytest.mark.parametrize("path", PATHS)
def test_every_page_fits_every_screen(open_page: Open, service: Service, path: str) -> None:
    long = "a video with a name that is much too long for a phone to show in one line"
    service.send(*[ago(1, video=long, country="KR")] * 12, ago(2, video="W" * 200, country="KR"))
    page = open_page(path)
    ready(page)
    for width in (360, 390, 768, 1280, 2560, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        holds(page, "document.documentElement.scrollWidth <= innerWidth")


def test_pages_have_addresses_and_the_way_back_works(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/")
    page.get_by_role("navigation").get_by_role("link", name="Meters").click()
    expect(page).to_have_title("Meters · Tallymark")
    expect(page.get_by_role("link", name="Meters")).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="views", exact=True).click()
    expect(page).to_have_title("views · Tallymark")
    page.go_back()
    expect(page).to_have_url(f"{service.url}/meters")
    page.go_back()
    expect(page.locator("#counted")).to_have_text("12")
    page.reload()
    expect(page.locator("#counted")).to_have_text("12")


def test_a_path_that_leads_nowhere_inside_the_page_says_so(open_page: Open, service: Service) -> None:
    page = open_page("/")
    expect(page.locator("#verdict")).to_have_attribute("data-state", "good")
    page.evaluate("history.pushState(null, '', '/nowhere'); dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()


def test_all_of_it_works_with_the_keyboard(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/")
    expect(page.locator("#counted")).to_have_text("12")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_role("link", name="Meters").focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"
    page.keyboard.press("Enter")
    expect(page.locator("#meters > li")).to_have_count(3)
    expect(page.locator("#main")).to_be_focused()


def test_on_a_phone_the_pages_are_behind_a_menu(open_page: Open, service: Service) -> None:
    page = open_page("/", width=390, height=844)
    expect(page.get_by_role("link", name="Meters")).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(page.get_by_role("button", name="Menu")).to_have_attribute("aria-expanded", "true")
    page.get_by_role("navigation").get_by_role("link", name="Meters").click()
    expect(page).to_have_url(f"{service.url}/meters")
    expect(page.get_by_role("navigation").get_by_role("link", name="Meters")).to_be_hidden()


def test_light_and_dark_follow_the_system_unless_chosen(open_page: Open, service: Service) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    page = open_page("/", scheme="dark")
    dark = page.evaluate(back)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(back)
    assert dark != light
    page.get_by_label("theme").select_option("dark")
    assert page.evaluate(back) == dark
    page.reload()
    expect(page.get_by_label("theme")).to_have_value("dark")
    assert page.evaluate(back) == dark


def test_times_are_in_the_chosen_zone_which_a_link_carries(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/meters/views?range=15m", timezone_id="Europe/Vienna")
    expect(page.get_by_label("time zone")).to_have_value("Europe/Vienna")
    page.get_by_label("time zone").select_option("Asia/Tokyo")
    expect(page).to_have_url(re.compile("tz=Asia/Tokyo|tz=Asia%2FTokyo"))
    page.locator("#over .data summary").click()
    expect(page.locator("#over .data")).to_contain_text("time (Asia/Tokyo)")
    there = datetime.now(ZoneInfo("Asia/Tokyo"))
    hours = "|".join(f"{there + timedelta(minutes=minutes):%H}" for minutes in (-2, 2))
    expect(page.locator("#complete")).to_have_text(re.compile(f"complete through ({hours}):"))
    other = open_page(page.url.removeprefix(service.url), timezone_id="America/New_York")
    expect(other.get_by_label("time zone")).to_have_value("Asia/Tokyo")


def test_nothing_moves_for_those_who_asked_for_less_motion(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/meters/views", reduced_motion="reduce")
    ready(page)
    moving = "document.getAnimations().filter(each => each.playState === 'running').length"
    assert page.evaluate(moving) == 0


@pytest.mark.parametrize("path", PATHS)
def test_whatever_labels_and_names_say_it_is_text(open_page: Open, service: Service, path: str) -> None:
    service.put_meter(name="odd", event="view", by=["video", "<b>x</b>"], where="video != '<i>'", since_minutes=30)
    service.send(*(ago(1, video=nasty, country=nasty, **{"<b>x</b>": nasty}) for nasty in NASTY))
    page = open_page(path.replace("views", "odd"))
    spoken: list[str] = []
    page.on("dialog", lambda dialog: (spoken.append(dialog.message), dialog.dismiss()))
    ready(page)
    if path != "/meters":
        expect(page.locator("main")).to_contain_text(NASTY[0] if "new" not in path else "<b>x</b>")
    assert page.locator("main script, main img, main b b, main iframe, main i b").count() == 0
    assert page.locator("main a[href^='javascript']").count() == 0
    assert not spoken


def test_storage_that_is_forbidden_breaks_nothing(open_page: Open, service: Service) -> None:
    page = open_page("/")
    page.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('forbidden'); }})")
    page.reload()
    expect(page.locator("#verdict")).to_have_attribute("data-state", "good")
    page.get_by_label("theme").select_option("dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_status_comes_by_a_stream_and_by_asking_where_there_is_none(open_page: Open, service: Service) -> None:
    page = open_page("/")
    asked: list[str] = []
    expect(page.locator("#verdict")).to_have_attribute("data-state", "good")
    page.on("request", lambda request: asked.append(request.url))
    for number in range(1, 4):
        service.send(ago(0, video="A"))
        expect(page.locator("#counted")).to_have_text(str(number))
    assert f"{service.url}/v1/status" not in asked
    page.route("**/v1/status/live", lambda route: route.fulfill(status=404, body="{}"))
    page.reload()
    service.send(ago(0, video="A"))
    expect(page.locator("#counted")).to_have_text("4")
    assert f"{service.url}/v1/status" in asked
    page.unroute_all(behavior="wait")


def test_an_error_says_what_happened_and_what_to_do_and_goes_when_it_is_over(open_page: Open, service: Service) -> None:
    filled(service)
    page = open_page("/meters/views")
    ready(page)
    told = {"code": "store_away", "detail": "the store does not answer: the disk is gone", "status": 503}
    page.route("**/v1/meters/views/*", lambda route: route.fulfill(status=503, json=told))
    page.get_by_role("button", name="6h").click()
    expect(page.locator(".problem")).to_contain_text("the store does not answer: the disk is gone")
    expect(page.locator(".problem")).to_contain_text("It tries again by itself")
    expect(page.get_by_role("link", name="What store_away means")).to_have_attribute("href", "/docs/errors#store_away")
    page.unroute_all(behavior="wait")
    expect(page.locator(".problem")).to_have_count(0)
    expect(page.locator("#total")).to_have_text("12")


def test_a_command_is_copied(open_page: Open, service: Service) -> None:
    page = open_page("/")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#welcome").get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith(f"curl '{service.url}/v1/events'")
