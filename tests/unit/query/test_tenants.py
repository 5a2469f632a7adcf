"""Whose numbers these are: nothing of one tenant reaches another, whatever is asked."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from asking import Desk, at
from tallymark.events import columns, frame
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.tenants import MOST_TENANTS
from tallymark.events.validation import validate
from tallymark.meters.model import Meter
from tallymark.query import frame_rows
from tallymark.query.app import make_app
from tallymark.query.live import Wanted, news
from tallymark.store.model import DeadLetter, Ledger

VIEWS = Meter("views", ("view",), by=("video",))
AT_MS = 1_763_208_000_123


class Proto:
    """What the server hands an application, as far as it is used."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.status, self.content = 0, b""

    async def __aiter__(self):
        yield self._body

    def response_bytes(self, status: int, headers: Any, content: bytes) -> None:
        self.status, self.content = status, content


class Service:
    """The query service's application on a fake store, asked as a client does."""

    def __init__(self, desk: Desk) -> None:
        self.store = desk.store
        self._dispatcher, self._app = make_app(desk.sources, desk.routes)

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self._dispatcher.close()

    def ask(self, target: str, method: str = "GET", body: Any = None, tenant: str = "") -> tuple[int, Any]:
        path, _, query = target.partition("?")
        headers = {"host": "localhost"} | ({"tallymark-tenant": tenant} if tenant else {})
        scope: Any = SimpleNamespace(method=method, path=path, query_string=query, headers=headers)
        proto = Proto(msgspec.json.encode(body))
        asyncio.run(self._app(scope, proto))
        return proto.status, msgspec.json.decode(proto.content)


@pytest.fixture
def service(keeping_desk):
    """Two tenants besides main, each with a meter `views`; answers are kept for a second."""
    with Service(keeping_desk) as opened:
        for tenant, video, events in (("acme", "A", 3), ("globex", "B", 5)):
            opened.store.registry.put_meter(tenant, VIEWS, now_ms=1)
            opened.store.count("views", ((video,), at("12:00:00"), [None] * events), tenant=tenant)
        yield opened


@pytest.mark.parametrize("kind", ["total?from=-1h", "series?step=1h", "top?by=video", "total"])
def test_the_same_question_has_an_answer_for_each_tenant_also_from_the_cache(service, kind):
    target = f"/v1/meters/views/{kind}"
    for _ in range(2):
        told = {tenant: str(service.ask(target, tenant=tenant)[1]) for tenant in ("acme", "globex", "main")}
        assert "'count': 3" in told["acme"]
        assert "'count': 5" in told["globex"]
        assert "'count': 3" not in told["main"]
        assert "'count': 5" not in told["main"]


def test_header_and_parameter_say_the_same(service):
    target = "/v1/meters/views/total"
    assert service.ask(target, tenant="acme") == service.ask(f"{target}?tenant=acme")
    status, told = service.ask(f"{target}?tenant=acme", tenant="globex")
    assert (status, told["code"]) == (400, "bad_tenant")


@pytest.mark.parametrize("target", ["/v1/status", "/healthz", "/readyz", "/v1/tenants", "/openapi.json"])
def test_other_paths_take_a_tenant_and_answer_as_without(service, target):
    status, told = service.ask(f"{target}?tenant=acme")
    assert status == 200
    assert told.keys() == service.ask(target)[1].keys()


def test_a_tenant_that_does_not_exist_is_404_with_the_nearest(service):
    for target in ("/v1/meters", "/v1/meters/events", "/v1/meters/events/total", "/v1/dlq", "/v1/dlq/1"):
        status, told = service.ask(target, tenant="acmee")
        assert (status, told["code"], told["detail"]) == (
            404,
            "unknown_tenant",
            "there is no tenant 'acmee'; did you mean acme?",
        )
    assert service.ask("/v1/meters", tenant="main")[0] == 200


def test_a_label_called_tenant_is_pointed_to(service):
    service.store.registry.put_meter("main", Meter("calls", ("call",), by=("tenant",)), now_ms=1)
    service.store.count("calls", (("zed",), at("12:00:00"), [None]))
    for kind in ("total", "series", "top", "live"):
        status, told = service.ask(f"/v1/meters/calls/{kind}?tenant=zed")
        assert (status, told["code"]) == (404, "unknown_tenant")
        assert told["detail"].endswith("; to filter by the label tenant, write label.tenant=zed")
    assert service.ask("/v1/meters/calls/total?label.tenant=zed")[1]["value"] == {"count": 1}
    assert "label" not in service.ask("/v1/meters/views/total?tenant=zed")[1]["detail"]


def test_a_tenant_in_capitals_is_no_filter(service):
    for target in ("/v1/meters/views/total", "/v1/meters/views/live", "/v1/meters", "/v1/dlq", "/v1/status"):
        status, told = service.ask(f"{target}?Tenant=acme")
        assert (status, told["code"]) == (400, "unknown_parameter")
        assert told["detail"].endswith("did you mean tenant?")


