"""What can be computed from events, how it merges, and how it is stored. Pure: Polars and numpy, no input or output.

A new aggregate is a row in `columns.py` for each number that must be kept, and a row in `functions.py` for what users
ask for.
"""
