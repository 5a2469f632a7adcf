"""The pages about meters in real Chromium: the list, one meter over time, its definition, and a new one."""

import re

from playwright.sync_api import Page, Request, expect

from browser.conftest import Open, Service, ago, holds
from tallymark.testing import until


def wait_for_points(page: Page, least: int = 1) -> None:
    holds(page, f"document.querySelector('#over .plot')?.dataset.points >= {least}")


def table(page: Page, chart: str = "#over") -> list[list[str]]:
    """The data of a chart, newest first, as its table for screen readers has it."""
    if not page.locator(f"{chart} .data").evaluate("each => each.open"):
        page.locator(f"{chart} .data summary").click()
    expect(page.locator(f"{chart} .data tbody tr").first).to_be_visible()
    script = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    return page.locator(f"{chart} .data tbody tr").evaluate_all(script)  # type: ignore[no-any-return]


def three_videos(service: Service) -> None:
    service.send(
        *(ago(n, video="ABC"[n % 3], country="KR") for n in range(1, 13)), *[ago(2, video="A", country="DE")] * 5
    )


# The list


def test_the_list_has_a_sparkline_and_totals_of_each_meter(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters")
    views = page.locator("#meters > li", has_text="counts view by video, country")
    expect(views.locator(".total")).to_have_text("17")
    expect(views.locator(".hour")).to_have_text("17")
    expect(views.locator("svg.sparkline .line")).to_have_attribute("d", re.compile("^M"))
    expect(page.locator("#meters > li")).to_have_count(3)
    expect(page.locator(".freshness").first).to_contain_text(re.compile("exact.*complete through"))
    views.get_by_role("link", name="views").click()
    expect(page).to_have_url(f"{service.url}/meters/views")
    expect(page.get_by_role("heading", name="views", level=1)).to_be_visible()


def test_without_a_meter_of_ones_own_the_list_says_how_to_make_one(open_page: Open, service: Service) -> None:
    service.store.registry.delete_meter("main", "views", now_ms=1)
    page = open_page("/meters")
    expect(page.get_by_role("heading", name="You have no meter of your own yet")).to_be_visible()
    expect(page.locator(".empty .curl")).to_contain_text("tallymark meters add views --event view")
    page.get_by_role("link", name="New meter").click()
    expect(page).to_have_url(f"{service.url}/new-meter")


# One meter


def test_the_total_is_in_large_type_and_says_that_it_is_exact(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    expect(page.locator("#total")).to_have_text("17")
    assert page.locator("#total").evaluate("each => parseFloat(getComputedStyle(each).fontSize)") > 40
    expect(page.locator(".total-card .freshness")).to_contain_text(
        re.compile(r"exact.*complete through \d\d:\d\d:\d\d")
    )


def test_a_chart_by_any_label(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    expect(page.locator("#over canvas")).to_be_visible()
    page.get_by_label("by", exact=True).first.select_option("video")
    expect(page.locator("#over .legend button")).to_have_text(["A", "B", "C"])
    page.get_by_label("by", exact=True).first.select_option("country")
    expect(page.locator("#over .legend button")).to_have_text(["DE", "KR"])
    page.get_by_role("button", name="DE", exact=True).first.click()
    expect(page.locator("#over .legend button").nth(0)).to_have_attribute("aria-pressed", "false")


def test_step_and_range_can_be_chosen_and_are_in_the_address(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    page.get_by_role("button", name="6h").click()
    expect(page).to_have_url(re.compile("range=6h"))
    page.get_by_label("step").select_option("1h")
    expect(page).to_have_url(re.compile("step=1h"))
    until(lambda: len(table(page)) <= 7, "seven hours at most", deadline_s=30.0)
    assert sum(int(row[1]) for row in table(page) if row[1].isdigit()) == 17


def test_a_link_shows_the_same_to_somebody_else(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    page.get_by_label("by", exact=True).first.select_option("video")
    page.get_by_role("button", name="15m").click()
    page.get_by_label("previous period").check()
    page.locator("#top").get_by_role("button", name="A", exact=True).click()
    expect(page.get_by_label("Filters")).to_contain_text("video = A")
    other = open_page(page.url.removeprefix(service.url))
    expect(other.locator("#by")).to_have_value("video")
    expect(other.locator("#compare")).to_be_checked()
    expect(other.get_by_role("button", name="15m")).to_have_attribute("aria-pressed", "true")
    expect(other.get_by_label("Filters")).to_contain_text("video = A")
    expect(other.locator("#total")).to_have_text(page.locator("#total").inner_text())
    other.get_by_role("button", name="Without the filter video = A").click()
    expect(other.locator("#total")).to_have_text("17")


def test_dragging_over_the_chart_zooms_and_back_to_live(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    wait_for_points(page)
    box = page.locator("#over .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=\d{4}-\d\d-\d\dT\d\d:\d\d:00Z&to="))
    expect(page.get_by_role("button", name="Back to live")).to_be_visible()
    assert 14 <= len(table(page)) <= 18
    page.get_by_role("button", name="Back to live").click()
    expect(page).to_have_url(f"{service.url}/meters/views")
    expect(page.get_by_role("button", name="Live", exact=True)).to_have_attribute("aria-pressed", "true")


def test_a_live_chart_follows_what_is_counted(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views?by=video")
    expect(page.locator("#total")).to_have_text("17")
    service.send(ago(0, video="A"), ago(0, video="NEW"))
    expect(page.locator("#total")).to_have_text("19")
    expect(page.locator("#over .legend")).to_contain_text("NEW")
    expect(page.locator("#top")).to_contain_text("NEW")


def test_the_previous_period_is_beside_it(open_page: Open, service: Service) -> None:
    service.send(*[ago(5, video="A")] * 6, *[ago(25, video="A")] * 4)
    page = open_page("/meters/views?range=15m")
    expect(page.locator("#total")).to_have_text("6")
    expect(page.locator("#change")).to_be_hidden()
    page.get_by_label("previous period").check()
    expect(page.locator("#change")).to_have_text("+50 % · before: 4")
    expect(page.locator("#top td.change")).to_have_text("+50 %")
    assert sum(int(row[2]) for row in table(page) if row[2].isdigit()) == 4


def test_percentiles_are_a_band_and_called_approximate(open_page: Open, service: Service) -> None:
    service.put_meter(name="latency", event="rpc", by=["server"], compute=["count", "p50", "p99"], since_minutes=60)
    service.send(*(ago(minutes, name="rpc", value=n, server="web-1") for minutes in (3, 4, 5) for n in range(1, 101)))
    page = open_page("/meters/latency")
    expect(page.locator("#over .legend button")).to_have_text(["p99", "p90", "p50"])
    expect(page.locator("#total")).to_have_text(re.compile("^≈ "))
    expect(page.locator(".over-card .freshness")).to_contain_text("approximate, ±1.1 %")
    rows = [row for row in table(page) if row[1] != "–"]
    assert len(rows) == 3
    assert all(90 < float(row[1].strip("≈ ")) < 110 and 45 < float(row[3].strip("≈ ")) < 55 for row in rows)
    page.get_by_label("show", exact=True).select_option("count")
    expect(page.locator("#total")).to_have_text("300")
    expect(page.locator(".over-card .freshness")).to_contain_text("exact")


def test_where_there_is_no_data_there_is_a_gap_and_no_zero(open_page: Open, service: Service) -> None:
    service.put_meter(name="latency", event="rpc", compute=["avg"], since_minutes=60)
    service.put_meter(name="likes", event="like", since_minutes=5)
    service.send(ago(9, name="rpc", value=4), ago(3, name="rpc", value=6), ago(2, name="like"))
    page = open_page("/meters/latency?range=15m")
    wait_for_points(page, 2)
    assert [row[1] for row in table(page) if row[1] != "–"] == ["6", "4"]
    # A counter was zero while it existed, and nothing before.
    page = open_page("/meters/likes?range=15m")
    wait_for_points(page)
    shown = [row[1] for row in table(page)]
    assert shown[-8:] == ["–"] * 8
    assert "0" in shown
    assert "1" in shown


def test_the_top_table_follows_the_range_and_its_keys_filter(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("A9")
    page.get_by_label("by", exact=True).nth(1).select_option("country")
    expect(page.locator("#top tbody tr").nth(0)).to_contain_text("KR12")
    page.locator("#top").get_by_role("button", name="DE").click()
    expect(page).to_have_url(re.compile("label.country=DE"))
    expect(page.locator("#total")).to_have_text("5")


def test_the_arrow_keys_read_a_chart_point_by_point(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views?range=15m&step=1m")
    wait_for_points(page)
    expect(page.locator("#over .plot")).to_have_attribute("aria-label", re.compile("highest 6 at .* latest"))
    page.locator("#over .plot").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#over .tip")).to_be_visible()
    expect(page.locator("#over [aria-live]")).to_have_text(re.compile(r"\d\d:\d\d: count \d"))
    page.keyboard.press("Escape")
    expect(page.locator("#over .tip")).to_be_hidden()


def test_a_meter_that_does_not_exist_is_said_with_the_nearest(open_page: Open, service: Service) -> None:
    page = open_page("/meters/vews")
    expect(page.get_by_role("heading", name="There is no such meter")).to_be_visible()
    expect(page.locator("main")).to_contain_text("did you mean views?")


# Its definition


def test_a_definition_is_changed_in_the_page(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    expect(page.locator("#definition-said")).to_have_text("Nothing is changed.")
    expect(page.locator("#save")).to_be_disabled()
    page.get_by_label("Compute").fill("count, sum")
    expect(page.locator("#definition-said")).to_have_text("Changes compute; the numbers so far stay.")
    page.get_by_label("By", exact=True).fill("video")
    expect(page.locator("#definition-said")).to_contain_text("the new version begins at zero")
    page.locator("#save").click()
    expect(page.locator(".head")).to_contain_text("counts view by video · version 2")
    assert service.store.registry.meter("main", "views").meter.by == ("video",)


def test_what_the_checker_finds_wrong_stands_at_its_field(open_page: Open, service: Service) -> None:
    page = open_page("/meters/views")
    expect(page.locator("#definition-said")).to_have_text("Nothing is changed.")
    page.get_by_label("Compute").fill("count, p99999")
    page.get_by_label("Where").fill("ms >")
    expect(page.locator("#definition-compute-wrong")).to_contain_text("p99999")
    expect(page.locator("#definition-where-wrong")).to_be_visible()
    expect(page.get_by_label("Compute")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#save")).to_be_disabled()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#definition-compute-wrong")).to_be_hidden()


def test_deleting_warns_of_what_is_lost(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/views")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("the counts of 17 events")
    expect(page.get_by_role("dialog")).to_contain_text("can no longer be asked for")
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete views").click()
    expect(page).to_have_url(f"{service.url}/meters")
    expect(page.get_by_role("heading", name="You have no meter of your own yet")).to_be_visible()
    assert [each.meter.name for each in service.store.registry.meters("main")] == ["events", "metrics"]


def test_a_built_in_meter_is_shown_and_not_changed(open_page: Open, service: Service) -> None:
    three_videos(service)
    page = open_page("/meters/events")
    expect(page.locator("#definition-part")).to_contain_text("built in: it cannot be changed")
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)


# A new meter


def test_a_new_meter_is_suggested_from_events_seen_and_shows_its_numbers_first(
    open_page: Open, service: Service
) -> None:
    service.send(*(ago(0, name="play", value=n, song="xyz"[n % 3], user=f"u{n}") for n in range(300)))
    page = open_page("/new-meter")
    expect(page.locator("#seen")).to_contain_text("play")
    expect(page.get_by_label("Name")).to_have_value("plays")
    expect(page.get_by_label("Event", exact=True)).to_have_value("play")
    expect(page.get_by_label("By", exact=True)).to_have_value("song")
    expect(page.get_by_label("Compute")).to_have_value("count, sum, avg, p50, p99")
    expect(page.locator("#preview-total")).to_have_text("300")
    expect(page.locator("#preview-top tbody tr")).to_have_count(3)
    page.get_by_label("Where").fill("song = 'x'")
    expect(page.locator("#preview-total")).to_have_text("100")
    assert [each.meter.name for each in service.store.registry.meters("main")] == ["events", "metrics", "views"]
    page.get_by_role("button", name="Save the meter").click()
    expect(page).to_have_url(f"{service.url}/meters/plays")
    saved = service.store.registry.meter("main", "plays").meter
    assert (saved.events, saved.by, saved.where) == (("play",), ("song",), "song = 'x'")


def test_without_events_a_new_meter_says_how_to_send_one_and_waits(open_page: Open, service: Service) -> None:
    page = open_page("/new-meter")
    expect(page.locator("#none-seen")).to_contain_text("No event came in the last five minutes")
    expect(page.locator("#none-seen .curl").nth(0)).to_contain_text(f"curl '{service.url}/v1/events'")
    expect(page.locator("#none-seen .curl").nth(1)).to_contain_text("from tallymark import Client")
    service.send(ago(0, name="play", song="x"))
    expect(page.get_by_label("Name")).to_have_value("plays")
    expect(page.locator("#none-seen")).to_be_hidden()


def test_a_name_that_is_taken_or_wrong_is_said_before_saving(open_page: Open, service: Service) -> None:
    service.send(ago(0, video="A"))
    page = open_page("/new-meter")
    expect(page.get_by_label("Name")).to_have_value("views")
    expect(page.locator(".said")).to_have_text("A meter of this name exists already; saving changes it.")
    page.get_by_label("Name").fill("My Views")
    expect(page.locator("#new-name-wrong")).to_contain_text("is not a meter name")
    expect(page.locator("#save")).to_be_disabled()


def test_choices_go_to_the_tenant_that_is_shown(open_page: Open, service: Service) -> None:
    service.put_meter(tenant="acme", name="plays", event="play", by=["song"], since_minutes=60)
    service.send(ago(1, name="play", song="x"), tenant="acme")
    asked: list[Request] = []
    page = open_page("/meters?tenant=acme")
    page.on("request", lambda request: asked.append(request))
    expect(page.locator("#meters")).to_contain_text("plays")
    page.get_by_role("link", name="plays").click()
    expect(page).to_have_url(f"{service.url}/meters/plays?tenant=acme")
    expect(page.locator("#total")).to_have_text("1")
    mine = [each for each in asked if "/v1/meters/plays" in each.url]
    assert mine
    assert {each.headers["tallymark-tenant"] for each in mine} == {"acme"}
    page.get_by_label("Compute").fill("count, p99")
    page.locator("#save").click()
    expect(page.locator(".head")).to_contain_text("version 2")
    assert service.store.registry.meter("acme", "plays").meter.compute == ("count", "p99")
