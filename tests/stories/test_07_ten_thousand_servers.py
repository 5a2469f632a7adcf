"""Story 7: 10,000 servers send 2,000 metrics each, every second. How many brokers, and how many tasks?"""

import json
import math

from tallymark.cli import main
from tallymark.commands.size import VALUES

SERVERS = ["size", "--servers", "10000", "--metrics", "2000"]


def reckoned(capsys, *arguments: str) -> dict:
    assert main([*SERVERS, *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_twenty_million_values_a_second_need_twelve_brokers(capsys):
    told = reckoned(capsys)
    assert told["values_per_second"] == 20_000_000
    asked = told["as_asked"]
    assert (asked["bytes_each"], asked["mb_per_second"]) == (16, 320)
    assert (told["broker_mb_per_second"], told["replicas"]) == (100, 3)
    assert (asked["partitions"], asked["brokers"]) == (4, 12)
    assert asked["fits"]


def test_two_partitions_are_six_brokers(capsys):
    for way in (["--broker-mb", "200"], ["--bytes", "8"]):
        asked = reckoned(capsys, *way)["as_asked"]
        assert (asked["partitions"], asked["brokers"], asked["fits"]) == (2, 6, True)
    named = reckoned(capsys, "--partitions", "2")["as_asked"]
    assert (named["brokers"], named["mb_per_second_each"], named["fits"]) == (6, 160, False)
    # As Tallymark's frames hold them, two are enough.
    framed = reckoned(capsys)["as_frames"]
    assert (framed["partitions"], framed["brokers"]) == (2, 6)


def test_and_our_own_number_of_tasks_by_the_rate_that_was_measured(capsys):
    tasks = reckoned(capsys)["tasks"]
    assert tasks["least"] == math.ceil(20_000_000 / VALUES.per_task) == 3
    assert tasks["busy_share"] < 1
    assert "docs/benchmarks.md" in tasks["source"]


def test_the_table_says_the_same(capsys):
    assert main(SERVERS) == 0
    told = capsys.readouterr().out
    assert told.startswith("20,000,000 values/s\n")
    (asked,) = [line for line in told.splitlines() if line.startswith("at 16 bytes")]
    assert asked.split()[3:] == ["320", "4", "x", "3", "=", "12", "80"]
    assert "tasks: at least 3" in told
