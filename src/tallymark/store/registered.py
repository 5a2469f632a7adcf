"""Meters by name: what every registry answers alike."""

from collections.abc import Iterable

from tallymark.meters.model import BUILT_IN, EVENTS, Meter
from tallymark.store.model import LiveMeters, RegisteredMeter
from tallymark.store.protocol import StoreError, UnknownMeter
from tallymark.suggest import suggest


def find(meters: Iterable[RegisteredMeter], name: str) -> RegisteredMeter:
    by_name = {registered.meter.name: registered for registered in meters}
    if name not in by_name:
        hint = suggest(name, by_name, otherwise="`tallymark meters list` shows them all")
        raise UnknownMeter(f"no meter is called {name}{hint}")
    return by_name[name]


def live_of(revision: int, newest: Iterable[RegisteredMeter]) -> LiveMeters:
    known = tuple(newest)
    counting = tuple(registered for registered in known if registered.broken is None)
    return LiveMeters(revision, counting, tuple(registered for registered in known if registered.broken is not None))


def check_definable(meter: Meter, known: RegisteredMeter | None) -> None:
    """`known` is the meter that has this name now."""
    if meter.name == EVENTS.name or (known is not None and known.built_in):
        raise StoreError(f"the meter {meter.name} is built in and cannot be redefined; choose another name")


def check_deletable(known: RegisteredMeter) -> None:
    if known.built_in:
        raise StoreError(f"the meter {known.meter.name} is built in and cannot be deleted")


def due_built_ins(known: Iterable[RegisteredMeter]) -> list[Meter]:
    """Those that need a version, given the newest of each name: the store is new, or another version made it."""
    by_name = {registered.meter.name: registered for registered in known}
    return [meter for name, meter in BUILT_IN.items() if name not in by_name or _is_outdated(by_name[name])]


def _is_outdated(known: RegisteredMeter) -> bool:
    return known.built_in and known.meter != BUILT_IN[known.meter.name]
