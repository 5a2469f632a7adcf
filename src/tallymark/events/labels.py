"""Property values as label text: `200`, `200.0` and `"200"` are one label."""

EXACT = 2**53
"""Whole floats below it print like integers; beyond it a float no longer names one integer."""


def label(value: object) -> str:
    """The label text of one property value; null, missing and "" are the empty label."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value.is_integer() and abs(value) < EXACT:
            return str(int(value))
        return repr(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"a property is a text, a number, a boolean or null, not {type(value).__name__}")
