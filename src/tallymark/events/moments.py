"""Moments of time as answers print them: RFC 3339 in UTC."""

from datetime import UTC, datetime
from functools import lru_cache


def rfc3339_ms(moment_ms: int) -> str:
    """With milliseconds."""
    seconds, rest = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


@lru_cache(maxsize=16_384)  # a series of a day writes the same 1,440 moments with every refresh: a fifth of its time
def rfc3339_s(moment_s: int) -> str:
    """Whole seconds."""
    return datetime.fromtimestamp(moment_s, UTC).isoformat().removesuffix("+00:00") + "Z"
