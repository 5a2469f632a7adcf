"""A `tallymark load` beside a test, and the check of its counts to the unit."""

from pathlib import Path

from running import Running
from tallymark.load import journal
from tallymark.load.expected import distinct_sources
from tallymark.load.journal import Outcomes

# Longer than any outage that a test makes, also on a busy machine: clients go on trying.
PATIENCE_S = 900


class Load:
    """Begun at once. Its journal says what was acknowledged, also while it goes on."""

    def __init__(self, running: Running, name: str, *, events: int, rate: int, duplicates: float, late: float) -> None:
        self.running = running
        self.events = events
        self.journal = running.folder / f"{name}.journal"
        words = f"load --events {events} --rate {rate} --duplicates {duplicates} --late {late} --keys 500 --no-check"
        self._process = running.begin(*words.split(), "--patience", str(PATIENCE_S), "--journal", str(self.journal))

    @property
    def outcomes(self) -> Outcomes:
        return journal.read(self.journal)

    @property
    def distinct(self) -> int:
        """Events of which a copy was acknowledged: what must be counted."""
        outcomes = self.outcomes
        return int(distinct_sources(outcomes.plan, outcomes.acknowledged).sum())

    def await_acknowledged(self, events: int) -> None:
        self.running.wait_until(
            lambda: self._acknowledged() >= events, seconds=PATIENCE_S, what=f"{events:,} acknowledged"
        )

    def finish(self) -> None:
        """All of it is acknowledged."""
        self.await_acknowledged(self.events)
        assert self._process.wait(60) == 0, self.running.describe()

    def check(self) -> None:
        """Total, minutes, hours, days and keys are exact, nothing is a dead letter, and the account is even."""
        check = ("load", "--check", str(self.journal), "--patience", "300")
        said = self.running.command(*check, timeout_s=600).stdout
        assert "all exact" in said, said
        assert "unknown outcome" not in said, said
        status = self.running.settled()
        wrong = {term: status[term] for term in ("dead", "aside", "unmatched", "missing", "refused") if status[term]}
        assert not wrong, self.running.describe()
        assert status["accepted"] == status["counted"] + status["duplicate"]

    def _acknowledged(self) -> int:
        assert self._process.poll() in (None, 0), f"the load gave up\n{self.running.describe()}"
        if not _has_lines(self.journal):
            return 0
        return sum(end - start for start, end in self.outcomes.acknowledged)


def _has_lines(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0
