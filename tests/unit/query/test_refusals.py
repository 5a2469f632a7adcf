"""Every mistake is answered with what is wrong, the value, and the nearest that would be right."""

import pytest

M = "/v1/meters/views"


@pytest.mark.parametrize(
    ("target", "status", "code", "words"),
    [
        ("/v1/meters/vews/total", 404, "unknown_meter", "did you mean views"),
        ("/v1/meters/zzzzzz/top", 404, "unknown_meter", "there are events, latency, metrics, revenue, views"),
        ("/v1/metrs", 404, "unknown_path", "did you mean /v1/meters?"),
        ("/v1/meters/views/totl", 404, "unknown_path", "/v1/meters/{name}/total"),
        (f"{M}/total?vidoe=A", 400, "unknown_parameter", "did you mean video"),
        (f"{M}/total?label.vidoe=A", 400, "unknown_key", "did you mean video"),
        (f"{M}/total?frm=-1h", 400, "unknown_parameter", "did you mean from"),
        (f"{M}/total?step=1m", 400, "unknown_parameter", "takes no step; it takes from, to"),
        (f"{M}/total?compare=1d", 400, "needs_range", "from=-1h"),
        (f"{M}/total?window=5m", 400, "needs_range", "from=-1d"),
        (f"{M}/total?over=max&from=-1h", 400, "missing_parameter", "window="),
        (f"{M}/total?window=90s&from=-1h", 400, "bad_window", "grain, 1m; the nearest are 1m and 2m"),
        (f"{M}/total?window=1mo&from=-1h", 400, "bad_window", "days"),
        (f"{M}/total?window=2h&from=-1h", 400, "short_range", "a range of at least 2h"),
        (f"{M}/total?window=5m&from=-90d", 400, "over_limit", "query.max_points = 100,000"),
        (f"{M}/total?from=-1h&compare=yesterday", 400, "bad_compare", "previous, 1h, 1d"),
        (f"{M}/total?from=-1h&compare=previos", 400, "bad_compare", "did you mean previous"),
        (f"{M}/total?from=-1h&compare=90s", 400, "bad_compare", "1m and 2m"),
        (f"{M}/total?from=-1h&compare=99999999d", 400, "bad_compare", "longer than 3660d"),
        (f"{M}/series?window=1m&step=5m", 400, "bad_window", "shorter than the step, 5m; write window=5m"),
        (f"{M}/series?window=7m&step=5m", 400, "bad_window", "multiple of the step, 5m; write window=10m"),
        (f"{M}/series?window=2h&step=5m", 400, "short_range", "a range of at least 2h"),
        (f"{M}/series?window=1mo&step=1d", 400, "bad_window", "no fixed length, but the step, 1d, has; write days"),
        (f"{M}/series?window=12h&step=1d&tz=Asia/Seoul&from=-9d", 400, "bad_window", "write window=1d"),
        (f"{M}/series?window=2d&step=1h&tz=Asia/Seoul&from=-9d", 400, "bad_window", "write window=48h"),
        (f"{M}/series?window=1mo&step=1mo&from=-9d&compare=", 400, "bad_compare", "''"),
        (f"{M}/series?step=", 400, "bad_step", "''"),
        (f"{M}/series?over=max", 400, "unknown_parameter", "takes no over"),
        (f"{M}/top?by=video&rank=groth", 400, "bad_choice", "did you mean growth"),
        (f"{M}/top?by=video&late=only", 400, "nothing_aside", "then: aside"),
        (f"{M}/total?late=ony", 400, "bad_choice", "did you mean only"),
        (f"{M}/series?by=contry", 400, "unknown_key", "did you mean country"),
        (f"{M}/top", 400, "missing_parameter", "video, country"),
        ("/v1/meters/revenue/top", 400, "missing_parameter", "no keys"),
        (f"{M}/top?by=video&fn=cuont", 400, "unknown_function", "did you mean count"),
        (f"{M}/top?by=video&fn=sum", 400, "unknown_function", "it computes count"),
        (
            f"{M}/total?fn=p99",
            400,
            "unknown_function",
            "a percentile needs one in compute, as in compute: [count, p99]",
        ),
        (f"{M}/total?fn=p99.90", 400, "unknown_function", "p99.9"),
        (f"{M}/total?fn=p100", 400, "unknown_function", "p100"),
        (f"{M}/total?fn=median", 400, "unknown_function", "p50"),
        (f"{M}/total?fn=distinct", 400, "unknown_function", "distinct: PROPERTY"),
        (f"{M}/total?fn=rate", 400, "needs_range", "from=-1h"),
        (f"{M}/total?fn=rate&to=now", 400, "needs_range", "no beginning"),
        ("/v1/meters/latency/top?fn=sum,avg", 400, "bad_function", "one fn"),
        (f"{M}/total?from=yesterday", 400, "bad_time", "'yesterday'"),
        (f"{M}/total?from=-60", 400, "bad_time", "-1h"),
        (f"{M}/total?from=2026-02-30T00:00:00Z", 400, "bad_time", "2026-02-30"),
        (f"{M}/total?from=2026-02-20T00:00:00", 400, "bad_time", "RFC 3339"),
        (f"{M}/total?from=-90000w", 400, "bad_time", "1970"),
        (f"{M}/total?from=999999999999999999", 400, "bad_time", "9900"),
        (f"{M}/series?from=now&to=-1h", 400, "empty_range", "the range is empty"),
        (f"{M}/total?from=-1h&from=-2h", 400, "repeated_parameter", "2 times"),
        (f"{M}/series?step=1x", 400, "bad_step", "1m, 5m"),
        (
            f"{M}/series?step=90s",
            400,
            "bad_step",
            "not a multiple of this meter's grain, 1m; the nearest are 1m and 2m",
        ),
        (f"{M}/series?step=30s", 400, "bad_step", "the nearest is 1m"),
        (f"{M}/series?step=1w", 400, "bad_step", "7d"),
        (f"{M}/series?step=0m", 400, "bad_step", "'0m'"),
        (f"{M}/series?step=999mo", 400, "bad_step", "120mo"),
        (f"{M}/series?step=1d&tz=Europe/Viena", 400, "bad_zone", "did you mean Europe/Vienna"),
        (f"{M}/series?step=1d&tz=../../etc/passwd", 400, "bad_zone", "no time zone"),
        (f"{M}/top?by=video&k=0", 400, "bad_number", "'0'"),
        (f"{M}/top?by=video&k=ten", 400, "bad_number", "'ten'"),
        (f"{M}/top?by=video&k=10001", 400, "over_limit", "k = 10,001 exceeds query.max_k = 10,000"),
        (f"{M}/series?from=0", 400, "over_limit", "query.max_points = 100,000"),
        (f"{M}/total?format=cvs", 400, "bad_choice", "did you mean csv"),
        (f"{M}/total?consistency=cahced", 400, "bad_choice", "did you mean cached"),
        (f"{M}/total?video=%FF", 400, "bad_text", "UTF-8"),
        ("/v1/status?x=1", 400, "unknown_parameter", "'x'"),
    ],
)
def test_mistakes(desk, target, status, code, words):
    problem = desk.refused(target)
    assert (problem.status, problem.code) == (status, code)
    assert words in problem.detail


