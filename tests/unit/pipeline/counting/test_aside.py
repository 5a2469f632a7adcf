"""Events that come again later than the claims remember: never counted twice, never lost from the account."""

import dataclasses
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallymark.events import columns, frame
from tallymark.store.model import MAYBE_DUPLICATE

HORIZON_MS = 600_000  # of the fixture `path`
# 10 s less for the clocks of clients, and 5 per mille for the pace of append time.
SURE_MS = 587_000
HOUR_MS = 3_600_000


class Copies:
    """Copies of events on their way into a path, at chosen times."""

    def __init__(self, path, build) -> None:
        self.path, self.build = path, build
        self.start_ms = build.at_ms("00:00:00")

    def add(self, at_ms: int, *events: tuple[str, int | None], received: int | None = None) -> None:
        """One record, appended then: (id, when it was first tried). The id is the event's name too: it is counted.

        `received` is what the wall clock said, if append time was not the same.
        """
        received_ms = self.start_ms + (at_ms if received is None else received)
        sent = [
            {
                **self.build.event(name, name=name),
                "time": received_ms,
                **({} if since is None else {"resent": self.start_ms + since}),
            }
            for name, since in events
        ]
        record = self.build.record(sent, len(self.path.records), append_ms=self.start_ms + at_ms)
        self.path.records.append(dataclasses.replace(record, payload=_received(record.payload, received_ms)))

    def count(self, cuts: list[int]) -> None:
        ends = sorted({min(cut, len(self.path.records)) for cut in cuts} | {len(self.path.records)})
        for start, end in zip([0, *ends], ends, strict=False):
            self.path.results.append(self.path.stretch(start, end))

    def letters(self) -> list:
        return [letter for result in self.path.results for letter in result.dead]

    def kept(self) -> list[str]:
        """Ids of the events in the letters."""
        return [row["id"] for letter in self.letters() for row in columns.rows(frame.decode(letter.raw))]


def _received(payload: bytes, received_ms: int) -> bytes:
    """The frame, as if it had come at this time."""
    batch = frame.decode(payload)
    place = batch.schema.get_field_index("received")
    times = pa.array([received_ms] * batch.num_rows, pa.int64())
    return frame.encode(batch.set_column(place, batch.schema.field(place), times))


def test_a_copy_beyond_the_horizon_is_set_aside_whole(path, build):
    #  00:00        03:00
    #  a b          a (first tried at 00:00)   c (new)   d (first tried a minute ago)
    copies = Copies(path, build)
    copies.add(0, ("a", None), ("b", None))
    copies.add(3 * HOUR_MS, ("a", 0), ("c", None), ("d", 3 * HOUR_MS - 60_000))
    copies.count([1])
    ledger = path.ledger()
    assert (ledger.accepted, ledger.counted, ledger.aside, ledger.dead, ledger.missing) == (5, 4, 1, 0, 0)
    (letter,) = copies.letters()
    assert (letter.hop, letter.reason, letter.events, letter.offset) == ("pipeline", MAYBE_DUPLICATE, 1, 1)
    assert "1 of 3 events were first tried up to 10,800 s before" in letter.detail
    (kept,) = columns.rows(frame.decode(letter.raw))
    assert (kept["id"], kept["event"], kept["resent"]) == ("a", "a", copies.start_ms)


def test_within_the_reach_of_the_claims_a_resend_is_new_or_a_duplicate(path, build):
    copies = Copies(path, build)
    copies.add(0, ("a", None))
    copies.add(SURE_MS, ("a", 0), ("lost", 0))
    copies.count([])
    ledger = path.ledger()
    assert (ledger.counted, ledger.duplicate, ledger.aside) == (2, 1, 0)


def test_the_margin_is_for_clocks(path, build):
    copies = Copies(path, build)
    copies.add(SURE_MS + 1, ("a", 0))
    copies.count([])
    assert path.ledger().aside == 1


