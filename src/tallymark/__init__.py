"""Tallymark counts and aggregates events in real time, and can prove its numbers."""

__version__ = "0.1.0"
