"""What the package declares is what its code imports."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tallymark.commands.up import NEEDED, NEEDED_BY

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "prometheus_client": "prometheus-client",
    "confluent_kafka": "confluent-kafka",
    "cassandra": "cassandra-driver",
}


def declared(extra: str) -> set[str]:
    """The distributions that an extra brings, with those it refers to and the bare package's own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = {_name(each) for each in project["dependencies"]}
    for each in project["optional-dependencies"][extra]:
        referred = re.match(r"tallymark\[(.+)\]", each)
        found |= set().union(*map(declared, referred[1].split(","))) if referred else {_name(each)}
    return found


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~ \[]", requirement)[0].lower()


def imported() -> set[str]:
    """The third-party modules that the code names anywhere, also inside functions."""
    modules = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.split(".")[0])
    return modules - set(sys.stdlib_module_names) - {"tallymark"}


def distribution(module: str) -> str:
    return DISTRIBUTIONS.get(module, module)


def test_everything_imported_comes_with_the_extras_all_and_cluster_but_for_pandas():
    assert {distribution(module) for module in imported()} <= declared("all") | declared("cluster") | declared("pandas")
    assert "pandas" not in declared("all")


def test_one_machine_needs_nothing_of_a_cluster():
    assert not declared("all") & {"confluent-kafka", "cassandra-driver"}


@pytest.mark.parametrize("module", NEEDED)
def test_what_up_looks_for_comes_with_the_extra_all(module):
    assert distribution(module) in declared("all")


@pytest.mark.parametrize("role", NEEDED_BY)
def test_what_a_role_needs_comes_with_its_extra(role):
    assert {distribution(module) for module in NEEDED_BY[role]} <= declared(role)


def test_a_role_without_spark_does_not_declare_it():
    for role in ("collector", "keeper", "query"):
        assert "pyspark" not in declared(role)
