"""A role as a process: it announces itself, and stops when asked or when its parent is gone."""

import json
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from tallymark.role import Role
from tallymark.settings import Settings
with Role(Settings(data=sys.argv[1]), "keeper") as role:
    role.announce("127.0.0.1:1")
    print("ready", flush=True)
    assert role.stopping.wait(30)
print("stopped", flush=True)
"""


@pytest.fixture
def role(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"TALLYMARK_SUPERVISED": "1"},
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    if not process.stdin.closed:
        process.stdin.close()


def test_it_says_where_it_is_and_takes_that_back_at_the_end(role, tmp_path):
    place = tmp_path / "run" / "keeper.json"
    facts = json.loads(place.read_text())
    assert (facts["pid"], facts["address"]) == (role.pid, "127.0.0.1:1")
    role.send_signal(signal.SIGTERM)
    assert role.wait(10) == 0
    assert not place.exists()


def test_the_end_of_its_parent_ends_it(role):
    role.stdin.close()
    assert role.wait(10) == 0
    assert role.stdout.read() == "stopped\n"
