"""The registry of metrics, and all of them but the pipeline's own (`pipeline/spark/sink.py`).

Names are `tallymark_<stage>_<what>_<unit>`, those of clients `tallymark_client…`. A metric without labels starts at
zero, one with labels where its stage knows them beforehand and makes them; the others (paths and statuses of answers,
bytes freed of a stream) come with the first of their kind.
"""

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()


class Metric(NamedTuple):
    """One row of the table of metrics, from which the documents are made."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


METRICS: list[Metric] = []

LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


def counter(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Counter:
    METRICS.append(Metric(name, "counter", meaning, labels))
    return Counter(name, meaning, labels, registry=REGISTRY)


def gauge(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Gauge:
    METRICS.append(Metric(name, "gauge", meaning, labels))
    return Gauge(name, meaning, labels, registry=REGISTRY)


def histogram(name: str, meaning: str, labels: tuple[str, ...] = ()) -> Histogram:
    METRICS.append(Metric(name, "histogram", meaning, labels))
    return Histogram(name, meaning, labels, registry=REGISTRY, buckets=LATENCY_BUCKETS_S)


def exposition() -> bytes:
    """The metrics of this process in Prometheus' text format."""
    return generate_latest(REGISTRY)


LOG_APPENDED_RECORDS = counter("tallymark_log_appended_records_total", "frames made durable in the log", ("stream",))
LOG_APPENDED_BYTES = counter(
    "tallymark_log_appended_bytes_total", "bytes of frames made durable in the log", ("stream",)
)
LOG_REFUSED_RECORDS = counter("tallymark_log_refused_records_total", "frames the log could not take", ("stream",))
LOG_SYNC_SECONDS = histogram("tallymark_log_sync_seconds", "how long one sync of one partition took", ("stream",))

COLLECTOR_RECEIVED = counter(
    "tallymark_collector_events_received_total", "events told apart in bodies: accepted + refused"
)
COLLECTOR_ACCEPTED = counter("tallymark_collector_events_accepted_total", "events made durable and acknowledged")
COLLECTOR_REFUSED = counter("tallymark_collector_events_refused_total", "events refused, by reason", ("code",))
COLLECTOR_DEAD = counter(
    "tallymark_collector_dead_letters_total", "refused events kept in, or lost to, the dead letters", ("kept",)
)
COLLECTOR_REQUESTS = counter("tallymark_collector_requests_total", "answers to POST /v1/events, by status", ("status",))
COLLECTOR_COMMITS = counter("tallymark_collector_commits_total", "group commits written to the log")
COLLECTOR_COMMIT_SECONDS = histogram(
    "tallymark_collector_commit_seconds", "columns, frames and log append of one commit"
)
COLLECTOR_PENDING_BYTES = gauge("tallymark_collector_pending_bytes", "bytes of requests that are not answered yet")
COLLECTOR_EVENT_NAMES = gauge(
    "tallymark_collector_event_names", "different event names in use, as far as this collector has seen"
)
COLLECTOR_FORWARDED = counter(
    "tallymark_collector_forwarded_total", "requests handed on to the query service", ("outcome",)
)

COLLECTOR_BAD_CLIENT_HEADERS = counter(
    "tallymark_collector_bad_client_headers_total",
    "headers Tallymark-Client that could not be read; their events were taken",
)
CLIENTS = gauge("tallymark_clients", "clients that told this collector of themselves within the last hour")
CLIENT_EVENTS = gauge(
    "tallymark_client_events",
    "events of these clients, by what they say became of them since their start",
    ("outcome",),
)

KEEPER_FOLDED_DELTAS = counter("tallymark_keeper_folded_deltas_total", "deltas of the journal folded into points")
KEEPER_FOLDED_POINTS = counter("tallymark_keeper_folded_points_total", "points written by folding")
KEEPER_ROLLED_SLICES = counter("tallymark_keeper_rolled_slices_total", "slices of closed hours and days rolled up")
KEEPER_DUTY_SECONDS = histogram("tallymark_keeper_duty_seconds", "how long one run of a duty took", ("duty",))
KEEPER_DUTY_FAILURES = counter("tallymark_keeper_duty_failures_total", "runs of a duty that failed", ("duty",))
KEEPER_JOURNAL_WAITING = gauge("tallymark_keeper_journal_waiting_batches", "applied batches not folded yet")
KEEPER_LETTERS = counter("tallymark_keeper_letters_total", "refused events taken from the log into the dead letters")
KEEPER_LETTERS_LOST = counter(
    "tallymark_keeper_letter_records_lost_total", "records of dead letters dropped before they could be taken in"
)
KEEPER_FREED_BYTES = counter("tallymark_keeper_freed_bytes_total", "bytes of log segments deleted", ("stream",))

QUERY_SECONDS = histogram("tallymark_query_seconds", "time from request to answer", ("route",))
QUERY_ANSWERS = counter("tallymark_query_answers_total", "answers, by route and status", ("route", "status"))
QUERY_CACHE = counter(
    "tallymark_query_cache_total",
    "questions: answered from the cache or with an equal one (`hit`), computed (`miss`), or asked past it (`fresh`)",
    ("outcome",),
)
QUERY_LISTENERS = gauge("tallymark_query_listeners", "open streams of `live`")