@pytest.mark.parametrize("name", ["events", "metrics"])
def test_the_built_in_meters_of_a_tenant_to_be_cannot_be_redefined(service, name):
    for tenant in ("initech", "acme"):
        status, told = service.ask(f"/v1/meters/{name}", "PUT", {"event": "click"}, tenant=tenant)
        assert (status, told["code"]) == (409, "built_in")
    assert "initech" not in service.store.tenants


def test_putting_a_meter_makes_a_tenant(service):
    status, told = service.ask("/v1/meters/clicks", "PUT", {"event": "click"}, tenant="initech")
    assert (status, told["version"]) == (201, 1)
    assert told["note"].endswith("; initech is a new tenant")
    assert [each["name"] for each in service.ask("/v1/meters", tenant="initech")[1]["meters"]] == [
        "events",
        "metrics",
        "clicks",
    ]
    assert service.ask("/v1/meters/clicks", tenant="acme")[0] == 404
    assert "new tenant" not in service.ask("/v1/meters/taps", "PUT", {"event": "tap"}, tenant="initech")[1]["note"]
    assert "new tenant" not in service.ask("/v1/meters/taps", "PUT", {"event": "tap"})[1]["note"]


def test_one_tenant_too_many_is_refused_before_anything_is_made(service):
    for number in range(MOST_TENANTS - len(service.store.tenants)):
        service.store.registry.add_tenant(f"t{number}")
    status, told = service.ask("/v1/meters/clicks", "PUT", {"event": "click"}, tenant="initech")
    assert (status, told["code"], told["limit"]) == (400, "too_many_tenants", MOST_TENANTS)
    assert "initech" not in service.store.tenants
    assert service.ask("/v1/meters/clicks", "PUT", {"event": "click"}, tenant="acme")[0] == 201


def test_changes_stay_in_their_tenant(service):
    service.store.break_meter("views", "no such column", tenant="acme")
    service.store.break_meter("views", "no such column", tenant="globex")
    assert service.ask("/v1/meters/views/resume", "POST", tenant="acme")[0] == 200
    assert service.ask("/v1/meters/views", tenant="globex")[1]["broken"] == "no such column"
    assert service.ask("/v1/meters/views", "DELETE", tenant="acme")[0] == 200
    assert service.ask("/v1/meters/views", tenant="acme")[0] == 404
    assert service.ask("/v1/meters/views", tenant="globex")[0] == 200
    assert service.ask("/v1/meters/views")[0] == 200


def test_a_meter_of_the_demo_is_pointed_to(service):
    service.store.registry.put_meter("demo", Meter("demo_views", ("demo_view",)), now_ms=1)
    for target in ("/v1/meters/demo_views", "/v1/meters/demo_views/total", "/v1/meters/demo_views/live"):
        status, told = service.ask(target)
        assert (status, told["code"]) == (404, "unknown_meter")
        assert told["detail"] == (
            "you have no meter 'demo_views'; the demo's traffic has one: add ?tenant=demo,"
            " or --tenant demo to a command"
        )
        assert "demo" not in service.ask(target, tenant="acme")[1]["detail"].replace("demo_views", "")
    assert service.ask("/v1/meters/demo_views/total?tenant=demo")[0] == 200


def test_the_list_of_tenants_begins_with_main(service):
    service.store.tenant_ledgers = {"acme": Ledger(accepted=7, counted=6, duplicate=1), "main": Ledger()}
    assert service.ask("/v1/tenants")[1] == {
        "tenants": [
            {"name": "main", "events": 0, "meters": 5},
            {"name": "acme", "events": 7, "meters": 3},
            {"name": "globex", "events": 0, "meters": 3},
        ]
    }


def test_the_list_has_also_tenants_whose_every_event_was_refused(service):
    service.store.bury(letter("initech", "bad_time"))
    assert service.ask("/v1/tenants")[1]["tenants"][-1] == {"name": "initech", "events": 0, "meters": 0}
    assert [each["name"] for each in service.ask("/v1/status")[1]["tenants"]] == ["main", "acme", "globex", "initech"]


def test_main_is_told_whose_the_other_dead_letters_are_and_nobody_else_is(service):
    for tenant, reason in (("main", "bad_time"), ("initech", "bad_time"), ("acme", "too_old"), ("acme", "bad_time")):
        service.store.bury(letter(tenant, reason))
    assert service.ask("/v1/dlq")[1]["others"] == {"acme": 2, "initech": 1}
    assert service.ask("/v1/dlq?reason=too_old")[1]["others"] == {"acme": 1}
    assert "others" not in service.ask("/v1/dlq?hop=pipeline")[1]
    assert "others" not in service.ask("/v1/dlq", tenant="acme")[1]


