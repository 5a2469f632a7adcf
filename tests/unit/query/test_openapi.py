"""The document and the service cannot drift apart: one table makes both."""

from tallymark.query.parameters import PARAMETERS, RESERVED

OF_A_TENANT = (
    "/v1/meters",
    "/v1/query",
    "/v1/queries",
    "/v1/boards",
    "/v1/tables",
    "/v1/dlq",
    "/v1/events",
    "/v1/tail",
)
CONTRACT = [
    "from",
    "to",
    "step",
    "window",
    "by",
    "with",
    "k",
    "fn",
    "compare",
    "tz",
    "format",
    "consistency",
    "late",
    "limit",
    "over",
    "rank",
    "tenant",
]


def test_every_route_is_in_it(desk):
    paths = desk.ask("/openapi.json")["paths"]
    assert {(path, method) for path, methods in paths.items() for method in methods} == {
        (route.path, route.method.lower()) for route in desk.routes.table
    }


def test_every_documented_parameter_is_taken(desk):
    examples = {name: parameter.example for name, parameter in PARAMETERS.items()} | {"by": "video"}
    desk.send("PUT", "/v1/tables/videos?key=video", b"video,title\nA,Alpha\n", {"content-type": "text/csv"})
    needs = {"with": "&by=video", "window": "&from=-1h", "over": "&from=-1h&window=5m", "compare": "&from=-1h"}
    taken = set()
    for path, methods in desk.ask("/openapi.json")["paths"].items():
        if not path.startswith("/v1/meters/"):
            continue
        for parameter in methods.get("get", {}).get("parameters", []):
            name = parameter["name"]
            if parameter["in"] == "query" and name != "label" and not path.endswith("/live"):
                needed = needs.get(name, "") + (
                    "&by=video" if path.endswith("/top") and name not in ("by", "with") else ""
                )
                answer = desk.ask(f"{path.format(name='views')}?{name}={examples[name]}{needed}")
                assert answer.get("meter", answer.get("name")) == "views"
                taken.add(name)
    assert taken >= {"from", "to", "step", "by", "k", "fn", "tz", "tenant"}


def test_a_query_and_its_forms_are_described(desk):
    paths = desk.ask("/openapi.json")["paths"]
    get, post = (paths["/v1/query"][method] for method in ("get", "post"))
    (query,) = [each for each in get["parameters"] if each["name"] == "q"]
    assert (query["required"], query["schema"]) == (True, {"type": "string"})
    assert set(post["requestBody"]["content"]) == {"text/plain", "application/json"}
    for operation in (get, post, paths["/v1/meters/{name}/top"]["get"]):
        assert set(operation["responses"]["200"]["content"]) >= {"application/json", "text/csv"}
        assert "304" in operation["responses"]
    assert set(paths["/v1/meters/{name}/live"]["get"]["responses"]["200"]["content"]) == {"text/event-stream"}


def test_what_belongs_to_a_tenant_says_so_and_nothing_else_does(desk):
    for path, methods in desk.ask("/openapi.json")["paths"].items():
        for operation in methods.values():
            found = {(each["name"], each["in"]) for each in operation["parameters"]}
            both = {("tenant", "query"), ("Tallymark-Tenant", "header")}
            assert found & both == (both if path.startswith(OF_A_TENANT) else set()), path


def test_reserved_words_are_those_of_the_contract():
    assert set(RESERVED) == set(CONTRACT)


def test_identifiers_are_unique(desk):
    operations = [each for methods in desk.ask("/openapi.json")["paths"].values() for each in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) > 10


def test_the_page_is_cached_by_its_content(desk):
    first = desk.send("GET", "/")
    headers = dict(first.headers)
    assert headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert desk.send("GET", "/", headers={"if-none-match": headers["etag"]}).status == 304
    assert desk.send("GET", "/", headers={"if-none-match": '"other"'}).status == 200
