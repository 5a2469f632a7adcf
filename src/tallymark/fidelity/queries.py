"""How far saved queries are evaluated, and which of them cannot be."""

from collections.abc import Sequence
from typing import Any

from tallymark.events.tenants import MAIN
from tallymark.store.windows import Lineage

FAR_BEHIND_MS = 30_000
SHOWN = 5
"""problems of single queries; the rest is counted"""


def behind_ms(lineage: Lineage, complete_ms: int | None) -> int | None:
    """Since when its oldest window that is not stored could be; None if that is unknown."""
    return None if complete_ms is None else max(0, complete_ms - lineage.due_s * 1000)


def queries_status(lineages: Sequence[Lineage], complete_ms: int | None) -> dict[str, Any]:
    return {
        "saved": len(lineages),
        "windows": sum(each.windows for each in lineages),
        "behind_ms": _most_behind(lineages, complete_ms),
        "failing": sum(bool(each.problem) for each in lineages),
    }


def queries_problems(lineages: Sequence[Lineage], complete_ms: int | None) -> list[str]:
    failing = [each for each in lineages if each.problem]
    sentences = [f"saved query {each.name}{_whose(each)} cannot be evaluated: {each.problem}" for each in failing]
    if len(sentences) > SHOWN:
        sentences = [*sentences[:SHOWN], f"{len(sentences) - SHOWN:,} more saved queries cannot be evaluated"]
    behind = _most_behind(lineages, complete_ms)
    if behind is not None and behind > FAR_BEHIND_MS:
        sentences.append(
            f"saved queries are {behind / 1000:,.0f} s behind: windows that are complete are not stored yet,"
            " and are computed each time they are asked for"
        )
    return sentences


def _most_behind(lineages: Sequence[Lineage], complete_ms: int | None) -> int | None:
    """Of those that can be evaluated."""
    found = [behind_ms(each, complete_ms) for each in lineages if not each.problem]
    return max((each for each in found if each is not None), default=None)


def _whose(lineage: Lineage) -> str:
    return "" if lineage.tenant == MAIN else f" of the tenant {lineage.tenant}"
