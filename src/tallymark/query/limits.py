"""Refusals of questions that ask for too much: the limit, how much it is, and the way out."""

from tallymark.http import Problem
from tallymark.settings import QuerySettings


def too_many_points(actual: int | None, limits: QuerySettings) -> Problem:
    """`actual` is None if reading stopped early, so that the number is unknown."""
    points = "more points than" if actual is None else f"{actual:,} points exceed"
    detail = (
        f"{points} query.max_points = {limits.max_points:,};"
        " use longer steps or windows, a shorter range, fewer keys to group by, or a limit"
    )
    if actual is None:
        return Problem(400, "over_limit", detail, limit=limits.max_points, parameter="step")
    return Problem(400, "over_limit", detail, limit=limits.max_points, actual=actual, parameter="step")


def too_many_bytes(most_bytes: int) -> Problem:
    detail = (
        f"the series and buckets of this question take more than {most_bytes // 1_000_000:,} MB, the limit for one"
        " question; filter by a label, or use fewer keys to group by, longer steps or windows, or a shorter range"
    )
    return Problem(400, "over_limit", detail, limit=most_bytes)


def too_many_windows(actual: int, limits: QuerySettings) -> Problem:
    detail = (
        f"{actual:,} windows, one for each grain of the range, exceed query.max_points = {limits.max_points:,};"
        " ask for a shorter range"
    )
    return Problem(400, "over_limit", detail, limit=limits.max_points, actual=actual)


def too_many_window_rows(most_rows: int) -> Problem:
    detail = (
        f"the range has more than {most_rows:,} series and grains to slide a window over;"
        " filter by a label, or use fewer keys in by or a shorter range"
    )
    return Problem(400, "over_limit", detail, limit=most_rows)


def too_many_merged_rows(most_rows: int) -> Problem:
    detail = (
        f"the label that the table joins has more than {most_rows:,} series and buckets in this range;"
        " filter by a label, or use a longer step or a shorter range"
    )
    return Problem(400, "over_limit", detail, limit=most_rows)


def too_large_windows(actual: int, most_bytes: int) -> Problem:
    detail = (
        f"the windows hold sketches of {actual // 1_000_000:,} MB, and at most {most_bytes // 1_000_000:,} MB are"
        " merged for one question; for percentiles and distinct counts ask for a shorter range, a shorter window or a"
        " longer step"
    )
    return Problem(400, "over_limit", detail, limit=most_bytes, actual=actual)


def too_many_items(actual: int, limits: QuerySettings) -> Problem:
    detail = (
        f"{actual:,} combinations of labels exceed query.max_k = {limits.max_k:,}; name fewer values,"
        " or ask for the largest: top?by="
    )
    return Problem(400, "over_limit", detail, limit=limits.max_k, actual=actual)
