"""The documents say what is so: every name in them exists, and everything there is has its place in them."""

import ast
import importlib.util
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from tallymark import Client, cli, settings
from tallymark.commands.command import Command, Group, Parser, _with_relative_times, add_output
from tallymark.events.bodies import Delivery
from tallymark.events.clocks import Clocks
from tallymark.events.refusals import CODES
from tallymark.events.validation import validate
from tallymark.ledger import OUTCOMES
from tallymark.meters import AGGREGATES, Meter, matches, parse
from tallymark.meters import language as query_language
from tallymark.meters.file import loads
from tallymark.meters.stored_query import KEYWORDS
from tallymark.query import api

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
}
PLACE = re.compile(r"`((?:src|tests|bench|docs)/[\w./-]+\.py)(?:::([\w.]+))?`")
WHOLE_PLACE = re.compile(r"^`tests/[\w./-]+\.py::\w+`$")


def code(text: str) -> Iterator[str]:
    """Lines of shell blocks, and what stands between backticks outside of blocks."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language == "sh":
            yield from re.sub(r"\\\n\s*", "", block).splitlines()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", outside)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, heads left out."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and lines[number + 1].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not is_head:
            yield [cell.strip() for cell in line.strip("|").split("|")]


def section(page: str, title: str) -> str:
    return re.split(r"^## ", PAGES[page].split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


# Names in the documents exist


@cache
def names(path: Path) -> set[str]:
    """What a module defines: functions, classes, their methods, constants."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_place_in_the_code_exists(page: str) -> None:
    for path, symbol in PLACE.findall(PAGES[page]):
        assert (ROOT / path).is_file(), f"{page} names {path}"
        assert not symbol or symbol in names(ROOT / path), f"{page} names {path}::{symbol}"


def test_what_is_looked_for_in_the_documents_is_found() -> None:
    """A pattern that no longer matches would let every page pass."""
    text = "\n".join(PAGES.values())
    assert len(PLACE.findall(PAGES["docs/architecture.md"])) > 50
    assert len(re.findall(r"\]\(([^)\s]+)\)", text)) > 50
    assert len(re.findall(r"\btallymark_\w+", text)) > 30
    assert sum(1 for page in PAGES for _ in spoken_commands(page)) > 20


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in slugs, f"{page} links to {target}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_names_a_folder_of_somebodys_machine(page: str) -> None:
    assert not re.findall(r"(?<![\w.])/(?:work|home|root|tmp|Users)/\S*", PAGES[page])


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in code(PAGES[page]):
        if found := re.match(r"make ([a-z-]+)", line):
            assert found[1] in targets, f"{page} says {line}"


def find(words: list[str]) -> tuple[Command | Group, list[str]]:
    """The command that these words call, and its arguments."""
    module = importlib.import_module(f"tallymark.commands.{cli.COMMANDS[words[0]][0]}")
    found, arguments = module.COMMANDS[words[0]], words[1:]
    if isinstance(found, Group) and arguments:
        found, arguments = found.commands[arguments[0]], arguments[1:]
    return found, arguments


def spoken_commands(page: str) -> Iterator[list[str]]:
    for line in code(PAGES[page]):
        if found := re.match(r"(?:\.venv/bin/)?tallymark(?: (.*))?$", line):
            yield shlex.split(found[1] or "", comments=True)


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    for words in spoken_commands(page):
        assert words[:1] == [] or words[0] in cli.COMMANDS, f"{page} says tallymark {' '.join(words)}"
        found, arguments = find(words) if words else (None, [])
        # A bare `tallymark total` names the command; with arguments it must be a call that would be understood.
        if isinstance(found, Command) and arguments and arguments[-1] != "…":
            parser = Parser(found)
            found.arguments(parser)
            if not any(action.dest == "output" for action in parser._actions):
                add_output(parser)
            parser.parse_intermixed_args(_with_relative_times(arguments))


def test_the_modules_that_import_spark_are_those_that_are_named() -> None:
    imports = re.compile(r"^(?:from|import) pyspark", re.MULTILINE)
    found = {path.name for path in SOURCES if imports.search(path.read_text(encoding="utf-8"))}
    (row,) = [cells for cells in rows(PAGES["CONTRIBUTING.md"]) if "import Spark" in cells[-1]]
    assert set(re.findall(r"`(\w+\.py)`", row[-1])) == found


# Everything there is has its place in the documents