def test_a_tenant_whose_every_event_was_refused_can_see_why(service):
    service.store.bury(letter("initech", "bad_time"))
    status, told = service.ask("/v1/dlq", tenant="initech")
    assert (status, [each["reason"] for each in told["letters"]]) == (200, ["bad_time"])


def test_the_letter_of_another_tenant_is_as_unknown_as_one_that_never_was(service):
    service.store.bury(letter("globex", "bad_time"))
    status, told = service.ask("/v1/dlq/1", tenant="acme")
    assert (status, told["detail"]) == (404, "there is no dead letter 1 in the tenant acme; none are kept")
    never = service.ask("/v1/dlq/2", tenant="acme")[1]
    assert told["detail"].replace("1", "2") == never["detail"]
    assert service.ask("/v1/dlq/1", tenant="globex")[0] == 200


def letter(tenant: str, reason: str, raw: bytes = b"{}") -> DeadLetter:
    return DeadLetter("collector", reason, f"{reason} of {tenant}", 1, raw, AT_MS, tenant=tenant)


def mixed_frame() -> bytes:
    """One event of each of three tenants, as a collector packs them."""
    clocks = Clocks(accept_past_ms=10**9, accept_future_ms=10**9, tolerance_ms=5_000)
    found = []
    for tenant in ("main", "acme", "globex"):
        accepted = validate(
            Delivery(msgspec.json.encode([{"event": "view", "id": tenant}]), AT_MS), clocks, max_events=10
        )
        accepted.tenant = tenant
        found.append(accepted)
    ((_, content),) = frame.frames(columns.batch(found))
    return content


@pytest.mark.parametrize("read", [frame_rows.rows, frame_rows.rows_in_a_child])
def test_of_a_frame_that_mixes_tenants_each_is_shown_its_own_and_main_all(read):
    content = mixed_frame()
    assert [row["id"] for row in read(content, limit=10, tenant="acme")] == ["acme"]
    assert [row["id"] for row in read(content, limit=1, tenant="globex")] == ["globex"]
    assert [(row["id"], row.get("tenant")) for row in read(content, limit=10)] == [
        ("main", None),
        ("acme", "acme"),
        ("globex", "globex"),
    ]


NAMES = st.from_regex(r"[a-z][a-z_]{2,9}", fullmatch=True)
CONTENT = st.fixed_dictionaries(
    {
        "meters": st.lists(st.sampled_from(["view", "clicks", "veiws", "sales"]) | NAMES, max_size=4, unique=True),
        "video": NAMES,
        "events": st.integers(1, 50),
        "missing": st.integers(0, 9),
        "reason": st.sampled_from(["bad_time", "too_old", "bad_value"]) | NAMES,
        "raw": st.binary(max_size=20),
        "broken": st.none() | NAMES,
    }
)
TARGETS = [
    "/v1/meters",
    *(f"/v1/meters/{name}" for name in ("views", "veiws", "view", "clicks", "sales", "events")),
    *(
        f"/v1/meters/views/{rest}"
        for rest in ("total", "total?video=B", "series?by=video", "top?by=video", "top?by=vid")
    ),
    "/v1/meters/view/total",
    "/v1/meters/clicks/live",
    *(f"/v1/dlq{rest}" for rest in ("", "?reason=bad_time", "?reason=bad_tim", "?limit=1", "/1", "/2", "/3", "/4")),
]


@settings(max_examples=40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(CONTENT, CONTENT)
def test_whatever_another_tenant_has_the_answers_are_the_same(new_desk, these, those):
    """Not a number, a name, a letter or a hint: of two worlds that differ in globex alone, acme sees one.

    A failure is not shrunk: each world starts threads, and that took minutes.
    """
    assert seen_by_acme(new_desk(), globex=these) == seen_by_acme(new_desk(), globex=those)


def seen_by_acme(desk: Desk, *, globex: dict[str, Any]) -> list[Any]:
    store = desk.store
    for name in ("views", *globex["meters"]):
        store.registry.put_meter("globex", Meter(name, ("view",), by=("video",)), now_ms=1)
    store.registry.put_meter("acme", VIEWS, now_ms=1)
    for tenant, reason, raw in (("acme", "bad_time", b"own"), ("globex", globex["reason"], globex["raw"])):
        store.bury(letter(tenant, reason, raw))
    store.count("views", (("A",), at("12:00:00"), [None] * 3), tenant="acme")
    store.count("views", ((globex["video"],), at("12:00:00"), [None] * globex["events"]), tenant="globex")
    store.tenant_ledgers = {
        "acme": Ledger(accepted=3, counted=3),
        "globex": Ledger(accepted=globex["events"] + globex["missing"], counted=globex["events"]),
    }
    if globex["broken"]:
        store.break_meter("views", globex["broken"], missed=globex["events"], tenant="globex")
    with Service(desk) as service:
        told = [service.ask(target, tenant="acme") for target in TARGETS]
    return [*told, news(store, [Wanted("acme", "views", (), 0)])]
