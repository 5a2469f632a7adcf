"""The rule by which a stretch is applied: once, in order, from one log. The same for every store."""

from tallymark.store.model import Stretch
from tallymark.store.protocol import PositionConflict, WrongLog

EVENTS = "events"
DEAD = "dead"


def check_log(stream: str, known: str | None, identity: str) -> None:
    """Raises WrongLog if the positions of this stream were taken from another log; None or "" is none yet."""
    if known and known != identity:
        raise WrongLog(
            f"the store holds positions of log {known} for the stream {stream}, but this is log {identity};"
            " put the store's log back, or start with an empty store"
        )


def check_beginning(stream: str, known: int | None, partition: int, offset: int) -> None:
    """Raises PositionConflict if a partition was begun elsewhere."""
    if known is not None and known != offset:
        raise PositionConflict(
            f"{stream}/{partition} cannot start at {offset}: the store has applied it up to {known}; go on there"
        )


def is_new(stream: str, known: int | None, stretch: Stretch) -> bool:
    """Whether this stretch follows what was applied; False if it lies before, PositionConflict if it does neither."""
    following = known if known is not None else 0
    if stretch.end <= following:
        return False
    if stretch.start != following or stretch.end < stretch.start:
        applied = f"up to {known}" if known is not None else "nothing"
        raise PositionConflict(
            f"stretch [{stretch.start}, {stretch.end}) of {stream}/{stretch.partition} does not follow: the store has"
            f" applied {applied}. Another driver is running or a stretch was skipped; go on from the store's positions"
        )
    return True
