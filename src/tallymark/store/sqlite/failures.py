"""What SQLite raises, under names that say what it means to those who use a store without knowing which one it is."""

from sqlite3 import Error as FileError
from sqlite3 import OperationalError as FileAway

__all__ = ["FileAway", "FileError"]
