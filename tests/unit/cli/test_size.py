"""How many partitions, brokers and tasks a load needs."""

import json
import re
from pathlib import Path

import pytest

from tallymark.cli import main
from tallymark.commands import size

BENCHMARKS = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def reckoned(capsys, *arguments: str) -> dict:
    assert main(["size", *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plain_events(capsys):
    told = reckoned(capsys, "--events-per-second", "1,000,000", "--bytes", "250")
    assert told["events_per_second"] == 1_000_000
    assert (told["as_asked"]["mb_per_second"], told["as_asked"]["partitions"], told["as_asked"]["brokers"]) == (
        250,
        3,
        9,
    )
    assert (told["tasks"]["least"], told["tasks"]["partitions"]) == (3, 3)


def test_the_largest_numbers_are_reckoned(capsys):
    told = reckoned(
        capsys, "--servers", "1e15", "--metrics", "1e15", "--every", "1e-15", "--bytes", "1e15", "--broker-mb", "1e-15",
        "--replicas", "1e15",
    )  # fmt: skip
    assert told["values_per_second"] == pytest.approx(1e45)


def test_frames_are_told_of_the_size_that_was_measured_only(capsys):
    """100,000 events of 5,000 bytes are 500 MB/s: five partitions, not the one that frames of 90 bytes would need."""
    told = reckoned(capsys, "--events-per-second", "100,000", "--bytes", "5000")
    assert (told["as_asked"]["partitions"], told["as_frames"], told["tasks"]["partitions"]) == (5, None, 5)
    assert main(["size", "--events-per-second", "100,000", "--bytes", "5000"]) == 0
    assert "frames" not in capsys.readouterr().out
    usual = reckoned(capsys, "--events-per-second", "100,000")
    assert (usual["as_frames"]["bytes_each"], usual["tasks"]["partitions"]) == (90, 1)


def test_exactly_what_brokers_take_needs_no_more_of_them(capsys):
    asked = reckoned(capsys, "--events-per-second", "1000000", "--bytes", "200", "--replicas", "1")["as_asked"]
    assert (asked["partitions"], asked["brokers"], asked["mb_per_second_each"], asked["fits"]) == (2, 2, 100, True)


def test_a_little_needs_one_partition_and_one_task(capsys):
    told = reckoned(capsys, "--servers", "1", "--metrics", "1", "--every", "60")
    assert (told["as_asked"]["partitions"], told["tasks"]["least"]) == (1, 1)


def test_tasks_may_need_more_partitions_than_bytes_do(capsys):
    assert main(["size", "--events-per-second", "2000000"]) == 0
    told = capsys.readouterr().out
    assert "at least 6" in told
    assert "log.partitions = 6, although the bytes need only 2" in told


def test_named_partitions_that_are_too_few_are_said(capsys):
    assert main(["size", "--events-per-second", "2000000", "--partitions", "2"]) == 0
    told = capsys.readouterr().out
    assert "187, over 100" in told
    assert "251% busy: too few, at least 6 are needed" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --servers N --metrics M"),
        (["--servers", "5"], "--metrics is missing"),
        (["--metrics", "5"], "--servers is missing"),
        (["--servers", "5", "--metrics", "5", "--events-per-second", "5"], "give --servers N --metrics M"),
        (["--servers", "0", "--metrics", "5"], "0 is not a whole number of at least 1"),
        (["--servers", "2.5", "--metrics", "5"], "2.5 is not a whole number of at least 1"),
        (["--servers", "many", "--metrics", "5"], "'many' is not a number"),
        (["--events-per-second", "nan"], "nan is not a number above 0"),
        (["--events-per-second", "inf"], "inf is more than 1e+15"),
        (["--events-per-second", "1e308"], "1e308 is more than 1e+15, the maximum"),
        (["--servers", "1e308", "--metrics", "10"], "1e308 is more than 1e+15"),
        (["--servers", "nan", "--metrics", "10"], "nan is not a whole number of at least 1"),
        (["--servers", "1", "--metrics", "1", "--every", "1e-320"], "1e-320 is less than 1e-15, the minimum"),
        (["--events-per-second", "1", "--broker-mb", "1e-320"], "1e-320 is less than 1e-15"),
        (["--events-per-second", "1", "--broker-mb", "0"], "0 is not a number above 0"),
        (["--events-per-second", "1,5"], "'1,5' is not a number: commas separate thousands, as in 1,000,000"),
        (["--events-per-second", "1,0000"], "'1,0000' is not a number"),
        (["--events-per-second", ",5"], "',5' is not a number"),
        (["--events-per-second", "5", "--every", "2"], "--every is for snapshots"),
        (["--events-per-secnd", "5"], "did you mean --events-per-second?"),
    ],
)
def test_mistakes_are_one_line_with_the_way_out(capsys, arguments, said):
    assert main(["size", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("kind", [size.VALUES, size.EVENTS], ids=lambda kind: kind.unit)
def test_the_measured_rates_are_those_of_the_benchmarks(kind):
    row = next(line for line in BENCHMARKS.splitlines() if f"{kind.per_task:,}" in line)
    assert re.search(r"per CPU-second|three meters", row)
