"""Meters by name: what every registry answers alike."""

import difflib
from collections.abc import Iterable

from tallymark.meters.model import BUILT_IN, Meter
from tallymark.store.model import RegisteredMeter
from tallymark.store.protocol import StoreError, UnknownMeter


def find(meters: Iterable[RegisteredMeter], name: str) -> RegisteredMeter:
    by_name = {registered.meter.name: registered for registered in meters}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`tallymark meters list` shows those there are"
        raise UnknownMeter(f"no meter is called {name}; {hint}")
    return by_name[name]


def check_definable(meter: Meter) -> None:
    if meter.name == BUILT_IN.name:
        raise StoreError(f"the meter {meter.name} is built in and cannot be redefined; choose another name")


def check_deletable(name: str) -> None:
    if name == BUILT_IN.name:
        raise StoreError(f"the meter {name} is built in and cannot be deleted")
