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
LOG_REFUSED_RECORDS = counter("tallymark_log_refused_records_total", "frames the log could not accept", ("stream",))
LOG_SYNC_SECONDS = histogram("tallymark_log_sync_seconds", "duration of one sync of one partition", ("stream",))

COLLECTOR_RECEIVED = counter(
    "tallymark_collector_events_received_total", "events found in request bodies: accepted + refused"
)
COLLECTOR_ACCEPTED = counter("tallymark_collector_events_accepted_total", "events made durable and acknowledged")
COLLECTOR_REFUSED = counter("tallymark_collector_events_refused_total", "events refused, by reason", ("code",))
COLLECTOR_DEAD = counter(
    "tallymark_collector_dead_letters_total", "refused events that the dead letters kept or lost", ("kept",)
)
COLLECTOR_REQUESTS = counter("tallymark_collector_requests_total", "answers to POST /v1/events, by status", ("status",))
COLLECTOR_COMMITS = counter("tallymark_collector_commits_total", "group commits written to the log")
COLLECTOR_COMMIT_SECONDS = histogram(
    "tallymark_collector_commit_seconds", "duration of one commit: columns, frames and log append"
)
COLLECTOR_PENDING_BYTES = gauge("tallymark_collector_pending_bytes", "bytes of requests not answered yet")
COLLECTOR_EVENT_NAMES = gauge(
    "tallymark_collector_event_names", "distinct event names in use, as seen by this collector"
)
COLLECTOR_TENANTS = gauge("tallymark_collector_tenants", "tenants that sent events to this collector within a day")
COLLECTOR_TENANTS_REFUSED = counter(
    "tallymark_collector_tenants_refused_total", "requests refused because they named one tenant too many"
)
COLLECTOR_FORWARDED = counter(
    "tallymark_collector_forwarded_total", "requests forwarded to the query service", ("outcome",)
)

COLLECTOR_BAD_CLIENT_HEADERS = counter(
    "tallymark_collector_bad_client_headers_total",
    "Tallymark-Client headers that could not be read; their events were accepted",
)
CLIENTS = gauge("tallymark_clients", "clients that reported to this collector within the last hour")
CLIENT_EVENTS = gauge(
    "tallymark_client_events",
    "events of these clients since their start, by reported outcome",
    ("outcome",),
)

KEEPER_FOLDED_DELTAS = counter("tallymark_keeper_folded_deltas_total", "journal deltas folded into points")
KEEPER_FOLDED_POINTS = counter("tallymark_keeper_folded_points_total", "points written by folding")
KEEPER_ROLLED_SLICES = counter(
    "tallymark_keeper_rolled_slices_total", "slices of closed minutes, hours and days rolled up"
)
KEEPER_DUTY_SECONDS = histogram("tallymark_keeper_duty_seconds", "duration of one run of a duty", ("duty",))
KEEPER_DUTY_FAILURES = counter("tallymark_keeper_duty_failures_total", "failed runs of a duty", ("duty",))
KEEPER_JOURNAL_WAITING = gauge("tallymark_keeper_journal_waiting_batches", "applied batches not folded yet")
KEEPER_SERIES = gauge("tallymark_keeper_series", "series of all meters that have points, what came late included")
KEEPER_WINDOWS_STORED = counter(
    "tallymark_keeper_windows_stored_total", "windows of saved queries stored when they were complete"
)
KEEPER_WINDOWS_RECOMPUTED = counter(
    "tallymark_keeper_windows_recomputed_total", "stored windows computed again because events came late"
)
KEEPER_EVALUATION_FAILURES = counter(
    "tallymark_keeper_evaluation_failures_total",
    "saved queries that could not be evaluated, and rounds of evaluation that failed",
)
KEEPER_EVALUATION_SECONDS = histogram(
    "tallymark_keeper_evaluation_seconds", "duration of one round of evaluation of saved queries"
)
KEEPER_EVALUATION_BEHIND = gauge(
    "tallymark_keeper_evaluation_behind_seconds", "how long the oldest complete window that is not stored has waited"
)
KEEPER_SHARES = gauge("tallymark_keeper_shares", "shares of the saved queries (of 16) that this keeper evaluates")
KEEPER_LETTERS = counter("tallymark_keeper_letters_total", "refused events moved from the log to the dead letters")
KEEPER_LETTERS_LOST = counter(
    "tallymark_keeper_letter_records_lost_total",
    "records of dead letters deleted from the log before the keeper read them",
)
KEEPER_FREED_BYTES = counter("tallymark_keeper_freed_bytes_total", "bytes of log segments deleted", ("stream",))

QUERY_SECONDS = histogram("tallymark_query_seconds", "time from request to answer", ("route",))
QUERY_ANSWERS = counter("tallymark_query_answers_total", "answers, by route and status", ("route", "status"))
QUERY_CACHE = counter(
    "tallymark_query_cache_total",
    "questions: answered from the cache or with an equal one (`hit`), computed (`miss`), or bypassing it (`fresh`)",
    ("outcome",),
)
QUERY_LISTENERS = gauge("tallymark_query_listeners", "open streams of server-sent events")
