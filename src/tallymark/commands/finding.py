"""What the doctor finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `state` is ok, warning or broken; `fix` says what to do."""

    what: str
    state: str
    detail: str
    fix: str = ""
