"""Whatever dies, whatever is lost that may be lost: every acknowledged event is counted once, in its own minute."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from loading import Load
from running import Running
from tallymark.load.encoding import Encoder

SEED = 2026
# The store is copied this early, so that going back to the copy means counting nearly everything again.
COPY_AFTER = 4_000
CLAIM_FILES = (".claims", ".side")

pytestmark = pytest.mark.timeout(1_500)


@dataclass(frozen=True)
class Ordeal:
    """How much is sent, how often what is killed meanwhile, and how small the batches of the recount are."""

    events: int
    rate: int
    kills: dict[str, int]
    small_batch: int

    @property
    def resent(self) -> int:
        return self.events // 10


SHORT = Ordeal(
    events=60_000,
    rate=2_000,
    kills={"collector": 2, "keeper": 1, "query": 1, "worker": 2, "jvm": 1, "pipeline": 1, "everything": 1},
    small_batch=2_000,
)
WHOLE = Ordeal(
    events=200_000,
    rate=4_000,
    kills={"collector": 4, "keeper": 4, "query": 3, "worker": 4, "jvm": 2, "pipeline": 1, "everything": 2},
    small_batch=4_000,
)


@dataclass
class Survivor:
    """A Tallymark that took a load while it was killed again and again."""

    ordeal: Ordeal
    running: Running
    load: Load
    store_copy: Path

    def check(self) -> None:
        self.load.check()
        assert self.running.status()["counted"] == self.load.distinct

    def stop(self) -> list[Path]:
        """Everything counted, then stopped; returns the claim files, which by then hold every id."""
        self.running.settled()
        self.running.stop()
        files = sorted(path for path in (self.running.data / "claims").iterdir() if path.suffix in CLAIM_FILES)
        assert len(files) == 4, "a table and a side file for each of two partitions"
        assert all(any(file.read_bytes()[4096:]) for file in files if file.suffix == ".claims")
        return files

    def resend(self, *, seed: int) -> None:
        """Events that were acknowledged long ago come again, with their old ids; none of them counts."""
        plan = self.load.outcomes.plan
        sends = np.sort(np.random.default_rng(seed).choice(plan.sends, self.ordeal.resent, replace=False))
        before = self.running.settled()["duplicate"]
        for part in np.array_split(sends.astype(np.uint64), 20):
            self.running.wait_until(partial(self._taken, part), seconds=180, what="a busy collector to take a resend")
        # More, if a busy collector had taken a part that it answered with "try again".
        assert self.running.settled()["duplicate"] >= before + self.ordeal.resent

    def _taken(self, part: np.ndarray) -> bool:
        plan = self.load.outcomes.plan
        status, told = self.running.exchange("POST", "/v1/events", Encoder(plan).encode(plan.sources(part)))
        if status in (408, 429, 503):
            return False
        assert (status, told["accepted"]) == (202, len(part)), told
        return True


@pytest.fixture(
    scope="module", params=[pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=pytest.mark.long)]
)
def survivor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    # The horizon covers the whole test, however busy the machine is.
    running = Running(tmp_path_factory.mktemp("crashes"), settings={"pipeline.horizon_s": 3600})
    try:
        yield survive(running.start(), request.param)
    finally:
        running.close()


def survive(running: Running, ordeal: Ordeal) -> Survivor:
    """The load, with every kill at the moment a drawn number of events has been acknowledged."""
    chance = random.Random(SEED)
    load = Load(running, "load", events=ordeal.events, rate=ordeal.rate, duplicates=0.05, late=0.02)
    survivor = Survivor(ordeal, running, load, running.folder / "early.db")
    load.await_acknowledged(COPY_AFTER)
    running.copy_store(survivor.store_copy)
    kinds = [kind for kind, times in ordeal.kills.items() for _ in range(times)]
    chance.shuffle(kinds)
    moments = sorted(chance.randrange(COPY_AFTER, ordeal.events) for _ in kinds)
    for kind, moment in zip(kinds, moments, strict=True):
        load.await_acknowledged(moment)
        hurt(running, kind, chance)
    load.finish()
    return survivor


def hurt(running: Running, kind: str, chance: random.Random) -> None:
    if kind == "everything":
        running.kill_everything()
        running.start()
    elif kind == "jvm":
        running.wait_until(running.jvm, seconds=180, what="a JVM to kill").kill()
    elif kind == "worker":
        workers = running.wait_until(running.python_workers, seconds=180, what="a Python worker to kill")
        chance.choice(workers).kill()
    else:
        running.kill(kind)


def test_every_acknowledged_event_is_counted_once_through_all_the_kills(survivor):
    survivor.check()


def test_sparks_scratch_folder_may_be_deleted(survivor):
    survivor.stop()
    shutil.rmtree(survivor.running.data / "scratch")
    survivor.running.start()
    survivor.resend(seed=1)
    survivor.check()


def test_the_claim_files_may_be_deleted(survivor):
    survivor.stop()
    shutil.rmtree(survivor.running.data / "claims")
    survivor.running.start()
    survivor.resend(seed=2)
    survivor.check()


def test_damaged_claim_files_are_noticed(survivor):
    for file in survivor.stop():
        flip_bytes(file)
    survivor.running.start()
    survivor.resend(seed=3)
    survivor.check()


def test_other_cuts_and_kills_in_the_middle_of_them_give_the_same_counts(survivor):
    """Nearly all is counted again, in small batches, and Spark is hit while it does nothing but count."""
    running, chance = survivor.running, random.Random(SEED)
    survivor.stop()
    running.put_back_store(survivor.store_copy)
    running.settings["pipeline.max_batch_events"] = survivor.ordeal.small_batch
    running.start()
    accepted = running.status()["accepted"]
    for share, kind in ((0.95, "worker"), (0.85, "worker"), (0.8, "worker"), (0.7, "worker"), (0.6, "jvm")):
        running.wait_until(
            partial(at_most_in_flight, running, share * accepted), seconds=180, what=f"{share} in flight"
        )
        hurt(running, kind, chance)
    survivor.check()
    batches = running.metric("tallymark_pipeline_batches_total")  # since the last start of Spark
    assert batches > 0.4 * survivor.ordeal.events / survivor.ordeal.small_batch, "they were really cut small"


def at_most_in_flight(running: Running, events: float) -> bool:
    return bool(running.status()["in_flight"] <= events)


def flip_bytes(file: Path) -> None:
    """All through the file but for its header, so that it still looks like what it was."""
    content = bytearray(file.read_bytes())
    for place in range(min(4096, len(content) // 2), len(content), 97):
        content[place] ^= 0xFF
    file.write_bytes(content)