def test_brokers_with_clocks_of_their_own_widen_the_margin(path, build, monkeypatch):
    from tallymark.pipeline.counting.claims import Claims

    init = Claims.__init__

    def with_slack(self, *places, history, **named):
        history.slack_ms = 5_000
        init(self, *places, history=history, **named)

    monkeypatch.setattr(Claims, "__init__", with_slack)
    copies = Copies(path, build)
    copies.add(SURE_MS, ("a", 5_000), ("b", 4_999))
    copies.count([])
    assert copies.kept() == ["b"]


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["set back", "set forward"])
def test_after_the_clock_was_set_a_resend_is_judged_as_before(path, build, step_ms):
    """Append time goes on as if nothing had been; the wall clock, which stamps receipts and tries, is `step_ms` off."""
    #  append   0           5 min               11 min
    #  counted  a           a (resent) b        c, first tried 10 min 50 s before: too long to know
    copies = Copies(path, build)
    minute = 60_000
    copies.add(0, ("a", None), received=-step_ms)
    copies.add(5 * minute, ("a", -step_ms), ("b", -step_ms), received=5 * minute - step_ms)
    copies.add(11 * minute, ("c", 10_000 - step_ms), received=11 * minute - step_ms)
    copies.count([1])
    ledger = path.ledger()
    assert (ledger.counted, ledger.duplicate, ledger.aside) == (2, 1, 1)
    assert copies.kept() == ["c"]


@pytest.mark.parametrize("behind_ms", [0, HOUR_MS], ids=["append time goes on", "append time is behind"])
@pytest.mark.parametrize("passed_ms", [60_000, 1_200_000])
def test_a_first_try_from_before_the_clock_was_set_back_is_set_aside(path, build, passed_ms, behind_ms):
    """Tried at 0 by the wall clock, which is then set back by an hour: nobody can tell how long ago that was."""
    copies = Copies(path, build)
    copies.add(0, ("a", None), received=behind_ms)
    copies.add(passed_ms, ("a", behind_ms), ("b", behind_ms), received=behind_ms + passed_ms - HOUR_MS)
    copies.count([1])
    ledger = path.ledger()
    assert (ledger.counted, ledger.duplicate + ledger.aside, "b" in copies.kept()) == (1, 2, True)
    assert "after they came" in copies.letters()[-1].detail


def test_a_first_try_that_is_ahead_as_clocks_of_clients_may_be_is_believed(path, build):
    copies = Copies(path, build)
    copies.add(0, ("a", 10_000), ("b", 10_001))
    copies.count([])
    assert (path.ledger().counted, copies.kept()) == (1, ["b"])


@pytest.mark.parametrize("waited_ms", [18_000, 31_000, 59_000])
def test_the_time_that_a_copy_waited_in_the_collector_counts(path, build, waited_ms):
    copies = Copies(path, build)
    copies.add(0, ("a", None))
    copies.add(HORIZON_MS + 1, ("a", 0), received=HORIZON_MS + 1 - waited_ms)
    copies.count([1])
    assert (path.ledger().counted, path.ledger().aside) == (1, 1)


def test_behind_a_clock_that_was_set_forward_a_copy_may_have_waited(path, build):
    """Append time is an hour behind the wall clock, so it does not show that the copy waited for 30 s."""
    copies = Copies(path, build)
    copies.add(0, ("a", None), received=HOUR_MS)
    copies.add(HORIZON_MS + 1, ("a", HOUR_MS), received=HOUR_MS + HORIZON_MS + 1 - 30_000)
    copies.count([1])
    assert (path.ledger().counted, path.ledger().aside) == (1, 1)


def test_where_brokers_stamp_a_wait_of_any_length_counts(path, build):
    path.has_wall_times = True
    copies = Copies(path, build)
    copies.add(0, ("a", None))
    copies.add(HORIZON_MS + 1, ("a", 0), received=60_000)
    copies.add(HORIZON_MS + 2, ("b", HORIZON_MS - 60_000), received=HORIZON_MS + 1_000)
    copies.count([1])
    assert (path.ledger().counted, copies.kept()) == (2, ["a"])


def test_of_several_late_copies_one_is_set_aside(path, build):
    """It claims its id, so whoever resolves it resolves it once."""
    copies = Copies(path, build)
    copies.add(HOUR_MS, ("a", 0), ("a", 0))
    copies.add(HOUR_MS + 60_000, ("a", 0))
    copies.add(HOUR_MS + 120_000, ("a", None))
    copies.count([1])
    ledger = path.ledger()
    assert (ledger.counted, ledger.duplicate, ledger.aside, ledger.missing) == (0, 3, 1, 0)
    assert copies.kept() == ["a"]


