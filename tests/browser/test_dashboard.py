"""The overview in real Chromium against a real query service: numbers move while the store is filled."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from browser.conftest import Open, Service, ago
from tallymark.meters.model import Meter
from tallymark.testing import until


def test_a_newcomer_is_told_what_to_type(page: Page, service: Service) -> None:
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_visible()
    expect(page.locator("#curl")).to_contain_text(f"curl '{service.url}/v1/events'")
    service.count({("A", "KR"): 1})
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_hidden()


def test_numbers_move_while_events_are_counted(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 1200, ("B", "DE"): 300}, duplicate=75)
    expect(page.locator("#counted")).to_have_text("1,500")
    expect(page.locator("#accepted")).to_have_text("1,575 accepted")
    expect(page.locator("#term-duplicate")).to_have_text("75")
    expect(page.locator("#term-missing")).to_have_text("0")
    expect(page.locator("#rate")).not_to_have_text("0")
    expect(page.locator("#p99")).to_have_text(re.compile(r"\d+ ms"))
    rows = page.locator("#top tbody tr")
    expect(rows.nth(0)).to_contain_text("A1,200")
    service.count({("B", "DE"): 2000})
    expect(page.locator("#counted")).to_have_text("3,500")
    expect(rows.nth(0)).to_contain_text("B2,300")
    expect(page.locator("#chart canvas")).to_be_visible()
    expect(page.locator("#chart .plot")).not_to_have_attribute("data-points", "0")


def test_events_in_flight_are_shown(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5})
    service.accept(7)
    expect(page.locator("#term-in_flight")).to_have_text("7")
    expect(page.locator("#term-counted")).to_have_text("5")


def test_another_meter_and_key_can_be_chosen(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5, ("A", "DE"): 9})
    page.get_by_label("by", exact=True).select_option("country")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("DE9")
    page.get_by_label("meter", exact=True).select_option("events")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("view14")


def test_an_answer_from_before_the_last_change_is_asked_for_again(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5})
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("A5")
    asked: list[str] = []

    def kept(route: Route) -> None:
        """What the server would give from its cache: right, and a minute old."""
        answer = route.fetch()
        told = answer.json()
        told["freshness"]["complete_through"] = "2026-11-15T12:00:00Z"
        asked.append(route.request.url)
        route.fulfill(response=answer, json=told)

    page.route("**/top?*", kept)
    service.count({("A", "KR"): 1})
    # Without a change a page asks every ten seconds only, so three within fifteen are no chance.
    until(lambda: (page.wait_for_timeout(50), len(asked) >= 3)[1], "it asks again", deadline_s=15.0)
    page.unroute_all(behavior="wait")


def test_a_value_that_was_not_computed_from_the_beginning_is_explained(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5})
    service.store.registry.put_meter(
        "main", Meter("views", ("view",), by=("video", "country"), compute=("count", "max")), now_ms=1_794_931_690_000
    )
    page.get_by_label("ranked by").select_option("max")
    expect(page.locator("#top-note")).to_contain_text(re.compile(r"^max has been computed since Nov 17, 2026, .+ –"))
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("A–")
    page.get_by_label("ranked by").select_option("count")
    expect(page.locator("#top-note")).to_have_text("")


def test_labels_are_text_whatever_they_say(page: Page, service: Service) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    service.count({(nasty, "KR"): 3, ("", "KR"): 1})
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text(nasty)
    expect(page.locator("#top tbody tr").nth(1)).to_contain_text("(empty)")
    expect(page.locator("#top img")).to_have_count(0)


def test_a_server_that_goes_away_and_comes_back(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5})
    expect(page.locator("#counted")).to_have_text("5")
    assert service.stop() == 0  # also while the page listens to `live`
    expect(page.locator("#banner")).to_contain_text("cannot be reached")
    service.start()
    expect(page.locator("#banner")).to_be_hidden()
    service.count({("A", "KR"): 5})
    expect(page.locator("#counted")).to_have_text("10")


def test_a_role_that_is_gone_is_named(page: Page, service: Service) -> None:
    expect(page.locator("#verdict")).to_have_text("nothing late, nothing lost")
    (service.settings.run_folder / "keeper.json").unlink()
    expect(page.locator("#problems")).to_contain_text("keeper is absent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_schemes(open_page: Open, service: Service, scheme: str) -> None:
    service.count({("a video with a name that is much too long for a phone to show in one line", "KR"): 1_234_567})
    phone = open_page(width=360, height=740, scheme=scheme)
    expect(phone.locator("#counted")).to_have_text("1,234,567")
    expect(phone.locator("#top tbody tr")).to_have_count(1)
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_a_demo_nothing_is_said_of_tenants(page: Page, service: Service) -> None:
    service.count({("A", "KR"): 5})
    expect(page.locator("#counted")).to_have_text("5")
    expect(page.locator("#demo")).to_be_hidden()
    expect(page.locator("#tenant")).to_be_hidden()
    expect(page.locator("body")).not_to_contain_text("tenant", use_inner_text=True)


def test_a_demo_is_called_one_and_gives_way_to_the_first_event_of_the_users_own(page: Page, service: Service) -> None:
    service.begin_demo()
    service.count_demo({("mars", "KR"): 40})
    expect(page.get_by_label("Demo", exact=True)).to_contain_text(
        "This is demo traffic. Send your first event and the page switches to your own:"
    )
    expect(page.locator("#demo .curl")).to_contain_text(f"curl '{service.url}/v1/events'")
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_hidden()
    expect(page.locator("#counted")).to_have_text("40")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("mars40")
    service.count({("A", "DE"): 3})
    expect(page.locator("#demo")).to_be_hidden()
    expect(page.locator("#counted")).to_have_text("3")
    expect(page.locator("#accepted")).to_have_text("3 accepted")
    expect(page.locator("#meter")).to_have_value("views")
    expect(page.locator("#top tbody tr")).to_have_count(1)
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("A3")
    expect(page.locator("#tenant")).to_have_value("main")


def test_a_chosen_tenant_stays_also_when_the_page_is_opened_again(page: Page, service: Service) -> None:
    service.begin_demo()
    service.count_demo({("mars", "KR"): 40})
    expect(page.locator("#tenant")).to_have_value("demo")
    page.get_by_label("tenant", exact=True).select_option("main")
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_visible()
    expect(page.locator("#demo")).to_be_hidden()
    page.get_by_label("tenant", exact=True).select_option("demo")
    expect(page.locator("#demo-note")).to_have_text("You have not sent an event of your own yet:")
    service.count({("A", "DE"): 3})
    expect(page.locator("#demo-note")).to_have_text("Your own events are in the tenant main.")
    expect(page.locator("#demo .curl")).to_be_hidden()
    assert page.url == f"{service.url}/?tenant=demo"
    page.reload()
    expect(page.locator("#tenant")).to_have_value("demo")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("mars40")
    service.count_demo({("mars", "KR"): 2})
    expect(page.locator("#counted")).to_have_text("42")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("mars42")


def test_any_tenant_but_the_demo_is_the_users_own(page: Page, service: Service) -> None:
    service.begin_demo()
    service.count_demo({("mars", "KR"): 40})
    expect(page.locator("#tenant")).to_have_value("demo")
    acme = service.store.registry.put_meter("acme", Meter("plays", ("view",), by=("video", "country")), now_ms=1)
    service.count({("A", "DE"): 3}, meter=acme)
    expect(page.locator("#tenant")).to_have_value("acme")
    expect(page.locator("#counted")).to_have_text("3")
    expect(page.locator("#demo")).to_be_hidden()
    page.get_by_label("tenant", exact=True).select_option("demo")
    expect(page.locator("#demo-note")).to_have_text("Your own events are in the tenant acme.")
    service.count({("A", "DE"): 1})
    expect(page.locator("#demo-note")).to_have_text("Your own events are in the tenants main, acme.")


def test_a_page_that_switched_by_itself_does_not_jump_about(page: Page, service: Service) -> None:
    acme = service.store.registry.put_meter("acme", Meter("plays", ("view",), by=("video", "country")), now_ms=1)
    service.count({("A", "DE"): 3}, meter=acme)
    expect(page.locator("#tenant")).to_have_value("acme")
    service.count({("A", "DE"): 1})
    service.count({("A", "DE"): 4}, meter=acme)
    expect(page.locator("#counted")).to_have_text("7")
    page.reload()
    expect(page.locator("#tenant")).to_have_value("main")


def test_a_tenant_without_events_is_told_how_to_send_its_first(page: Page, service: Service) -> None:
    service.store.registry.put_meter("acme", Meter("plays", ("view",), by=("video",)), now_ms=1)
    page.goto(f"{service.url}/?tenant=acme")
    expect(page.get_by_role("heading", name="Nothing has been counted yet")).to_be_visible()
    expect(page.locator("#curl")).to_contain_text(f"curl '{service.url}/v1/events?tenant=acme'")
    expect(page.locator("#add-meter")).to_contain_text("--tenant acme")
    page.get_by_label("tenant", exact=True).select_option("main")
    expect(page.locator("#curl")).to_contain_text(f"curl '{service.url}/v1/events'")
    expect(page.locator("#add-meter")).not_to_contain_text("--tenant")


def test_a_tenant_that_does_not_exist_is_said(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/?tenant=nosuch")
    expect(page.locator("#no-tenant")).to_have_text("There is no tenant nosuch yet; this is the tenant main.")
    service.begin_demo()
    expect(page.locator("#no-tenant")).to_have_text("There is no tenant nosuch yet; this is the tenant demo.")
    service.store.registry.add_tenant("nosuch")
    expect(page.locator("#tenant")).to_have_value("nosuch")
    expect(page.locator("#no-tenant")).to_be_hidden()


def test_a_name_that_no_tenant_can_have_still_gets_the_page(page: Page, service: Service) -> None:
    page.goto(f"{service.url}/?tenant=ACME")
    expect(page.locator("#no-tenant")).to_have_text("“ACME” cannot be the name of a tenant; this is the tenant main.")
    page.goto(f"{service.url}/?tenant=main")
    expect(page.locator("#verdict")).to_have_text("nothing late, nothing lost")
    expect(page.locator("#no-tenant")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_demo_fits_a_phone_in_both_schemes(open_page: Open, service: Service, scheme: str) -> None:
    service.begin_demo()
    service.count_demo({("mars", "KR"): 40})
    phone = open_page(width=360, height=740, scheme=scheme)
    expect(phone.locator("#demo")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_way_of_an_event_says_what_the_system_does_and_that_every_role_runs(page: Page, service: Service) -> None:
    service.send(*(ago(1, video="A") for _ in range(12)))
    stations = page.get_by_role("region", name="The way of an event").get_by_role("heading", level=3)
    expect(stations).to_have_text(["Collect", "Log", "Count", "Keep", "Answer"])
    for role in ("collector", "pipeline", "keeper", "query"):
        expect(page.locator("#roles")).to_contain_text(f"{role} running")
    expect(page.locator("#roles > li").nth(2)).to_contain_text("12")
    expect(page.locator("#account")).to_contain_text("in flight")
    expect(page.get_by_text("The account adds up: every accepted event is in one of these lines.")).to_be_visible()


def test_events_per_second_are_shown_now_and_over_the_last_hour(page: Page, service: Service) -> None:
    service.send(*(ago(n, video="A") for n in range(1, 50)))
    expect(page.locator("#hour .plot")).to_have_attribute("aria-label", re.compile("highest 0.0.*/s at"))
    expect(page.locator("#hour canvas")).to_be_visible()
    expect(page.get_by_role("region", name="Events per second").locator(".freshness")).to_contain_text("exact")
    page.locator("#hour .data summary").click()
    expect(page.locator("#hour .data tbody tr")).to_have_count(61)


def test_a_top_key_leads_to_its_meter(page: Page, service: Service) -> None:
    service.send(*(ago(1, video="A") for _ in range(3)))
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("A3")
    page.get_by_role("link", name="Open this meter").click()
    expect(page).to_have_url(f"{service.url}/meters/views?by=video&fn=count")
    expect(page.locator("#total")).to_have_text("3")
