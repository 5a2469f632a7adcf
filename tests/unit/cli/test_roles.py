"""A role that cannot work says why in one line, whatever the reason."""

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
