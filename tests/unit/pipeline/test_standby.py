"""What a driver does while another one counts."""

from types import SimpleNamespace

import pytest

from leases import ScriptedLease
from tallymark.pipeline import service
from tallymark.role.heartbeat import Heartbeat
from tallymark.role.lease_holder import LeaseHolder
from tallymark.store.protocol import StoreError, StoreUnreachable


@pytest.fixture
def said() -> list[str]:
    """What happened, in order."""
    return []


class Standby:
    """A driver that waits for its lease; `waits` is how often it may before it is stopped."""

    def __init__(self, said: list[str], lease: ScriptedLease, *, waits: int = 100) -> None:
        self._said, self._waits = said, waits
        self._lease = LeaseHolder(lease, "pipeline", name="pipeline/a", lease_s=9)
        self._heartbeat = Heartbeat("pipeline/a", lambda: self)
        self.paused_s = 0.0

    def beat(self, role, facts, *, now_ms) -> None:
        self._said.append(f"{role} {facts}")

    def _wait(self, seconds: float) -> bool:
        self.paused_s += seconds
        self._waits -= 1
        return self._waits < 0

    def run(self) -> bool:
        role = SimpleNamespace(
            stopping=SimpleNamespace(wait=self._wait), announce=lambda: self._said.append("announced")
        )
        return service._stand_by(self._lease, self._heartbeat, role)


BEAT = "pipeline/a {'standby': True}"


def test_a_driver_that_may_count_at_once_does_not_stand_by(said):
    standby = Standby(said, ScriptedLease(True))
    assert standby.run()
    assert (said, standby.paused_s) == ([], 0.0)


def test_one_that_stands_by_announces_itself_once_and_beats_every_second(said):
    standby = Standby(said, ScriptedLease(False, False, True))
    assert standby.run()
    assert said == ["announced", BEAT, BEAT]
    assert standby.paused_s == 2.0


def test_one_that_is_stopped_while_it_stands_by_does_not_count(said):
    lease = ScriptedLease(False, False, True)
    assert not Standby(said, lease, waits=2).run()
    assert lease.asked == 2


def test_a_store_that_is_away_meanwhile_is_logged_once_and_asked_again(said, caplog):
    away = [StoreUnreachable("no node answers"), StoreUnreachable("no node answers")]
    assert Standby(said, ScriptedLease(*away, True)).run()
    assert caplog.text.count("standing by: no node answers") == 1


def test_a_store_that_refuses_ends_the_wait(said):
    with pytest.raises(StoreError, match="no such table"):
        Standby(said, ScriptedLease(StoreError("no such table"), True)).run()
