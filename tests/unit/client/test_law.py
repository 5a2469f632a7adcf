"""Under any pattern of failures each event is delivered or reported, ids never change, and the account is right."""

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tallymark.client.transport import Answer, NoAnswer, NotConnected, Request, TimedOut
from tallymark.testing import DrivenClient, ManualClock
from tallymark.testing.transport import accepted, decoded

MOODS = ("take", "some", "refuse", "too_large", "busy", "away", "silent_before", "silent_after", "error", "overloaded")


class MoodyCollector:
    """Answers as its moods say, one a request, and remembers everything."""

    def __init__(self, chance):
        self.moods: list[str] = []
        self.chance = chance
        self.taken: Counter[str] = Counter()
        self.bodies: dict[str, bytes] = {}
        self.final: set[str] = set()
        """delivered or refused as far as the client was told: must never come again"""
        # Not raised: a client takes whatever its transport raises for a lost answer.
        self.complaints: list[str] = []

    def exchange(self, request: Request, *, timeout_s: float | None = None) -> Answer:
        events = decoded(request)
        ids = [event["id"] for event in events]
        for event in events:
            event.pop("resent", None)
            body = json.dumps(event, sort_keys=True).encode()
            if self.bodies.setdefault(event["id"], body) != body:
                self.complaints.append("an event changed between its tries")
            if event["id"] in self.final:
                self.complaints.append("an event was sent again after its outcome was told")
        mood = self.moods.pop(0) if self.moods else "take"
        if mood == "away":
            raise NotConnected("away")
        if mood == "silent_before":
            raise NoAnswer("hung up")
        if mood == "silent_after":
            self.taken.update(ids)
            raise TimedOut("too late")
        if mood == "busy":
            return Answer(429, {"retry-after": "2"}, b"{}")
        if mood == "too_large":
            if len(ids) == 1:
                self.final.update(ids)
            return Answer(413, {}, b"{}")
        if mood == "error":
            return Answer(500, {}, b"oops")
        if mood == "take":
            self.taken.update(ids)
            self.final.update(ids)
            return accepted(len(ids))
        return self._in_part(mood, ids)

    def _in_part(self, mood: str, ids: list[str]) -> Answer:
        """Each event by chance: taken, not now, never."""
        fates = {"some": "tnr", "refuse": "r", "overloaded": "nr"}[mood]
        errors, good = [], 0
        for index, id in enumerate(ids):
            fate = fates[self.chance(len(fates))]
            if fate == "t":
                good += 1
                self.taken[id] += 1
            else:
                errors.append({"index": index, "code": "bad", "detail": "is bad", "retryable": fate == "n"})
            if fate != "n":
                self.final.add(id)
        told = {"accepted": good, "rejected": len(errors), "errors": errors}
        status = 202 if good else 503 if any(error["retryable"] for error in errors) else 422
        return Answer(status, {}, json.dumps(told).encode())

    def close(self) -> None:
        pass


class Life(RuleBasedStateMachine):
    """One user's program over several processes that share a spill folder."""

    @initialize(
        policy=st.sampled_from(["spill", "drop", "block"]),
        urls=st.integers(1, 3),
        batch=st.integers(1, 5),
        room=st.integers(1, 12),
        seed=st.randoms(use_true_random=False),
    )
    def begin(self, policy, urls, batch, room, seed):
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.chance = seed
        self.collector = MoodyCollector(seed.randrange)
        self.options = {
            "urls": [f"http://c{number}" for number in range(urls)],
            "batch_events": batch,
            "max_events": room,
            "when_full": policy,
            "in_flight": 2,
            **({"spill_folder": self.folder} if policy == "spill" else {}),
        }
        self.ids: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.told: set[str] = set()
        """refused or dropped by a process that was killed later"""
        self.killed: set[str] = set()
        self.start()

    def start(self):
        self.client = DrivenClient(
            self.collector,
            self.clock,
            chance=self.chance.random,
            on_refused=lambda events: self.refused.update(event.id for event in events),
            on_dropped=lambda events: self.dropped.update(event.id for event in events),
            **self.options,
        )

    @rule(count=st.integers(1, 8))
    def call(self, count):
        for _ in range(count):
            self.ids.add(self.client.count("view", video="A"))

    @rule(moods=st.lists(st.sampled_from(MOODS), min_size=1, max_size=4))
    def change(self, moods):
        self.collector.moods += moods

    @rule()
    def step(self):
        self.client.step()

    @rule(seconds=st.sampled_from([0.005, 0.1, 1.0, 30.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def restart(self):
        """A clean end, and the next process."""
        self.client.close(timeout=0)
        self.lawful()
        assert not self.client.stats().queued + self.client.stats().in_flight
        self.start()

    @rule()
    def kill(self):
        """What was in memory only is lost with the process; what was in files is not."""
        stats = self.client.stats()
        held = [event for batch in self.client._sender_threads._engine.abandon() for event in batch.events]
        self.killed |= {json.loads(event)["id"] for event in held}
        self.client._sender_threads.forget()
        # A file of which a part had its outcome is sent again as a whole, and that part has its outcome again.
        self.collector.final.clear()
        self.told |= self.refused.keys() | self.dropped.keys()
        self.refused.clear()
        self.dropped.clear()
        self.start()
        assert self.client.stats().adopted >= stats.spilled

    @invariant()
    def lawful(self):
        if hasattr(self, "client"):
            assert not self.collector.complaints
            stats = self.client.stats()
            where = stats.delivered + stats.refused + stats.dropped + stats.queued + stats.in_flight + stats.spilled
            assert stats.called + stats.adopted == where, stats
            assert stats.queued + stats.in_flight <= self.options["max_events"] + 4 * self.options["batch_events"]
            assert min(stats.queued, stats.in_flight, stats.spilled, stats.held_bytes, stats.spill_bytes) >= 0

    def teardown(self):
        if not hasattr(self, "client"):
            return
        try:
            self.collector.moods.clear()
            self.client.settle(steps=10_000)
            stats = self.client.stats()
            self.lawful()
            assert (stats.queued, stats.in_flight, stats.spilled, stats.held_bytes, stats.spill_bytes) == (0,) * 5
            for id in self.ids - self.killed - self.told:
                assert self.collector.taken[id] or self.refused[id] or self.dropped[id], "neither delivered nor told"
            assert max([0, *self.refused.values(), *self.dropped.values()]) <= 1, "told twice"
            self.client.close(timeout=0)
            assert not any(self.folder.rglob("*.batch"))
        finally:
            shutil.rmtree(self.folder)


Life.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase
