"""What SELECT, FROM, WHERE and BY mean, once the meters are known."""

import pytest

from tallymark.meters import Meter
from tallymark.meters.language import QueryError, filters, parse, resolve
from tallymark.meters.model import EVENTS, METRICS
from tallymark.meters.selection import asked_metrics

VIEWS = Meter("views", ("view",), ("video", "country"))
LATENCY = Meter("latency", ("rpc",), ("zone", "server"), ("avg", "p99"), value="ms")
PLAIN = Meter("plain", ("x",))
HOSTS = Meter("hosts", ("metrics",), ("host",), ("avg", "p99"), each="values")
METERS = [EVENTS, METRICS, VIEWS, LATENCY, PLAIN]
ARRIVED = {"metrics": ["cpu", "cpu.user", "latency", "metrics.cpu"], "hosts": ["cpu", "disk"]}


def arrived(meter):
    return ARRIVED[meter.name]


@pytest.mark.parametrize(
    ("select", "name", "metric"),
    [
        ("views", "views", None),
        ("latency", "latency", None),  # a meter before a metric of that name
        ("metrics.latency", "metrics", "latency"),
        ("metrics", "metrics", None),
        ("cpu", "metrics", "cpu"),
        ("cpu.user", "metrics", "cpu.user"),
        ("metrics.cpu", "metrics", "cpu"),
        ("metrics.cpu.user", "metrics", "cpu.user"),
        ("metrics.'cpu.user'", "metrics", "cpu.user"),
        ("'metrics'.cpu", "metrics", "cpu"),
        ("'metrics.cpu'", "metrics", "metrics.cpu"),
    ],
)
@pytest.mark.parametrize("known", [arrived, None])
def test_what_is_selected(select, name, metric, known):
    selected = resolve(parse(f"FROM * SELECT {select}"), METERS, known)
    assert (selected.meter.name, selected.metric) == (name, metric)


QUEUES = Meter("queues", ("queue",), ("server",), ("count", "avg"), each="values", keep="queried")


@pytest.mark.parametrize(
    ("select", "name", "metric"),
    [
        ("queues.depth", "queues", "depth"),
        ("queues.'cpu'", "queues", "cpu"),
        ("depth", "queues", "depth"),  # nobody else has it
        ("cpu", "metrics", "cpu"),  # one that has it comes before one that may
        ("queues", "queues", None),
    ],
)
def test_a_meter_that_stores_what_is_queried_can_have_any_metric(select, name, metric):
    found = resolve(parse(f"FROM * SELECT {select}"), [*METERS, QUEUES], lambda meter: ARRIVED.get(meter.name, ()))
    assert (found.meter.name, found.metric) == (name, metric)


@pytest.mark.parametrize(
    ("rest", "asked"),
    [
        ("queues.depth", {"queues": {"depth"}}),
        ("queues", {"queues": None}),
        ("queues WHERE metric = 'depth'", {"queues": {"depth"}}),
        ("queues WHERE server = 's1' BY metric", {"queues": None}),
        ("depth", {name: {"depth"} for name in ("metrics", "hosts", "queues")}),  # it may be of any
        ("depth BY host", {"hosts": {"depth"}}),  # only that one has the label
        ("views", {}),
        ("views.depth", {}),
        ("'queues.depth' BY nothing", {name: {"queues.depth"} for name in ("metrics", "hosts", "queues")}),
        ("gone.'depth'", {}),
    ],
)
def test_which_metrics_a_query_reads_whatever_has_arrived(rest, asked):
    found = asked_metrics(parse(f"FROM * SELECT {rest}"), [*METERS, HOSTS, QUEUES])
    assert {each.meter.name: each.metrics for each in found} == asked


@pytest.mark.parametrize(
    ("select", "code", "detail"),
    [
        ("latncy", "unknown_meter", "there is neither a meter nor a metric 'latncy'; did you mean latency?"),
        ("cpu.usr", "unknown_meter", "there is neither a meter nor a metric 'cpu.usr'; did you mean cpu.user?"),
        ("metrics.cpuu", "unknown_metric", "the meter 'metrics' has no metric 'cpuu'; did you mean cpu?"),
        ("metrcs.'cpu'", "unknown_meter", "there is no meter 'metrcs'; did you mean metrics?"),
        ("views.cpu", "unknown_metric", "the meter 'views' has one number, no metrics; write SELECT views"),
        ("views.'cpu'", "unknown_metric", "the meter 'views' has one number, no metrics; write SELECT views"),
    ],
)
def test_what_is_unknown_is_named_with_the_nearest(select, code, detail):
    query = parse(f"FROM * SELECT {select}")
    with pytest.raises(QueryError) as caught:
        resolve(query, METERS, arrived)
    assert (caught.value.code, caught.value.detail, caught.value.position) == (code, detail, 14)


