"""What applying a file of meters would do to the ones that are there."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tallymark.aggregates.functions import can_ask
from tallymark.meters.definition import DEFAULT_GRAIN, DEFAULT_KEEP, KEYS, to_mapping
from tallymark.meters.errors import Flaw, MeterError
from tallymark.meters.model import BUILT_IN, Meter


@dataclass(frozen=True, slots=True)
class Difference:
    """One key of a definition, before and after; None where it is left out."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Change:
    """A meter that gets a new version."""

    before: Meter
    after: Meter

    @property
    def differences(self) -> tuple[Difference, ...]:
        before, after = (
            {"grain": DEFAULT_GRAIN, "keep": DEFAULT_KEEP, **to_mapping(meter)} for meter in (self.before, self.after)
        )
        differ = [key for key in KEYS if before.get(key) != after.get(key)]
        return tuple(Difference(key, before.get(key), after.get(key)) for key in differ)

    @property
    def keeps_numbers(self) -> bool:
        """Whether the new version goes on with the numbers there are: it counts the same events in the same way."""
        return self.after.continues(self.before)

    @property
    def newly_computed(self) -> tuple[str, ...]:
        """Functions that have no answer for what was counted before."""
        compute, decimals = self.before.compute, self.before.decimals
        return tuple(function for function in self.after.compute if not can_ask(compute, decimals, function))


@dataclass(frozen=True, slots=True)
class Plan:
    added: tuple[Meter, ...]
    changed: tuple[Change, ...]
    unchanged: tuple[Meter, ...]
    missing: tuple[Meter, ...]
    """there, but not in the file: kept, unless one asks to prune"""


def plan(current: Iterable[Meter], wanted: Iterable[Meter], *, built_in: Collection[str] = ()) -> Plan:
    """From the meters of the store to those of a file; those that are `built_in` there take no part.

    Of those only `keep` may be changed: a file that defines one otherwise is refused as a whole, before anything is.
    """
    known = {meter.name: meter for meter in current}
    # A tenant that does not exist yet has none of its built-in meters, but will have them.
    same = {name: known.get(name, BUILT_IN.get(name)) for name in built_in}
    listed = {meter.name: meter for meter in wanted if meter != same.get(meter.name)}
    if redefined := [name for name, meter in listed.items() if name in built_in and not _may(meter, same[name])]:
        detail = "the meter {!r} is built in and cannot be redefined; choose another name"
        raise MeterError(Flaw("built_in", detail.format(name), "name") for name in redefined)
    present = {name: meter for name, meter in known.items() if name not in built_in or name in listed}
    both = [(present[name], meter) for name, meter in listed.items() if name in present]
    return Plan(
        added=tuple(meter for name, meter in listed.items() if name not in present),
        changed=tuple(Change(before, after) for before, after in both if before != after),
        unchanged=tuple(after for before, after in both if before == after),
        missing=tuple(present[name] for name in sorted(present.keys() - listed.keys())),
    )


def _may(meter: Meter, built_in: Meter | None) -> bool:
    return built_in is not None and meter.differs_in_keep_alone(built_in)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {each}' for key, each in value.items())}}}"
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
