"""What fidelity judges by: the store, both streams of the log, the settings and a clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tallymark.fidelity.log_view import LogView
from tallymark.fidelity.lost import LostRecords
from tallymark.settings import Settings
from tallymark.store.protocol import Store


@dataclass(frozen=True)
class Evidence:
    """Where every figure of the account comes from."""

    store: Store
    events: LogView
    refused: LogView
    settings: Settings
    clock_ms: Callable[[], int]
    lost: LostRecords = field(default_factory=LostRecords, kw_only=True)
