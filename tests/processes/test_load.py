"""A load that is killed leaves a journal of what was acknowledged."""

import signal
import subprocess
import sys
from pathlib import Path

from tallymark.load.journal import read

WRITER = """
import sys
from itertools import pairwise
from pathlib import Path
from tallymark.load.journal import Journal
from tallymark.load.plan import Plan
journal = Journal(Path(sys.argv[1]), Plan(run="t", seed=1, start_ms=0, rate=100.0, sends=1_000_000))
for start in range(0, 1_000_000, 10):
    journal.sending(start, start + 10)
    print(start, flush=True)
    journal.acknowledged(range(start, start + 10))
"""


def test_a_killed_load_leaves_a_journal_that_says_what_was_acknowledged(tmp_path: Path):
    path = tmp_path / "j"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 500:
                break
        process.send_signal(signal.SIGKILL)
        told = int([line, *process.stdout.read().split()][-1])
    outcomes = read(path)
    acknowledged = sum(end - start for start, end in outcomes.acknowledged)
    assert acknowledged in (told, told + 10)
    # The next ones may be on their way before their number is told.
    assert outcomes.unknown in ([], [(acknowledged, acknowledged + 10)])
