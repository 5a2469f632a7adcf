"""Files survive the process, are sent in order, and are never trusted blindly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallymark.client import spill as spills
from tallymark.client.spill import Spill, SpillDamaged, SpillFull
from tallymark.client.transport import NoAnswer, NotConnected
from tallymark.testing import DrivenClient, ManualClock, ScriptedTransport

AWAY = [NotConnected("away")] * 10_000


def client(transport, folder, clock=None, **options) -> DrivenClient:
    options = {"batch_events": 2, "max_events": 4, "when_full": "spill", "spill_folder": folder, **options}
    return DrivenClient(transport, clock or ManualClock(), **options)


def count(client: DrivenClient, letters: str) -> None:
    for letter in letters:
        client.count("view", video=letter)


def videos(transport: ScriptedTransport) -> str:
    return "".join(event["props"]["video"] for events in transport.events for event in events)


def die(client: DrivenClient) -> None:
    """What kill -9 does to the locks."""
    client._sender_threads.forget()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.batch"))


def test_the_oldest_go_to_files_and_everything_is_sent_in_order(tmp_path):
    transport = ScriptedTransport()
    full = client(transport, tmp_path)
    count(full, "ABCDEFGH")
    assert (full.stats().spilled, full.stats().queued) == (4, 4)
    full.settle()
    assert videos(transport) == "ABCDEFGH"
    assert not files(tmp_path)
    assert full.stats().delivered == 8
    assert not any("resent" in event for events in transport.events for event in events), "none was sent before"
    full.close()
    assert list(tmp_path.iterdir()) == []


def test_the_next_process_sends_what_the_last_one_left(tmp_path):
    first = client(ScriptedTransport(AWAY), tmp_path)
    count(first, "ABCDEFG")
    first.close(timeout=0)
    assert (first.stats().spilled, first.stats().dropped) == (7, 0)
    transport = ScriptedTransport()
    second = client(transport, tmp_path)
    assert (second.stats().adopted, second.stats().spilled) == (7, 7)
    second.settle()
    assert videos(transport) == "ABCDEFG"
    second.close()
    assert list(tmp_path.iterdir()) == []


def tenants(transport: ScriptedTransport) -> dict[str, str | None]:
    return {
        event["props"]["video"]: request.headers.get("tallymark-tenant")
        for request, events in zip(transport.requests, transport.events, strict=True)
        for event in events
    }


@pytest.mark.parametrize("next_tenant", [None, "globex", "acme"])
def test_what_was_left_is_sent_as_the_tenant_that_it_was_counted_for(tmp_path, next_tenant):
    for tenant, letters in (("acme", "ABCDEF"), (None, "GHI")):
        first = client(ScriptedTransport(AWAY), tmp_path, tenant=tenant)
        count(first, letters)
        first.close(timeout=0)
    # Halved and sent again in between, so also what is left of a file keeps its tenant.
    transport = ScriptedTransport([413, 503])
    second = client(transport, tmp_path, tenant=next_tenant)
    count(second, "JK")
    second.settle()
    assert second.stats().delivered == 11
    assert tenants(transport) == {
        **dict.fromkeys("ABCDEF", "acme"), **dict.fromkeys("GHI"), **dict.fromkeys("JK", next_tenant)
    }  # fmt: skip
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_the_tenant_survives_a_second_end_in_the_middle_of_a_batch(tmp_path):
    first = client(ScriptedTransport(AWAY), tmp_path, tenant="acme")
    count(first, "AB")
    first.close(timeout=0)
    # Halved, then away: what is in memory only goes to a new file.
    second = client(ScriptedTransport([413, *AWAY]), tmp_path)
    second.step()
    second.close(timeout=0)
    assert all(path.name.endswith("-acme.batch") for path in files(tmp_path))
    transport = ScriptedTransport()
    third = client(transport, tmp_path, tenant="globex")
    third.settle()
    assert tenants(transport) == {"A": "acme", "B": "acme"}


def test_a_file_that_was_tried_keeps_its_tenant_in_its_name(tmp_path):
    spill = Spill(tmp_path, max_bytes=10_000, instance="0" * 16)
    file = spill.write(1, [b"{}"], tried_ms=0, tenant="5-a_b")
    assert file.path.name == "0000000000000001-1-0-5-a_b.batch"
    spill.mark_tried(file, 1_763_208_000_000)
    spill.close()
    (found,) = Spill(tmp_path, max_bytes=10_000, instance="1" * 16).adopted
    assert (found.tried_ms, found.tenant) == (1_763_208_000_000, "5-a_b")


def test_a_batch_of_unknown_outcome_says_so_also_after_the_end_of_its_process(tmp_path):
    clock = ManualClock()
    first = client(ScriptedTransport([NoAnswer("hung up")]), tmp_path, clock)
    count(first, "AB")
    first_ms = clock.wall_ms()
    first.step()
    count(first, "CD")
    first.close(timeout=0)
    clock.advance(3 * 3600)
    transport = ScriptedTransport()
    client(transport, tmp_path, clock).settle()
    resent = {event["props"]["video"]: event.get("resent") for events in transport.events for event in events}
    assert resent == {"A": first_ms, "B": first_ms, "C": None, "D": None}


def test_a_process_that_dies_between_sending_a_file_and_removing_it_leaves_it_marked(tmp_path):
    clock = ManualClock()
    first = client(ScriptedTransport(), tmp_path, clock)
    count(first, "AB")
    first.close(timeout=0)

    seen = []

    class Killed(Exception):
        pass

    class Deadly(ScriptedTransport):
        def exchange(self, request, *, timeout_s=None):
            seen.append([path.name for path in files(tmp_path)])
            super().exchange(request)
            raise Killed

    second_ms = clock.wall_ms()
    second = client(Deadly(), tmp_path, clock)
    second._sender.deliver = lambda attempt, events: Deadly().exchange(second._sender._request(attempt, events))
    with pytest.raises(Killed):
        second.step()
    die(second)
    assert [name.endswith(f"-{second_ms}.batch") for name in seen[0]] == [True], "marked before it is sent"
    clock.advance(60)
    transport = ScriptedTransport()
    client(transport, tmp_path, clock).settle()
    assert [event["resent"] for event in transport.events[0]] == [second_ms] * 2


def test_a_living_process_keeps_its_files(tmp_path):
    first = client(ScriptedTransport(AWAY), tmp_path)
    count(first, "ABCDEFGH")
    second = client(ScriptedTransport(), tmp_path)
    assert (first.stats().spilled, second.stats().adopted) == (4, 0)
    die(first)
    assert client(ScriptedTransport(), tmp_path).stats().adopted == 4


def test_a_killed_process_is_adopted_from(tmp_path):
    script = f"""
