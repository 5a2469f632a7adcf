"""From records to columns: what does not fit together is set apart, and numbers stay with their event."""

from dataclasses import replace

import pytest

from tallymark.events import frame
from tallymark.pipeline.counting import decode
from tallymark.pipeline.counting.needs import needs

SNAPSHOTS = {"name": "m", "event": "metrics", "by": ["server"], "each": "values"}


def snapshot(build, number: str, server: object, **values: float) -> dict:
    return {**build.event(number, name="metrics", server=server), "values": values}


def test_a_frame_with_another_number_of_events_than_its_record_says_is_dead_and_claims_nothing(build):
    good, wrong = build.record([build.event("a")], 0), replace(build.record([build.event("b")], 1), events=2)
    decoded = decode.decode([good, wrong], needs=needs(build.meters()))
    assert (decoded.accepted, decoded.table.height) == (3, 1)
    (letter,) = decoded.dead
    assert (letter.offset, letter.events) == (1, 2)
    assert "1 events in a frame stored as 2" in letter.detail
    assert sum(len(ids.high) for ids in decode.ids_of([good, wrong])) == 1


def test_a_frame_of_a_newer_version_is_no_dead_letter_and_its_ids_are_not_passed_over(build, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(frame, "VERSION", b"3")
        record = build.record([build.event("a")], 7, partition=3)
    why = "partition 3, offset 7: frame version b'3'; this release reads b'1' and b'2': upgrade it"
    with pytest.raises(frame.UnknownFrameVersion, match=why):
        decode.decode([record], needs=needs(build.meters()))
    with pytest.raises(frame.UnknownFrameVersion, match=why):
        list(decode.ids_of([record]))


def test_a_machine_that_is_short_of_memory_does_not_make_a_record_a_dead_letter(build, monkeypatch):
    def short(*_: object, **__: object) -> None:
        try:
            raise MemoryError("no more")
        except MemoryError as error:
            raise frame.FrameDamaged("not a frame") from error

    monkeypatch.setattr(frame, "decode", short)
    with pytest.raises(MemoryError, match="no more"):
        decode.decode([build.record([build.event("a")])], needs=needs(build.meters()))


def test_named_numbers_stay_with_their_event_when_frames_have_different_columns(path, build):
    # A label that is a text in one frame and a number in the next makes columns of two kinds.
    path.meters = build.meters(SNAPSHOTS)
    path.process([[snapshot(build, "1", "web", cpu=1.0)], [snapshot(build, "2", 7, cpu=2.0), snapshot(build, "3", 8)]])
    assert path.series(2) == {("web", "cpu"): 1, ("7", "cpu"): 1}
