"""A role that cannot work says why in one line, whatever the reason."""

import subprocess
import sys

import pytest

from tallymark.cli import main

ROLES = ["collector", "pipeline", "keeper", "query"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("folder", ["/proc/nowhere", "/dev/null/data"])
def test_a_folder_that_cannot_be_written_is_one_line(capsys, role, folder):
    assert main([role, "--data", folder]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"tallymark {role}: ")
    assert told.count("\n") == 1
    assert folder in told
    assert "--data" in told


@pytest.mark.parametrize("role", ["pipeline", "keeper", "query"])
def test_a_store_that_is_none_is_one_line(role, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tallymark.db").write_bytes(b"not a database, whatever its name says" * 100)
    command = [sys.executable, "-m", "tallymark", role, "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "not a database" in ended.stderr