import os
from tallymark import Client
client = Client("http://127.0.0.1:9", batch_events=2, max_events=4, when_full="spill", spill_folder={str(tmp_path)!r})
for letter in "ABCDEFGH":
    client.count("view", video=letter)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, timeout=60, check=False)
    assert done.returncode == -9
    transport = ScriptedTransport()
    second = client(transport, tmp_path)
    assert second.stats().adopted >= 2
    second.settle()
    # What was in flight at the kill was in memory only; what was in files comes in order.
    assert len(videos(transport)) == second.stats().adopted
    assert list(videos(transport)) == sorted(videos(transport))


def test_a_damaged_file_is_counted_and_set_aside_and_the_others_are_sent(tmp_path):
    first = client(ScriptedTransport(), tmp_path)
    count(first, "ABCDEF")
    first.close(timeout=0)
    damaged = files(tmp_path)[1]
    content = damaged.read_bytes()
    damaged.write_bytes(content.replace(b'"C"', b'"X"'))
    dropped = []
    transport = ScriptedTransport()
    second = client(transport, tmp_path, on_dropped=dropped.extend)
    second.settle()
    assert videos(transport) == "ABEF"
    assert [event.reason for event in dropped] == ["damaged"] * 2
    stats = second.stats()
    assert (stats.adopted, stats.delivered, stats.dropped, stats.spill_bytes) == (6, 4, 2, 0)
    assert len(list((tmp_path / "damaged").iterdir())) == 1
    second.close()
    assert client(ScriptedTransport(), tmp_path).stats().adopted == 0


@pytest.mark.parametrize("cut", [0, 1, 30, -1])
def test_a_torn_file_is_damaged(tmp_path, cut):
    spill = Spill(tmp_path, max_bytes=10_000, instance="a")
    file = spill.write(1, [b'{"id":"1"}', b'{"id":"2"}'], tried_ms=0)
    file.path.write_bytes(file.path.read_bytes()[:cut])
    with pytest.raises(SpillDamaged):
        spill.load(file)


def test_the_folder_is_bounded_and_what_does_not_fit_is_dropped(tmp_path):
    spill = Spill(tmp_path, max_bytes=100, instance="a")
    spill.write(1, [b"x" * 40], tried_ms=0)
    with pytest.raises(SpillFull, match="max_spill_bytes = 100"):
        spill.write(2, [b"x" * 40], tried_ms=0)
    dropped = []
    full = client(ScriptedTransport(AWAY), tmp_path / "other", max_spill_bytes=300, on_dropped=dropped.extend)
    count(full, "ABCDEFGHIJ")
    stats = full.stats()
    assert {event.reason for event in dropped} == {"spill_full"}
    assert (stats.called, stats.queued + stats.spilled + stats.dropped) == (10, 10)
    assert 0 < stats.spill_bytes <= 300


def test_a_disk_that_refuses_costs_events_but_no_crash(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spills.os, "fsync", refuse)
    dropped = []
    full = client(ScriptedTransport(AWAY), tmp_path, on_dropped=dropped.extend)
    count(full, "ABCDEF")
    assert [event.reason for event in dropped] == ["spill_failed"] * 2
    assert not files(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    assert full.stats().spill_bytes == 0


def test_when_all_that_is_held_is_in_flight_an_event_gets_a_file_of_its_own(tmp_path):
    waiting = client(ScriptedTransport(), tmp_path, max_events=2)
    count(waiting, "AB")
    with waiting._sender_threads._lock:
        waiting._sender_threads._engine.next()
    count(waiting, "C")
    assert (waiting.stats().in_flight, waiting.stats().spilled) == (2, 1)
    assert json.loads(files(tmp_path)[0].read_bytes().split(b"\n")[1])["props"] == {"video": "C"}
