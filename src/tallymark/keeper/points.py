"""Folding and rolling, a short transaction at a time."""

from tallymark import telemetry
from tallymark.settings import KeeperSettings
from tallymark.store.protocol import Upkeep


def fold(upkeep: Upkeep, settings: KeeperSettings) -> bool:
    """Folds one slice; True if more are left. What came in during a fold waits for the next."""
    done = upkeep.fold(most_points=settings.fold_rows)
    telemetry.KEEPER_FOLDED_DELTAS.inc(done.deltas)
    telemetry.KEEPER_FOLDED_POINTS.inc(done.points)
    marks = upkeep.marks()
    telemetry.KEEPER_JOURNAL_WAITING.set(marks.journal_end - marks.folded)
    return done.more


def roll(upkeep: Upkeep, settings: KeeperSettings, now_ms: int) -> bool:
    """Rolls one slice; True if more may be due. A slice reads up to 60 points for each one it writes."""
    slice_series = max(1, settings.fold_rows // 5)
    did = upkeep.roll(now_ms=now_ms, delay_s=settings.roll_delay_s, slice_series=slice_series)
    if did:
        telemetry.KEEPER_ROLLED_SLICES.inc()
    return did
