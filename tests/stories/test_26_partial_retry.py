"""Story 26: a batch of five, two of which fail for a moment: exactly those two are sent again; the total is 5."""

from tallymark import Client
from tallymark.testing import ScriptedTransport
from tallymark.testing.transport import taken_but


def test_exactly_those_two_are_sent_again():
    #  1st request   A B C D E      B and D: not_durable, retryable
    #  2nd request     B   D        taken
    collector = ScriptedTransport([taken_but(1, 3, code="not_durable", retryable=True)])
    with Client(connect=lambda url: collector, compress="gzip", batch_events=5) as client:
        ids = {video: client.count("view", video=video) for video in "ABCDE"}
        assert client.flush(30)
        stats = client.stats()

    first, second = ([(event["props"]["video"], event["id"]) for event in events] for events in collector.events)
    assert first == list(ids.items())
    assert second == [("B", ids["B"]), ("D", ids["D"])], "the same ids, so that nothing can count twice"
    assert len(collector.taken) == 5
    assert (stats.called, stats.delivered, stats.retried, stats.requests) == (5, 5, 2, 2)
