"""What is counted: the definitions of meters, and the language of their `where`.

Two modules are imported by their users alone, because not every role has what they need: `meters.file` (PyYAML) and
`meters.compile` (Polars).
"""

from tallymark.aggregates.functions import NAMES as AGGREGATES
from tallymark.meters.changes import Change, Difference, Plan, plan
from tallymark.meters.definition import from_mapping, to_mapping
from tallymark.meters.errors import Flaw, MeterError
from tallymark.meters.evaluate import matches, number
from tallymark.meters.expression import parse
from tallymark.meters.model import BUILT_IN, Meter
from tallymark.meters.tree import Expression

__all__ = [
    "AGGREGATES",
    "BUILT_IN",
    "Change",
    "Difference",
    "Expression",
    "Flaw",
    "Meter",
    "MeterError",
    "Plan",
    "from_mapping",
    "matches",
    "number",
    "parse",
    "plan",
    "to_mapping",
]
