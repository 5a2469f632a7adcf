"""The client against a real collector that dies, hangs, is late, busy or away: nothing lost, all counted once."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest

import faulty
from faulty import FaultyProxy
from running import clean_environment, free_port
from tallymark import Client
from tallymark import log as logs
from tallymark.client.transport import HttpTransport, NoAnswer, Request
from tallymark.events import frame
from tallymark.pipeline.counting.claims import Claims
from tallymark.pipeline.counting.count import count
from tallymark.pipeline.counting.history import LogHistory
from tallymark.settings import Settings

pytestmark = pytest.mark.timeout(300)

KILLS = 10
HORIZON_MS = 600_000


class Collector:
    """`tallymark collector` on a port that stays, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tallymark", "collector", "--data", str(self.folder), "--port", str(self.port)]
        with open(self.folder.parent / "collector.out", "ab") as output:
            self._process = subprocess.Popen(
                command, cwd=self.folder.parent, env=clean_environment(), stdout=output, stderr=output
            )

    def kill(self) -> None:
        if self._process is not None:
            for each in psutil.Process(self._process.pid).children(recursive=True):
                each.kill()
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_ready(self) -> bool:
        transport = HttpTransport(self.url, timeout_s=2.0)
        try:
            return transport.exchange(Request("GET", "/readyz")).status == 200
        except NoAnswer:
            return False
        finally:
            transport.close()

    def logged(self) -> Counter[str]:
        """Every id in the log, with how many copies of it."""
        found: Counter[str] = Counter()
        reader = logs.open_reader(Settings(data=str(self.folder)), "events")
        for partition, at in reader.positions().items():
            for record in reader.read(partition, at.first, at.synced):
                found.update(frame.decode(record.payload, only={"id"})["id"].to_pylist())
        reader.close()
        return found

    def counted(self, claims: Path, build) -> int:
        """What the pipeline counts of the log."""
        reader = logs.open_reader(Settings(data=str(self.folder)), "events")
        total = 0
        for partition, at in reader.positions().items():
            history = LogHistory(reader, partition)
            with Claims(
                claims, partition, start=at.first, end=at.synced, horizon_ms=HORIZON_MS, history=history
            ) as table:
                records = reader.read(partition, at.first, at.synced)
                total += count(records, claims=table, meters=build.meters()).ledger.counted
        reader.close()
        return total


@pytest.fixture
def collector(tmp_path, build):
    data = tmp_path / "data"
    data.mkdir()
    made = Collector(data)
    made.start()
    build.wait_until(made.is_ready, what="the collector is ready")
    yield made
    made.kill()


class Load:
    """A thread that counts views at a steady pace until it is stopped."""

    def __init__(self, client: Client, every_s: float = 0.0005) -> None:
        self.ids: list[str] = []
        self._client, self._every_s = client, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            self.ids.append(self._client.count("view", video="A", number=number))
            if self._stop.wait(self._every_s):
                return


def the_law(stats) -> bool:
    ended = stats.delivered + stats.refused + stats.dropped
    return stats.called + stats.adopted == ended + stats.queued + stats.in_flight + stats.spilled


def settled(client: Client, build) -> None:
    build.wait_until(
        lambda: client.flush(1.0) and client.stats().spilled == 0, seconds=120, what="everything delivered"
    )
    assert the_law(client.stats())


def counted_once(collector: Collector, client: Client, ids: list[str], tmp_path: Path, build) -> None:
    stats = client.stats()
    assert (stats.called, stats.delivered, stats.refused, stats.dropped) == (len(ids), len(ids), 0, 0)
    assert set(collector.logged()) == set(ids)
    assert collector.counted(tmp_path / "claims", build) == len(ids) == len(set(ids))


def spilling(tmp_path: Path, *urls: str, **changed) -> Client:
    return Client(list(urls), when_full="spill", spill_folder=tmp_path / "spill", **changed)


def test_a_collector_killed_ten_times_under_load(collector, tmp_path, build):
    """A small buffer, so that outages overflow into the spill."""
    with spilling(tmp_path, collector.url, max_events=500, batch_events=50, linger_s=0.02) as client:
        with Load(client) as load:
            for number in range(KILLS):
                delivered = client.stats().delivered
                build.wait_until(lambda least=delivered: client.stats().delivered > least, what=f"load {number}")
                collector.kill()
                assert the_law(client.stats())
                build.wait_until(lambda: client.stats().spilled > 0, what="an overflow into the spill")
                collector.start()
                build.wait_until(collector.is_ready, what="the collector is back")
        settled(client, build)
        assert client.stats().retried > 0
        counted_once(collector, client, load.ids, tmp_path, build)


