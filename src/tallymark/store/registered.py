"""Meters by name and version: what every registry answers alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from tallymark.aggregates.functions import kept_for
from tallymark.meters.model import BUILT_IN, EVENTS, QUERIED, Meter
from tallymark.store.model import Added, LiveMeters, RegisteredMeter
from tallymark.store.protocol import StoreError, UnknownMeter
from tallymark.store.selections import Kept, Selection, Step, kept, step
from tallymark.suggest import suggest


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a meter as it is kept."""

    meter_id: int
    tenant: str
    version: int
    set_id: int
    meter: Meter
    created_ms: int
    deleted_ms: int | None = None
    selection: Step | None = None
    """of a meter with `keep: queried`"""


def newest_of(
    versions: Iterable[Version], *, broken: Mapping[int, str], missed: Mapping[int, int]
) -> list[RegisteredMeter]:
    """The newest version of every meter that is not deleted, by tenant and name; all versions of it must be given.

    `broken` and `missed` are by meter_id. A version is broken as a whole, whichever partition it was. What a version
    missed is missing from the numbers of all that share its points.
    """
    found = []
    in_order = sorted(versions, key=lambda each: (each.tenant, each.meter.name, each.version))
    for _, group in groupby(in_order, key=lambda each: (each.tenant, each.meter.name)):
        *_, last = history = list(group)
        if last.deleted_ms is None:
            sharing = [each for each in history if each.set_id == last.set_id]
            found.append(
                RegisteredMeter(
                    last.meter_id,
                    last.version,
                    last.meter,
                    last.created_ms,
                    broken.get(last.meter_id),
                    sum(missed.get(each.meter_id, 0) for each in sharing),
                    last.tenant,
                    last.set_id,
                    _added(sharing),
                    _kept_by(sharing),
                    sharing[0].created_ms,
                )
            )
    return found


class Following(NamedTuple):
    """What a new version is, beside its definition."""

    version: int
    set_id: int | None
    """None begins a set of its own"""
    selection: Step | None


def following(known: Sequence[Version], meter: Meter, selection: Selection | None = None) -> Following:
    """Given the versions that the meter had. Without a selection, or with an older one, it is the one before it."""
    in_order = sorted(known, key=lambda each: each.version)
    if not in_order or in_order[-1].deleted_ms is not None:
        first = step(None, selection or Selection()) if meter.keep == QUERIED else None
        return Following(in_order[-1].version + 1 if in_order else 1, None, first)
    last = in_order[-1]
    goes_on = meter.continues(last.meter)
    before = _kept_by([each for each in in_order if each.set_id == last.set_id])
    wanted = Selection() if before is None else before.selection
    if selection is not None and selection.as_of >= wanted.as_of:
        wanted = selection
    change = step(before if goes_on else None, wanted) if meter.keep == QUERIED else None
    return Following(last.version + 1, last.set_id if goes_on else None, change)


def is_changed(known: RegisteredMeter, meter: Meter, selection: Selection | None) -> bool:
    """Whether this definition with this selection needs a new version."""
    return known.meter != meter or (
        known.kept is not None
        and selection is not None
        and selection.as_of >= known.kept.as_of
        and not known.kept.is_same(selection)
    )


def is_behind(known: RegisteredMeter, selection: Selection) -> bool:
    """Whether the selection is read from newer queries than the meter knows of, though it says the same."""
    return known.kept is not None and known.kept.is_same(selection) and known.kept.as_of < selection.as_of


def _kept_by(sharing: Sequence[Version]) -> Kept | None:
    """The metrics that the newest of the versions that share their points stores."""
    return kept((each.created_ms, each.selection if each.meter.keep == QUERIED else None) for each in sharing)


def _added(sharing: Sequence[Version]) -> dict[str, Added]:
    """Of the versions that share their points: since which each has kept what the newest one keeps."""
    without_a_break = _kept(sharing[-1])
    since: dict[str, Version] = {}
    for each in reversed(sharing):
        without_a_break &= _kept(each)
        since |= dict.fromkeys(without_a_break, each)
    return {part: Added(at.version, at.created_ms) for part, at in since.items() if at is not sharing[0]}


def _kept(version: Version) -> frozenset[str]:
    return kept_for(version.meter.compute, decimals=version.meter.decimals)


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
    is_built_in = known is not None and known.built_in and not meter.differs_in_keep_alone(known.meter)
    if meter.name == EVENTS.name or is_built_in:
        raise StoreError(f"the meter {meter.name} is built in and cannot be redefined; choose another name")


def check_deletable(known: RegisteredMeter) -> None:
    if known.built_in:
        raise StoreError(f"the meter {known.meter.name} is built in and cannot be deleted")


def due_built_ins(known: Iterable[RegisteredMeter]) -> list[Meter]:
    """Those that need a version, given the newest of each name: the store is new, or another version made it."""
    by_name = {registered.meter.name: registered for registered in known}
    missing = [meter for name, meter in BUILT_IN.items() if name not in by_name]
    return missing + [_built_in_now(known) for known in by_name.values() if _is_outdated(known)]


def _is_outdated(known: RegisteredMeter) -> bool:
    return known.built_in and known.meter != _built_in_now(known)


def _built_in_now(known: RegisteredMeter) -> Meter:
    """As this version of Tallymark defines it, with what people may choose."""
    return replace(BUILT_IN[known.meter.name], keep=known.meter.keep)
