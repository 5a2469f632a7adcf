"""Reproducible load: every event is a function of its number, so the right counts are known without bookkeeping."""
