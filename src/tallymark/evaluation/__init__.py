"""Saved queries: what they ask, and how each of their windows is computed once it is complete."""
