"""What answers are made from: the evidence for their freshness, and the answers that are kept."""

from dataclasses import dataclass

from tallymark.fidelity.evidence import Evidence
from tallymark.query.cache import AnswerCache
from tallymark.query.delivery import LastKnown
from tallymark.tables import Tables


@dataclass(frozen=True)
class Sources(Evidence):
    """Everything a question may look at."""

    cache: AnswerCache
    last_known: LastKnown
    tables: Tables
