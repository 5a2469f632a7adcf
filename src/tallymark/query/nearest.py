"""The known word that a wrong one was probably meant to be."""

import difflib
from collections.abc import Iterable

MOST_LISTED = 20


def hint(word: str, known: Iterable[str], *, what: str = "known are") -> str:
    """`; did you mean video?`, or else what there is."""
    known = list(known)
    close = difflib.get_close_matches(word[:128], known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    listed = ", ".join(known[:MOST_LISTED]) + (" …" if len(known) > MOST_LISTED else "")
    return f"; {what} {listed}" if known else ""
