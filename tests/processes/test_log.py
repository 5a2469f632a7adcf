"""The log between real processes: a writer that is killed, a reader that follows, a lock that holds."""

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tallymark.log import Appended, LocalLogWriter, LogBusy, LogLost, Outgoing
from tallymark.log.local.reader import LocalLogReader

SEGMENT_BYTES = 20_000

# Appends until it is told to stop or killed, and says what was acknowledged only after it was.
WRITER = """
import sys, zlib
from pathlib import Path
from tallymark.log import Appended, LocalLogWriter, Outgoing
folder, life, batches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
log = LocalLogWriter(folder, stream="events", partitions=2, partition_by="id", segment_bytes=int(sys.argv[4]))
print("open", flush=True)
for number in range(batches):
    frames = [Outgoing(n % 2, f"{life}/{number}/{n}|".encode() * (1 + (number * 7 + n) % 40), 3) for n in range(3)]
    for frame, outcome in zip(frames, log.append(frames)):
        assert isinstance(outcome, Appended), outcome
        print(outcome.partition, outcome.offset, zlib.crc32(frame.payload))
    sys.stdout.flush()
log.close()
print("closed", flush=True)
"""


@contextmanager
def writer(folder: Path, *, life: int = 0, batches: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(life), str(batches), str(SEGMENT_BYTES)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def open_log(folder: Path) -> LocalLogWriter:
    return LocalLogWriter(folder, stream="events", partitions=2, partition_by="id", segment_bytes=SEGMENT_BYTES)


def test_kill_9_while_appending_loses_nothing_acknowledged(tmp_path: Path):
    acknowledged: dict[tuple[int, int], int] = {}
    for life, acknowledgements in enumerate([1, 40, 150, 333]):
        with writer(tmp_path, life=life, batches=1_000_000) as process:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(acknowledgements)]
            os.kill(process.pid, signal.SIGKILL)
            # What it had said before it died counts; a line cut in the middle was not said.
            lines += [line for line in process.stdout.readlines() if line.endswith("\n")]
        for line in lines:
            partition, offset, crc = map(int, line.split())
            assert (partition, offset) not in acknowledged, "an offset was used twice"
            acknowledged[partition, offset] = crc
    with closing(open_log(tmp_path)), closing(LocalLogReader(tmp_path, "events")) as reader:
        found = {
            (partition, record.offset): zlib.crc32(record.payload)
            for partition, position in reader.positions().items()
            for record in reader.read(partition, 0, position.synced)
        }
    assert len(acknowledged) >= 1 + 40 + 150 + 333
    assert {place: found.get(place) for place in acknowledged} == acknowledged


def test_a_reader_follows_a_live_writer(tmp_path: Path):
    """Through rolling segments, at every moment: positions agree with each other, and all below `synced` reads."""
    batches = 400
    with writer(tmp_path, batches=batches) as process:
        reader = LocalLogReader(tmp_path, "events")
        total = {0: 2 * batches, 1: batches}
        read = {0: 0, 1: 0}
        deadline = time.monotonic() + 60
        steps = 0
        while read != total:
            assert time.monotonic() < deadline, f"read {read} of {total}"
            for partition, position in reader.positions().items():
                assert read[partition] <= position.synced <= position.end
                assert position.events == 3 * position.synced
                with pytest.raises(LogLost):
                    reader.read(partition, position.synced, total[partition] + 1)
                for record in reader.read(partition, read[partition], position.synced):
                    assert record.offset == record.sequence == read[partition]
                    assert record.payload.startswith(b"0/")
                    read[partition] += 1
                    steps += 1
        assert process.stdout
        assert process.stdout.read().endswith("closed\n")
        assert steps == 3 * batches
        assert reader.offset_at(0, 0) == 0
        reader.close()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path):
    with writer(tmp_path, batches=1_000_000) as process:
        with pytest.raises(LogBusy, match=f"process {process.pid}"):
            open_log(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with closing(open_log(tmp_path)) as log:
            assert isinstance(log.append([Outgoing(0, b"x", 1)])[0], Appended)
