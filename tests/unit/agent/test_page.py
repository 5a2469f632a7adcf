"""docs/agent.md names everything that the agent sends, and the agent carries little."""

import subprocess
import sys
from pathlib import Path

import pytest

from tallymark.agent.machine import Machine
from tallymark.agent.refusals import REASONS
from tallymark.agent.service import Agent

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "agent.md").read_text(encoding="utf-8")


def test_every_figure_of_the_machine_is_documented():
    reading = Machine(processes=["nginx"]).read()
    names = {"cpu", *(f"cpu_{name}" for name in reading.cpu_s if name != "idle"), *reading.levels, *reading.totals}
    assert len(names) > 25
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []


def test_every_figure_about_the_agent_is_documented(sources, clock, sent):
    sources.listener = type("Quiet", (), {"is_alive": True, "dropped": lambda self: 0})()
    sources.endpoints = [type("Endpoint", (), {"failures": 0, "take": lambda self: {}})()]
    own = [
        name for name in Agent(sources, server="a", every_s=1, clock=clock).snapshot(sent.stats()) if "agent" in name
    ]
    assert len(own) >= 9
    assert [name for name in own if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_a_refusal_is_documented(reason):
    assert f"| `{reason}` |" in PAGE


def test_the_agent_needs_nothing_but_psutil_and_what_a_client_needs():
    others = ("pyspark", "pyarrow", "polars", "numpy", "granian", "yaml", "prometheus_client", "xxhash")
    script = (
        "import sys, tallymark.agent.__main__, tallymark.agent.supervising, tallymark.commands.agent;"
        f"print(sorted({{name.split('.')[0] for name in sys.modules}} & set({others!r})))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
