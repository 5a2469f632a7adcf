"""The `type` of a refusal leads somewhere: to its code, on a page that the refusing process serves itself."""

import ast
import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import get_args
from urllib.parse import urldefrag, urljoin

import pytest

from tallymark import problems
from tallymark.collector.waiting import WaitingRoom
from tallymark.events.refusals import CODES
from tallymark.http import Problem
from tallymark.meters import stored_query
from tallymark.query import api

SOURCE = Path(problems.__file__).parent
FLAW = re.compile(r"(?:\badd|_add|Flaw|ExpressionError)\(\s*\"(\w+)\"")


def raised() -> dict[str, set[int]]:
    """Code -> statuses, of every Problem and BadBody that the code makes with a code of its own."""
    found: dict[str, set[int]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if node.func.id == "Problem" and isinstance(node.args[1], ast.Constant):
                found.setdefault(words[1], set()).add(words[0])
            elif node.func.id in ("BadBody", "TableError", "too_many") and isinstance(node.args[0], ast.Constant):
                found.setdefault(words[0], set()).add(400)
    return found


def flaws(*, over_http: bool = False) -> set[str]:
    """Codes of definitions: `PUT /v1/meters/{name}` refuses with that of the first flaw. Files only commands read."""
    paths = [path for path in (SOURCE / "meters").glob("*.py") if not over_http or path.name != "file.py"]
    return {code for path in paths for code in FLAW.findall(path.read_text("utf-8"))}


class Anchors(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name == "id" and value]


def test_every_code_that_the_code_can_refuse_with_is_in_the_table():
    known = raised()
    assert len(known) > 40
    assert len(flaws()) > 15
    assert set(problems.MEANINGS) == set(known) | set(CODES) | flaws() | set(get_args(stored_query.Code))


def test_the_statuses_of_the_table_are_those_of_the_code():
    known = raised()
    for code, meaning in problems.MEANINGS.items():
        # What redefines a built-in meter is a conflict, not a definition that cannot be read.
        of_definitions = {400} if code in flaws(over_http=True) - {"built_in"} else set()
        of_queries = {404 if code in stored_query.NOT_FOUND else 400} if code in get_args(stored_query.Code) else set()
        assert set(meaning.statuses) == known.get(code, set()) | of_definitions | of_queries, code


def test_a_code_without_a_status_is_of_single_events_or_of_files():
    for code, meaning in problems.MEANINGS.items():
        if not meaning.statuses:
            assert (meaning.elsewhere == problems.IN_ERRORS) == (code in CODES), code
    assert b'<dt id="too_old"><code>too_old</code> (in <code>errors</code> of an answer)</dt>' in problems.page()


@pytest.mark.parametrize("code", sorted(problems.MEANINGS))
def test_the_type_of_a_refusal_resolves_to_its_code(code):
    told = json.loads(Problem(400, code, "detail").body())["type"]
    place, anchor = urldefrag(urljoin("http://127.0.0.1:8080/v1/meters/views/total?x=1", told))
    assert place == f"http://127.0.0.1:8080{problems.PATH}"
    assert Anchors(problems.page()).found.count(anchor) == 1


def test_the_query_service_serves_the_page():
    route, _ = api.routes(None, None).find("GET", problems.PATH)
    answer = route.answer(api.Request("GET", problems.PATH))
    assert (answer.status, dict(answer.headers)["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body == problems.page()


def test_a_collector_that_waits_for_its_log_serves_the_page_too():
    answered = []
    proto = SimpleNamespace(response_bytes=lambda *told: answered.append(told))
    asyncio.run(WaitingRoom("no broker").app(SimpleNamespace(path=problems.PATH, method="GET"), proto))
    ((status, _, body),) = answered
    assert (status, body) == (200, problems.page())


def test_texts_of_the_table_are_escaped():
    assert problems._marked("a < `b`") == "a &lt; <code>b</code>"
    assert b"<script" not in problems.page()
