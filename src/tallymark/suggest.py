"""The hint behind an unknown word: the known one it was probably meant to be, or else what there is."""

import difflib
from collections.abc import Iterable

# Comparing costs the product of the lengths, and anybody may send a long word.
MOST_COMPARED = 128
MOST_LISTED = 20
CUTOFF = 0.5


def suggest(
    word: str, known: Iterable[str], *, form: str = "{}", what: str = "known:", otherwise: str | None = None
) -> str:
    """`; did you mean video?`; if no known word is close, `otherwise`, or a list of them after `what`.

    `form` is how the suggestion is written: "`tallymark {}`" for a command.
    """
    by_folded: dict[str, str] = {}
    for each in known:
        by_folded.setdefault(each.casefold(), each)
    close = difflib.get_close_matches(word[:MOST_COMPARED].casefold(), by_folded, n=1, cutoff=CUTOFF)
    if close:
        return f"; did you mean {form.format(by_folded[close[0]])}?"
    if otherwise is not None:
        return f"; {otherwise}" if otherwise else ""
    words = list(by_folded.values())
    more = " …" if len(words) > MOST_LISTED else ""
    return f"; {what} {', '.join(words[:MOST_LISTED])}{more}" if words else ""
