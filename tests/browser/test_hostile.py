"""Every name, label, title, property and parameter as somebody would write it who wants to run code in the page."""

import time
from urllib.parse import quote

from playwright.sync_api import Page, expect

from browser.conftest import Open, Service, ago
from browser.filling import board, bury, put, save

TEXTS = (
    "<img src=x onerror=window.hacked=1>",
    '"><script>window.hacked=1</script>',
    "</title><svg/onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
    "${window.hacked=1}",
    "';window.hacked=1;//",
    "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "&lt;b&gt; &#60;script&#62;",
    "\u202egnp.exe\u0085\u2028",
    "__proto__",
    "constructor",
    "toString",
    "'); DROP TABLE counts; --",
    "%3Cscript%3E",
    "=HYPERLINK(1)",
)
# What is allowed as a name of an event, a query or a board, and means something else elsewhere.
NAMES = ("__proto__", "constructor", "javascript:alert", "hasOwnProperty", "toString", "data:text.html")
FOUND = """() => ({
  hacked: window.hacked ?? null,
  polluted: Object.keys(Object.prototype),
  elements: [...document.querySelectorAll("main *, dialog *")]
    .filter((each) => /^(script|iframe|object|embed|img|base|link|meta)$/i.test(each.tagName)
      || [...each.attributes].some(({ name, value }) => name.startsWith("on")
        || (name === "href" && /^\\s*javascript:/i.test(value))))
    .map((each) => each.outerHTML.slice(0, 120)),
})"""


def fill(service: Service) -> None:
    """Each text at each place that takes one."""
    service.put_meter(name="constructor", event="view", by=["video", "__proto__"], compute=["count", "sum"])
    service.send(*(ago(1, name=name, value=1, video=text, **{text: text}) for name in NAMES for text in TEXTS))
    service.send(*(ago(2, value=2, video=text, country=text, __proto__=text) for text in TEXTS))
    for number, (name, text) in enumerate(zip(NAMES, TEXTS, strict=False)):
        save(service, name, f"FROM * SELECT views WINDOW 1{'mh'[number % 2]} COMPUTE count BY video", title=text)
    kinds = ("line", "bars", "number", "table")
    panels = [
        {"query": name, "title": text, "kind": kinds[place % 4]}
        for place, (name, text) in enumerate(zip(NAMES, reversed(TEXTS), strict=False))
    ]
    for name, text in zip(NAMES, TEXTS, strict=False):
        board(service, *panels[:4], name=name, title=text)
    rows = [{"video": text, "title": text, "constructor": number} for number, text in enumerate(TEXTS)]
    put(service, "/v1/tables/constructor?key=video", rows)
    raws = [("collector", "bad_json", text.encode()) for text in TEXTS]
    bury(service, *raws, detail=TEXTS[0])
    bury(service, ("collector", "bad_time", b'{"event": "<img src=x onerror=window.hacked=1>"}'), detail=TEXTS[1])


def paths() -> list[str]:
    nasty = quote(TEXTS[0])
    return [
        "/",
        "/meters",
        "/meters/views?by=video",
        "/meters/constructor?by=__proto__",
        f"/meters/{nasty}",
        "/new-meter",
        "/ask",
        f"/ask?q={quote('FROM * SELECT views WINDOW 1m COMPUTE count BY video')}&kind={nasty}",
        f"/ask?q={quote('FROM * SELECT views COMPUTE count BY video')}&kind=table&name={nasty}",
        f"/ask?q={nasty}&range={nasty}&fn={nasty}&from={nasty}&to={nasty}",
        f"/boards?add={nasty}",
        *(f"/boards/{quote(name)}" for name in NAMES[:3]),
        "/boards/constructor?edit=1",
        f"/boards/constructor?add={nasty}",
        f"/boards/{nasty}",
        "/tables",
        "/tables/constructor",
        f"/tables/constructor?search={quote('<svg')}",
        f"/tables/{nasty}",
        "/dead-letters",
        f"/dead-letters?hop={nasty}&reason={nasty}",
        "/live",
        f"/live?event={nasty}&where={nasty}&rate={nasty}",
        f"/?tenant={nasty}&tz={nasty}",
    ]


def harmless(page: Page, where: str) -> None:
    assert page.evaluate(FOUND) == {"hacked": None, "polluted": [], "elements": []}, where


def test_nothing_that_somebody_writes_is_run_or_breaks_a_page(open_page: Open, service: Service) -> None:
    fill(service)
    page = open_page("/")
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    for path in paths():
        page.goto(service.url + path)
        expect(page.locator("main .page > *").first).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("This page made a mistake")
        page.wait_for_load_state("load")
        harmless(page, path)
    assert said == []


def test_what_opens_on_a_page_is_harmless_too(open_page: Open, service: Service) -> None:
    fill(service)
    page = open_page("/dead-letters")
    for place in range(3):
        page.locator("#letters summary").nth(place).click()
        expect(page.locator("#letters > li").nth(place).locator(".raw").first).to_be_visible()
    expect(page.locator("#letters .raw").first).to_contain_text("<img src=x onerror=window.hacked=1>")
    harmless(page, "a dead letter")

    page.goto(f"{service.url}/tables/constructor")
    page.get_by_role("button", name=f"History of {TEXTS[0]}", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(TEXTS[0])
    harmless(page, "the history of a row")
    page.keyboard.press("Escape")
    content = 'video,<img src=x onerror=window.hacked=1>,__proto__\n<b>,"<svg/onload=window.hacked=1>",x\n'
    page.set_input_files("#file", [{"name": "<img>.csv", "mimeType": "text/csv", "buffer": content.encode()}])
    expect(page.locator(".preview")).to_contain_text("<svg/onload=window.hacked=1>")
    harmless(page, "the preview of a file")

    page.goto(f"{service.url}/live")
    expect(page.locator("#tail-state")).to_have_text("listening")
    service.send({"event": "constructor", "time": int(time.time() * 1000), "props": {text: text for text in TEXTS}})
    page.get_by_role("button", name="Open constructor of").click()
    expect(page.get_by_role("dialog")).to_contain_text(TEXTS[0])
    harmless(page, "an event")
    page.keyboard.press("Escape")

    page.goto(f"{service.url}/ask?q={quote('FROM ' + repr(TEXTS[0]) + ' SELECT views WINDOW 1m COMPUTE count')}")
    expect(page.locator("#canonical")).to_contain_text(TEXTS[0])
    page.get_by_label("Your question").fill("FROM ")
    page.get_by_label("Your question").press("Control+Space")
    expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
    harmless(page, "completions")
    page.get_by_role("button", name="Delete __proto__").click()
    expect(page.get_by_role("dialog")).to_contain_text(TEXTS[0])
    harmless(page, "a question before something is deleted")
