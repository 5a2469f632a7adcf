"""Tables: rows under a key, with the time from which each holds. Questions join them to the labels of meters."""

from tallymark.tables.bodies import FORMATS, Body, read
from tallymark.tables.kept import Outcome, Tables
from tallymark.tables.model import Definition, Mistake, Mistakes, TableError
from tallymark.tables.table import Row, Table

__all__ = [
    "FORMATS",
    "Body",
    "Definition",
    "Mistake",
    "Mistakes",
    "Outcome",
    "Row",
    "Table",
    "TableError",
    "Tables",
    "read",
]