def test_limits_say_limit_and_actual(desk):
    desk.settings.query.max_points = 100
    desk.store.count("views", *((("A", str(number)), 1_794_744_000, [None]) for number in range(3)))
    problem = desk.refused("/v1/meters/views/series?by=country")
    assert problem.extra == {"limit": 100, "actual": 183, "parameter": "step"}
    assert "183 points exceed query.max_points = 100" in problem.detail
    assert len(desk.ask("/v1/meters/views/series?by=country&limit=1")["series"]) == 1


def test_a_key_called_like_a_parameter_is_filtered_by_label(desk):
    desk.ask("/v1/meters/odd", "PUT", {"event": "e", "by": ["k", "from"]})
    desk.store.count("odd", (("x", "y"), 60, [None] * 2), (("z", "y"), 60, [None]))
    assert desk.ask("/v1/meters/odd/total?label.k=x&label.from=y")["value"] == {"count": 2}
    problem = desk.refused("/v1/meters/odd/total?k=x")
    assert "label.k=" in problem.detail


def test_a_wrong_method_names_the_right_ones(desk):
    problem = desk.refused("/v1/meters/views/total", "POST")
    assert (problem.status, problem.code) == (405, "wrong_method")
    assert ("allow", "GET") in problem.headers


def test_a_thousand_parameters_are_enough(desk):
    assert desk.refused("/v1/meters/views/total?" + "&".join(["video=A"] * 2001)).code == "too_many_parameters"