@pytest.mark.parametrize("fault", [faulty.half_busy, faulty.late, faulty.answers_lost])
def test_a_faulty_way_to_the_collector(collector, tmp_path, build, fault):
    with (
        FaultyProxy(free_port(), collector.port, fault) as proxy,
        spilling(tmp_path, proxy.url, batch_events=20, linger_s=0.01, max_timeout_s=2.0) as client,
    ):
        with Load(client, every_s=0.001) as load:
            build.wait_until(lambda: len(load.ids) > 2_000, what="2,000 events")
        settled(client, build)
        assert proxy.taken > 50
        counted_once(collector, client, load.ids, tmp_path, build)
        if fault is faulty.answers_lost:
            assert max(collector.logged().values()) > 1  # sent again, because nobody said they had arrived


def test_a_port_that_is_dropped_and_comes_back(collector, tmp_path, build):
    with (
        FaultyProxy(free_port(), collector.port) as proxy,
        spilling(tmp_path, proxy.url, batch_events=20, linger_s=0.01) as client,
    ):
        with Load(client) as load:
            for _ in range(3):
                delivered = client.stats().delivered
                build.wait_until(lambda least=delivered: client.stats().delivered > least, what="load")
                proxy.drop()
                build.wait_until(lambda: client.stats().breakers[proxy.url] == "open", what="the breaker opens")
                proxy.listen()
                build.wait_until(lambda: client.stats().breakers[proxy.url] == "closed", what="the breaker closes")
        settled(client, build)
        assert len(load.ids) > 60, "three outages under load"
        counted_once(collector, client, load.ids, tmp_path, build)


def test_of_two_addresses_one_hangs(collector, tmp_path, build):
    """The other carries the load: what is called goes on being delivered while the first never answers again."""
    with (
        FaultyProxy(free_port(), collector.port) as first,
        FaultyProxy(free_port(), collector.port) as second,
        spilling(tmp_path, first.url, second.url, batch_events=20, linger_s=0.01) as client,
    ):
        with Load(client) as load:
            build.wait_until(lambda: first.taken > 5 and second.taken > 5, what="both are used")
            first.fault = faulty.hanging
            delivered = client.stats().delivered
            build.wait_until(lambda: client.stats().delivered > delivered + 1_000, what="1,000 more delivered")
            build.wait_until(lambda: client.stats().breakers[first.url] == "open", what="the hanging one is set aside")
            first.fault = faulty.nothing
            build.wait_until(lambda: client.stats().breakers[first.url] == "closed", what="it is taken back")
        settled(client, build)
        assert len(load.ids) > 1_000
        counted_once(collector, client, load.ids, tmp_path, build)


SENDER = """
import sys, time
from tallymark import Client
client = Client(sys.argv[1], when_full="spill", spill_folder=sys.argv[2], max_events=100,
    batch_events=20, linger_s=0.01)
for number in range(3000):
    print(client.count("view", number=number), flush=True)
    time.sleep(0.0002)
print("all", flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_had_spilled_is_sent_by_the_next(collector, tmp_path, build):
    with FaultyProxy(free_port(), collector.port) as proxy:
        proxy.drop()
        sender = subprocess.Popen(
            [sys.executable, "-c", SENDER, proxy.url, str(tmp_path / "spill")], stdout=subprocess.PIPE, text=True
        )
        assert sender.stdout is not None
        ids = [line.strip() for line in itertools.takewhile(lambda line: line != "all\n", sender.stdout)]
        assert len(ids) == 3000
        os.kill(sender.pid, signal.SIGKILL)
        sender.wait()
        proxy.listen()
        with spilling(tmp_path, proxy.url) as client:
            settled(client, build)
            stats = client.stats()
        logged = collector.logged()
        # Kept in memory were at most the buffer's hundred; everything else survived.
        assert stats.adopted == len(logged) >= len(ids) - 100
        assert set(logged) <= set(ids)
        assert set(ids[: len(ids) - 200]) <= set(logged)


def test_memory_stays_bounded_while_the_collector_is_away(tmp_path):
    """200,000 events with nobody there: held is what the settings allow, the rest is reported."""
    dropped: list[object] = []
    client = Client(
        f"http://127.0.0.1:{free_port()}",
        when_full="drop",
        max_events=5_000,
        max_bytes=1_000_000,
        on_dropped=dropped.extend,
    )
    for number in range(200_000):
        client.count("view", number=number)
        if number % 10_000 == 0:
            stats = client.stats()
            assert stats.held_bytes <= 1_000_000
            assert stats.queued + stats.in_flight <= 5_000
            assert the_law(stats)
    client.close(timeout=0.1)
    stats = client.stats()
    assert the_law(stats)
    assert (stats.called, stats.dropped, len(dropped)) == (200_000, 200_000, 200_000)
