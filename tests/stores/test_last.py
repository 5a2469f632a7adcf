"""The latest value, wherever it lies: by the time of the event, not by when it came."""

from tallymark.meters.model import Meter
from tallymark.store import deltas
from tallymark.store.grains import DAY_S, HOUR_S, MINUTE_S
from tallymark.store.model import Ledger, Stretch, StretchResult, label_column
from tallymark.store.read_plan import Question

MIDNIGHT = 1_700_006_400


def test_it_is_the_same_in_every_grain_however_events_came(store):
    meter = store.registry.put_meter("main", Meter("level", ("level",), ("tank",), ("count", "last")), now_ms=0)
    # (tank, second of the day, value); the later ones of a batch are not later events.
    batches = [
        [("north", 30, 1.0), ("south", 90, 5.0)],
        [("north", 20, 9.0), ("south", HOUR_S, 6.0)],
        [("north", 30, 3.0), ("north", 30, 2.0), ("south", 10, 7.0)],
        [("north", DAY_S, -1.0)],
    ]

    def last(step_s):
        with store.snapshots.take() as snapshot:
            frame = snapshot.read(Question(meter, by=["tank"], step_s=step_s))
        keys = [label_column("tank"), *(["bucket_s"] if step_s else [])]
        return dict(zip(frame.select(keys).rows(), frame["last"], strict=True))

    for number, batch in enumerate(batches):
        cells = [
            (meter.meter_id, tank, (MIDNIGHT + at) // 60 * 60, 1, 1, *[None] * 6, (MIDNIGHT + at) * 1000, value)
            for tank, at, value in batch
        ]
        body = deltas.encode(deltas.merge([deltas.from_rows(cells)]))
        ledger = Ledger(accepted=len(batch), counted=len(batch))
        store.sink.apply([StretchResult(Stretch(0, number, number + 1), "log", 1, (3,), body, ledger)], now_ms=0)
        known = [event for each in batches[: number + 1] for event in each]
        work = (
            lambda: None,
            lambda: store.upkeep.fold(most_points=100),
            lambda: store.upkeep.roll(now_ms=(MIDNIGHT + DAY_S + HOUR_S) * 1000, delay_s=0, slice_series=100),
        )
        for do in work:
            while getattr(result := do(), "more", result):
                pass
            latest = {tank: value for tank, _, value in sorted(known, key=lambda event: event[1:])}
            assert last(None) == {(tank,): value for tank, value in latest.items()}
            for step_s in (MINUTE_S, HOUR_S, DAY_S):
                expected = {}
                for tank, at, value in sorted(known, key=lambda event: event[1:]):
                    expected[tank, (MIDNIGHT + at) // step_s * step_s] = value
                assert last(step_s) == expected
