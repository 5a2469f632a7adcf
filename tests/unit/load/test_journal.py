"""What was acknowledged is known even if the load itself is killed."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallymark.load.journal import Journal, JournalError, ranges, read
from tallymark.load.plan import Plan

PLAN = Plan(run="t", seed=1, start_ms=0, rate=100.0, sends=1_000_000)


def test_outcomes_are_told_apart(tmp_path: Path):
    with Journal(tmp_path / "j", PLAN) as journal:
        journal.sending(0, 10)
        journal.sending(10, 20)
        journal.sending(20, 30)
        journal.acknowledged([0, 1, 2, 5, 6, 7, 8, 9])
        journal.refused([3, 4])
        journal.acknowledged(range(20, 30))
    outcomes = read(tmp_path / "j")
    assert outcomes.plan == PLAN
    assert outcomes.acknowledged == [(0, 3), (5, 10), (20, 30)]
    assert outcomes.refused == [(3, 5)]
    assert outcomes.unknown == [(10, 20)]


@pytest.mark.parametrize(("tenant", "kept"), [("acme", "acme"), (None, "")])
def test_the_journal_keeps_the_tenant(tmp_path: Path, tenant: str | None, kept: str):
    Journal(tmp_path / "j", PLAN, tenant=tenant).__exit__(None, None, None)
    assert read(tmp_path / "j").tenant == kept


@given(st.integers(1, 400))
def test_a_line_cut_short_takes_nothing_else_with_it(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("j") / "j"
    with Journal(path, PLAN) as journal:
        header = path.stat().st_size
        for start in range(0, 100, 10):
            journal.sending(start, start + 10)
            journal.acknowledged(range(start, start + 10))
    content = path.read_bytes()
    path.write_bytes(content[: max(header, len(content) - cut)])
    outcomes = read(path)
    whole = content[: max(header, len(content) - cut)].count(b"acknowledged") * 10
    acknowledged = sum(end - start for start, end in outcomes.acknowledged)
    assert acknowledged in (whole, whole - 10)
    assert sum(end - start for start, end in outcomes.unknown) in (0, 10)


def test_what_is_no_journal_is_refused(tmp_path: Path):
    with pytest.raises(JournalError, match="cannot read"):
        read(tmp_path / "none")
    for content in (b"", b"hello\n", b'{"sending": [0, 1]}\n', b'{"plan": {"seed": 1}}\n'):
        (tmp_path / "j").write_bytes(content)
        with pytest.raises(JournalError, match="not the journal of a load"):
            read(tmp_path / "j")


def test_a_journal_whose_tenant_is_none_is_refused(tmp_path: Path):
    Journal(tmp_path / "j", PLAN, tenant="A B").__exit__(None, None, None)
    with pytest.raises(JournalError, match="not the journal of a load: 'A B' cannot name a tenant"):
        read(tmp_path / "j")


@given(st.sets(st.integers(0, 100)))
def test_ranges_hold_the_same_numbers(numbers):
    found = ranges(sorted(numbers))
    assert [n for start, end in found for n in range(start, end)] == sorted(numbers)
    assert all(end < start for (_, end), (start, _) in pairwise(found))