def test_generated_pages_are_up_to_date() -> None:
    place = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert place is not None
    assert place.loader is not None
    generate = importlib.util.module_from_spec(place)
    place.loader.exec_module(generate)
    for name, make in generate.PAGES.items():
        assert PAGES[f"docs/{name}"] == make(), f"run python docs/generate.py: {name} is old"


def test_every_setting_is_documented() -> None:
    for entry in settings.entries():
        assert f"| `{entry.key}` |" in PAGES["docs/settings.md"]


def test_every_metric_is_documented() -> None:
    made = re.compile(r"(?:counter|gauge|histogram)\(\s*\"(tallymark_\w+)\"")
    found = {name for path in SOURCES for name in made.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 20
    for name in found:
        assert f"| `{name}` |" in PAGES["docs/metrics.md"]


def test_metrics_that_are_named_exist() -> None:
    for page, text in PAGES.items():
        for name in re.findall(r"\btallymark_\w+", text):
            assert f"| `{name}` |" in PAGES["docs/metrics.md"], f"{page} names {name}"


def test_the_account_in_the_documents_has_every_outcome() -> None:
    equation = f"accepted = {' + '.join(term.name for term in OUTCOMES)} + in flight"
    for page, text in PAGES.items():
        for found in re.findall(r"accepted = counted[\w+ ]+in flight", text):
            assert found == equation, page
    assert equation in PAGES["docs/guarantees.md"]
    assert equation in PAGES["docs/architecture.md"]


def test_every_command_is_documented() -> None:
    titles = set(re.findall(r"^## (.+)$", PAGES["docs/commands.md"], re.MULTILINE))
    for name in cli.COMMANDS:
        found = find([name])[0]
        expected = {each.name for each in found.commands.values()} if isinstance(found, Group) else {name}
        assert expected <= titles


def test_every_path_is_documented() -> None:
    nothing = cast(Any, None)
    table = {(route.method, route.path) for route in api.routes(nothing, nothing).table}
    table = {(method, path) for method, path in table if not path.startswith("/static/")}
    table |= {("POST", "/v1/events"), ("GET", "/v1/clients"), ("GET", "/tallymark.js")}
    documented = {tuple(row[0].strip("`").split(" ")) for row in rows(section("docs/http.md", "Paths"))}
    assert documented == table


def test_every_refusal_is_documented() -> None:
    made = re.compile(r"(?:Problem\(\s*\d{3},|BadBody\()\s*\"(\w+)\"")
    found = {code for path in SOURCES for code in made.findall(path.read_text(encoding="utf-8"))} | set(CODES)
    assert len(found) > 40
    missing = [code for code in sorted(found) if f"`{code}`" not in PAGES["docs/http.md"]]
    assert not missing


def test_every_flaw_of_a_meter_is_documented() -> None:
    made = re.compile(r"(?:\badd|_add|Flaw|ExpressionError)\(\s*\"(\w+)\"")
    folder = ROOT / "src" / "tallymark" / "meters"
    found = {code for path in folder.glob("*.py") for code in made.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 15
    missing = [code for code in sorted(found) if f"`{code}`" not in PAGES["docs/meters.md"]]
    assert not missing


def test_every_parameter_of_a_question_is_documented() -> None:
    from tallymark.query.parameters import PARAMETERS

    said = {name for row in rows(section("docs/http.md", "Questions")) for name in re.findall(r"`(\w+)`", row[0])}
    assert set(PARAMETERS) <= said


# Examples are right


def test_the_events_of_the_documents_are_accepted() -> None:
    clocks = Clocks(accept_past_ms=1, accept_future_ms=1, tolerance_ms=1)
    lines = [
        line for block in blocks("docs/http.md", "json") for line in block.splitlines() if line.startswith('{"event"')
    ]
    sent = re.findall(r"-d '(.+)'$", "\n".join([*blocks("README.md", "sh"), *blocks("docs/http.md", "sh")]), re.M)
    assert len(lines) >= 3
    assert len(sent) >= 3
    for text in [*lines, *(event for event in sent if "noon" not in event)]:
        assert validate(Delivery(text.encode(), 0), clocks, max_events=10).refusals == []


def test_the_meters_of_the_documents_are_well_defined() -> None:
    (block,) = blocks("docs/meters.md", "yaml")
    assert len(loads(block)) == 7


def test_the_table_of_where_is_right() -> None:
    found = [row for row in rows(section("docs/meters.md", "Where")) if row[-1] in ("yes", "no")]
    assert len(found) > 10
    for expression, props, kept in found:
        event = {"event": "view", "props": json.loads(props.strip("`"))}
        assert matches(parse(expression.strip("`")), event) == (kept == "yes"), expression


def test_the_examples_of_queries_are_right() -> None:
    found = list(rows(section("docs/query-language.md", "Examples")))
    assert len(found) > 4
    for text, canonical in found:
        assert str(query_language.parse(text.strip("`"))) == canonical.strip("`")
    (block,) = blocks("docs/query-language.md", "ebnf")
    keywords = {word for word in re.findall(r'"(\w+)"', block) if word.isupper()}
    assert keywords == KEYWORDS - {"OR", "NOT"}
    plain = {word for word in re.findall(r'"(\w\w+)"', block) if word.islower()} - {"ago", "now"}
    assert plain == {*AGGREGATES, "median", "percentile"}


def ask(text: str) -> None:
    (block,) = blocks("docs/meters.md", "yaml")
    query = query_language.parse(text)
    selected = query_language.resolve(query, [*loads(block), Meter("logins", ("login",))], lambda _: ["cpu", "mem"])
    query_language.filters(query, selected)


def refusals(module: str) -> Iterator[tuple[range, str]]:
    """Lines of each call that refuses a query, and its text; without those that only hand on."""
    hand_on = ("_refuse", "_refuse_part")
    on_no_page = ("parse", "_ambiguous")  # a text of 10,000 characters; two meters with one metric
    tree = ast.parse((ROOT / "src/tallymark/meters" / module).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in (*hand_on, *on_no_page):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and re.search(
                    r"(_refuse|_refuse_part|refusal|error)$", ast.unparse(call.func)
                ):
                    yield range(call.lineno, (call.end_lineno or call.lineno) + 1), ast.unparse(call)


def test_every_error_of_a_query_is_documented_with_its_text() -> None:
    reached: set[tuple[str, int]] = set()
    for row in rows(section("docs/query-language.md", "What can be wrong with a query")):
        if len(row) == 3:
            text, position, error = (cell.strip("`") for cell in row)
            with pytest.raises(query_language.QueryError) as caught:
                ask(text)
            assert (caught.value.position, caught.value.detail) == (int(position), error), text
            reached |= {
                (entry.path.name, entry.lineno + 1) for entry in caught.traceback if isinstance(entry.path, Path)
            }
    for module in ("language.py", "phrases.py", "selection.py"):
        for lines, call in refusals(module):
            assert any((module, line) in reached for line in lines), call


def test_the_profile_of_a_cluster_can_be_loaded(tmp_path: Path) -> None:
    (block,) = blocks("docs/deploy.md", "toml")
    (tmp_path / "cluster.toml").write_text(block)
    loaded = settings.load(tmp_path / "cluster.toml", environment={})
    assert (loaded.log.kind, loaded.store.kind) == ("kafka", "cassandra")
    assert not loaded.pipeline.master.startswith("local")


def test_every_trade_off_is_a_setting_with_a_price() -> None:
    known = {entry.key for entry in settings.entries()}
    found = list(rows(PAGES["docs/tradeoffs.md"]))
    assert len(found) > 20
    for what, setting, *_, price in found:
        names = set(re.findall(r"`(\w+\.\w+)`", setting))
        assert names <= known, f"{what}: {names - known}"
        ours = set(re.findall(r"(\w+)=…", setting))
        assert ours <= set(inspect.signature(Client).parameters), what
        assert names or ours or "request" in setting, what
        assert len(price) > 10, what


# Promises


def test_every_promise_has_a_test() -> None:
    promises = list(rows(PAGES["docs/guarantees.md"]))
    assert len(promises) > 40
    for row in promises:
        for test in row[-1].split(", "):
            assert WHOLE_PLACE.match(test), f"{row[0]}: {test}"


def test_every_story_is_told() -> None:
    found = sorted((ROOT / "tests" / "stories").glob("test_*.py"))
    assert len(found) > 5
    for path in found:
        assert f"tests/stories/{path.name}::" in PAGES["docs/guarantees.md"]


def test_every_capability_has_a_test_or_comes_later() -> None:
    found = [row for row in rows(PAGES["docs/capabilities.md"]) if row[0].isdigit()]
    assert [int(row[0]) for row in found] == list(range(1, 171))
    for number, _, _, right in found:
        assert PLACE.search(right) or re.search(r"^later: \w+", right), number
