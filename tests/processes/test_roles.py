"""A role whose store is damaged ends with one line that says so."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("role", ["pipeline", "keeper", "query"])
def test_a_store_that_is_none_is_one_line(role, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tallymark.db").write_bytes(b"not a database, whatever its name says" * 100)
    command = [sys.executable, "-m", "tallymark", role, "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "not a database" in ended.stderr
