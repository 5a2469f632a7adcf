"""What answers are made from: the evidence for their freshness, and the answers that are kept."""

from dataclasses import dataclass, field

from tallymark.fidelity.evidence import Evidence
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.query.newest import LogGlances, no_log
from tallymark.tables import Tables


@dataclass(frozen=True)
class Sources(Evidence):
    """Everything a question may look at."""

    cache: AnswerCache
    last_known: LastKnown
    tables: Tables
    newest: LogGlances = field(default_factory=lambda: LogGlances(no_log), kw_only=True)
    """the events themselves, as they stand in the log"""