def test_without_a_meter_of_metrics_there_are_only_meters():
    with pytest.raises(QueryError, match="there is neither a meter nor a metric 'cpu'; known: views"):
        resolve(parse("FROM * SELECT cpu"), [VIEWS])
    with pytest.raises(QueryError, match="has no metric 'cpu'; none has arrived yet"):
        resolve(parse("FROM * SELECT metrics.cpu"), METERS, lambda _: [])


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("FROM * SELECT disk", "hosts"),
        ("FROM * SELECT cpu", "metrics"),  # the built-in one goes first, whatever else there is
        ("FROM * SELECT cpu BY host", "hosts"),
        ("FROM * SELECT cpu WHERE host = 'a'", "hosts"),
        ("FROM * SELECT cpu BY server", "metrics"),
        ("FROM * SELECT cpu COMPUTE avg, max", "metrics"),
        ("FROM * SELECT cpu COMPUTE avg, percentile(95)", "hosts"),  # only it keeps percentiles
    ],
)
def test_of_several_meters_with_metrics_the_one_that_fits_is_taken(query, name):
    for meters in ([METRICS, HOSTS], [HOSTS, METRICS]):
        assert resolve(parse(query), meters, arrived).meter.name == name


def test_a_metric_of_several_meters_is_ambiguous():
    other = Meter("boxes", ("metrics",), ("host",), each="values")
    with pytest.raises(QueryError) as caught:
        resolve(parse("FROM * SELECT cpu"), [HOSTS, other], lambda _: ["cpu"])
    assert caught.value.code == "ambiguous"
    assert caught.value.detail == "the metric 'cpu' may be one of boxes or hosts; say which: SELECT boxes.cpu"


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("FROM * SELECT views", {}),
        ("FROM A, B SELECT views", {"video": ("A", "B")}),
        ("FROM a SELECT latency", {"server": ("a",)}),  # `server` before the first label
        ("FROM a SELECT cpu", {"server": ("a",), "metric": ("cpu",)}),
        ("FROM A SELECT views WHERE country IN (KR, JP)", {"video": ("A",), "country": ("KR", "JP")}),
        ("FROM * SELECT views WHERE video = A BY country", {"video": ("A",)}),
        ("FROM * SELECT metrics WHERE metric = cpu", {"metric": ("cpu",)}),
        ("FROM * SELECT plain", {}),
    ],
)
def test_from_select_and_where_choose_series_together(query, chosen):
    parsed = parse(query)
    assert filters(parsed, resolve(parsed, METERS, arrived)) == chosen


@pytest.mark.parametrize(
    ("query", "code", "position", "detail"),
    [
        ("FROM a SELECT plain", "bad_query", 5, "the meter 'plain' has no labels, so there is nothing to choose from;"),
        ("FROM * SELECT views WHERE contry = KR", "unknown_key", 26, "no label 'contry'; did you mean country?"),
        ("FROM * SELECT views BY video, zzz", "unknown_key", 30, "no label 'zzz'; its labels are video, country"),
        ("FROM * SELECT plain BY video", "unknown_key", 23, "no label 'video'; it has none"),
        (
            "FROM A SELECT views WHERE video = B",
            "bad_query",
            26,
            "FROM already says which video; name the values there",
        ),
        ("FROM * SELECT cpu WHERE metric = mem", "bad_query", 24, "SELECT already says which metric"),
    ],
)
def test_labels_are_checked_at_their_position(query, code, position, detail):
    parsed = parse(query)
    selected = resolve(parsed, METERS, arrived)
    with pytest.raises(QueryError) as caught:
        filters(parsed, selected)
    assert (caught.value.code, caught.value.position) == (code, position)
    assert detail in caught.value.detail