def test_a_first_try_said_to_be_in_the_future_or_before_all_time_does_no_harm(path, build):
    copies = Copies(path, build)
    copies.add(0, ("ahead", HOUR_MS), ("ancient", -copies.start_ms))
    copies.count([])
    assert copies.kept() == ["ahead", "ancient"]
    assert path.ledger().counted == 0


def test_named_numbers_of_what_is_set_aside_do_not_count(path, build):
    path.meters = build.meters({"name": "m", "event": "metrics", "each": "values", "compute": ["sum"]})
    start_ms = build.at_ms("00:00:00")
    sent = [
        {**build.event("late", name="metrics"), "values": {"a": 1.0}, "resent": start_ms - HOUR_MS},
        {**build.event("new", name="metrics"), "values": {"a": 10.0}},
    ]
    path.records.append(build.record(sent, append_ms=start_ms))
    path.results.append(path.stretch(0, 1))
    assert path.deltas(2)["sum"].to_list() == [10.0]
    (letter,) = path.results[0].dead
    (kept,) = columns.rows(frame.decode(letter.raw))
    assert kept["values"] == {"a": 1.0}


def test_a_frame_of_an_older_version_does_not_say_which_columns_are_empty(path, build, monkeypatch):
    monkeypatch.setattr(frame, "_empty", lambda batch: b"")
    copies = Copies(path, build)
    copies.add(0, ("a", None))
    copies.add(HOUR_MS, ("a", 0), ("b", None))
    copies.count([])
    assert (path.ledger().counted, path.ledger().aside) == (2, 1)


# An honest client: the first try says nothing, every later one says when the first was.
ids = st.sampled_from("abc")
gaps_ms = st.sampled_from([1, 60_000, SURE_MS - 1, SURE_MS, SURE_MS + 1, HORIZON_MS, HORIZON_MS + 1, HOUR_MS])
# A collector appends nothing that has waited for more than 30 s.
waits_ms = st.sampled_from([0, 0, 1, 5_000, 13_001, 29_000, 30_000])
arrivals = st.lists(
    st.tuples(gaps_ms, waits_ms, st.lists(st.tuples(ids, st.booleans()), min_size=1, max_size=4)), max_size=10
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrivals=arrivals,
    cuts=st.lists(st.integers(0, 9), max_size=3),
    ahead_ms=st.integers(-5_000, 5_000),
    step_ms=st.sampled_from([0, 0, HOUR_MS, 61_000, -61_000, -HOUR_MS]),
)
def test_no_mix_of_copies_is_counted_twice_and_none_leaves_the_account(
    path, build, tmp_path_factory, arrivals, cuts, ahead_ms, step_ms
):
    """`ahead_ms`: what the collector leaves of a client's wrong clock. `step_ms`: how far append time is ahead of the
    wall clock, which was set before. Some tries never arrive, others wait in the collector.
    """
    path.folder = tmp_path_factory.mktemp("claims")
    path.records, path.results = [], []
    copies = Copies(path, build)
    now_ms, sent, first_try = 0, 0, {}
    for gap_ms, waited_ms, tries in arrivals:
        now_ms += gap_ms
        arriving = []
        for name, arrives in tries:
            if arrives:
                arriving.append((name, first_try[name] + ahead_ms if name in first_try else None))
            first_try.setdefault(name, now_ms - step_ms)
        received_ms = now_ms - step_ms
        now_ms += waited_ms
        if arriving:
            copies.add(now_ms, *arriving, received=received_ms)
            sent += len(arriving)
    copies.count(cuts)

    ledger = path.ledger()
    assert ledger.accepted == sent
    assert ledger.missing == ledger.dead == 0
    assert len(copies.kept()) == ledger.aside == sum(letter.events for letter in copies.letters())
    assert set(path.series(1).values()) <= {1}, "an event was counted twice"
    # Cut otherwise, in a process that knows nothing: the same account, event by event.
    before = (ledger, Counter(copies.kept()))
    path.folder = tmp_path_factory.mktemp("again")
    path.results = []
    copies.count([])
    assert (path.ledger(), Counter(copies.kept())) == before


def test_the_letters_are_the_same_when_the_stretch_is_counted_again(path, build):
    copies = Copies(path, build)
    copies.add(0, ("a", None))
    copies.add(HOUR_MS, ("a", 0))
    copies.count([1])
    assert path.stretch(1, 2).dead == path.results[-1].dead
    assert dataclasses.asdict(path.stretch(1, 2).ledger) == dataclasses.asdict(path.results[-1].ledger)
