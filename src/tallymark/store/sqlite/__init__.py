"""The store in one SQLite file: journal, points, positions, meters."""
