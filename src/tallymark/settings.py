"""Every setting: its name, default, unit and meaning. The table feeds the command line, the checks and the docs."""

import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from tallymark.suggest import suggest


class SettingsError(ValueError):
    """A setting that cannot be used: what it is, where it came from, and the nearest that exists."""


def setting(default: Any, meaning: str) -> Any:
    """A field with its one-line meaning; lists are copied for each instance."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"meaning": meaning})
    return field(default=default, metadata={"meaning": meaning})


@dataclass
class EventsSettings:
    accept_past_s: int = setting(7 * 86_400, "events older than this when received are refused (`too_old`)")
    accept_future_s: int = setting(
        300, "events further ahead than this, after clock correction, are refused (`too_new`)"
    )
    clock_tolerance_s: float = setting(
        5.0, "differences of `sent_at` up to this count as network delay and are not corrected"
    )


@dataclass
class CollectorSettings:
    host: str = setting("127.0.0.1", "address to serve on; only loopback is allowed until API keys exist")
    port: int = setting(8080, "port to serve on")
    hosts: list[str] = setting(  # noqa: RUF009
        [], "host names, without port, that callers may use besides loopback ones"
    )
    max_body_bytes: int = setting(4_000_000, "largest request body, as sent")
    max_inflated_bytes: int = setting(16_000_000, "largest request body after decompression")
    max_request_events: int = setting(10_000, "most events per request")
    max_event_names: int = setting(
        10_000, "most event names of one tenant in use at once; a name unused for 12 to 24 h is forgotten"
    )
    header_timeout_s: float = setting(5.0, "time for a request's headers; then the connection is closed")
    body_timeout_s: float = setting(10.0, "time for a request's body; then the answer is 408")
    max_connections: int = setting(16_384, "most open connections")
    max_pending_bytes: int = setting(64_000_000, "most bytes waiting for the log; beyond that, requests get 503")
    max_events_per_second: int = setting(0, "most events per second; beyond that, requests get 429; 0 means no limit")
    commit_interval_ms: int = setting(2, "how long a commit waits for more events before it is written")
    query: list[str] = setting(  # noqa: RUF009
        [], "query nodes, `host:port`, to forward questions to; empty means the one on this data folder"
    )
    cors_origins: list[str] = setting([], "origins whose pages may send events; `*` means all")  # noqa: RUF009
    min_free_bytes: int = setting(64_000_000, "with less free disk, the collector reports that it is not ready")


@dataclass
class LogSettings:
    kind: str = setting("local", "`local`: segments in the data folder; `kafka`: a topic of a Kafka cluster")
    partitions: int = setting(2, "partitions of the stream `events`; fixed once the log is created")
    partition_by: str = setting(
        "id", "`id`, or `key:NAME` to keep all events with the same value of a property together"
    )
    segment_bytes: int = setting(128_000_000, "size at which a segment is closed and a new one started")
    keep_s: int = setting(7 * 86_400, "how long counted records are kept")
    dead_bytes: int = setting(256_000_000, "space for dead letters; beyond that, the oldest are deleted")
    reserve_bytes: int = setting(64_000_000, "with less free disk, nothing more is appended")
    brokers: list[str] = setting([], "kafka: bootstrap addresses, `host:port`")  # noqa: RUF009
    topic: str = setting("tallymark", "kafka: the streams are the topics `<topic>.events` and `<topic>.dead`")
    replication: int = setting(3, "kafka: copies of each record; used when the topic is created")
    min_in_sync: int = setting(2, "kafka: copies that must be written before a record is acknowledged")
    acks: str = setting("all", "kafka: who must have a record before it is acknowledged: `all` in sync, or `leader`")
    delivery_timeout_s: float = setting(10.0, "kafka: without an acknowledgement by then, requests get 503")
    kafka_options: list[str] = setting(  # noqa: RUF009
        [], "kafka: more librdkafka options as `name=value`, for example for SASL; use a variable for secrets"
    )


@dataclass
class PipelineSettings:
    horizon_s: int = setting(
        600, "an id seen again within this time of its previous copy is a duplicate; at least 11, with Kafka 41"
    )
    trigger_ms: int = setting(100, "how often the pipeline looks for new frames")
    max_batch_events: int = setting(400_000, "most events in one micro-batch")
    max_batch_bytes: int = setting(128_000_000, "most bytes of frames in one micro-batch")
    driver_memory: str = setting("1g", "heap of Spark's driver")
    master: str = setting("local[*,4]", "Spark master; `local[*,4]` gives a failed task four attempts")
    driver_host: str = setting("127.0.0.1", "address where executors reach the driver")
    executor_memory: str = setting(
        "1g", "cluster: heap of each executor; counting needs about as much again outside it"
    )
    executor_cores: int = setting(1, "cluster: concurrent tasks per executor")
    max_executors: int = setting(
        0, "cluster: most executors; 0 leaves it to Spark: all of a standalone cluster, 2 on YARN and Kubernetes"
    )
    spark_options: list[str] = setting([], "more Spark options as `name=value`")  # noqa: RUF009
    python: str = setting(
        "", "cluster: path of Python on the executors' machines; empty means the same path as the driver's"
    )
    claims: str = setting(
        "", "folder of the claim tables on each executor's machine; empty means `claims` in the data folder"
    )
    lease_s: float = setting(10.0, "cluster: how long a silent driver keeps the right to write")


@dataclass
class StoreSettings:
    kind: str = setting("sqlite", "`sqlite`: one file in the data folder; `cassandra`: a Cassandra cluster")
    hosts: list[str] = setting(["127.0.0.1"], "cassandra: contact points")  # noqa: RUF009
    port: int = setting(9042, "cassandra: port of the native protocol")
    keyspace: str = setting("tallymark", "cassandra: keyspace, created if missing")
    name: str = setting("main", "cassandra: name of this store; several may share a keyspace")
    replication: list[str] = setting(  # noqa: RUF009
        [],
        "cassandra: copies per data centre as `dc1=3`, used when the keyspace is created; empty means one, for trials",
    )
    data_center: str = setting(
        "", "cassandra: the data centre this process connects to; empty means the first one found"
    )
    consistency: str = setting(
        "quorum",
        "cassandra: copies that must answer when points are read: `one`, `local_quorum`, `quorum`, `all`;"
        " everything else takes a majority",
    )
    shards: int = setting(16, "cassandra: parts a meter's series are spread over; fixed once the store is created")
    timeout_s: float = setting(10.0, "cassandra: longest wait for an answer")
    user: str = setting("", "cassandra: user name, if required")
    password: str = setting("", "cassandra: password; better set with TALLYMARK_STORE_PASSWORD")


@dataclass
class KeeperSettings:
    fold_interval_s: float = setting(2.0, "how often the journal is folded into points")
    fold_rows: int = setting(5_000, "most points written per transaction")
    roll_delay_s: int = setting(120, "how long after a minute, hour or day ends it is rolled up")
    lease_s: float = setting(10.0, "cluster: how long a silent keeper keeps the right to fold")
    journal_keep_s: int = setting(30, "how long folded journal entries are kept for followers")


@dataclass
class QuerySettings:
    host: str = setting("127.0.0.1", "address of the query service")
    port: int = setting(0, "port of the query service; 0 lets `up` choose a free one")
    max_points: int = setting(100_000, "most points in one answer")
    max_k: int = setting(10_000, "largest k of a top-k question")
    cache_ttl_s: float = setting(
        1.0, "how long an answer is cached; 0 computes every answer anew, as `consistency=fresh` does"
    )
    fresh_within_s: float = setting(
        60.0, "`consistency=fresh` is refused while the counts are further behind the log than this, or nobody can tell"
    )
    last_known_bytes: int = setting(
        64_000_000, "memory for the last answer to each request, for `consistency=stale`; 0 keeps none"
    )


@dataclass
class AgentSettings:
    urls: list[str] = setting([], "where to send; empty means TALLYMARK_URL, else http://127.0.0.1:8080")  # noqa: RUF009
    tenant: str = setting("", "whose metrics these are; empty means TALLYMARK_TENANT, else main")
    server: str = setting("", "name of this machine in the metrics; empty means its host name")
    every_s: int = setting(1, "how often to measure, in whole seconds")
    statsd: str = setting("127.0.0.1:8125", "UDP address to listen on for StatsD; `off` disables it")
    scrape: list[str] = setting(  # noqa: RUF009
        [], "Prometheus endpoints to scrape: `URL`, or `NAME=URL` to put `NAME.` before its metrics"
    )
    scrape_every_s: int = setting(10, "how often to scrape them")
    processes: list[str] = setting([], "names of processes to measure CPU and memory of")  # noqa: RUF009
    disks: list[str] = setting(["/"], "folders whose disks are measured")  # noqa: RUF009
    max_metrics: int = setting(20_000, "most StatsD metrics at once; lines with further names are refused")
    gauge_keep_s: int = setting(300, "a StatsD gauge that is not set for this long is forgotten; 0 keeps it forever")
    max_spill_bytes: int = setting(256_000_000, "disk space for what cannot be sent yet")


@dataclass
class Settings:
    """All sections. `data` is where one machine keeps everything."""

    data: str = setting("tallymark-data", "folder of the log, the store, the claims and the log files")
    instance: str = setting("", "name of this process, if several of one role share a data folder")
    events: EventsSettings = field(default_factory=EventsSettings)
    collector: CollectorSettings = field(default_factory=CollectorSettings)
    log: LogSettings = field(default_factory=LogSettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    keeper: KeeperSettings = field(default_factory=KeeperSettings)
    query: QuerySettings = field(default_factory=QuerySettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return Path(self.data)

    @property
    def log_folder(self) -> Path:
        return self.folder / "log"

    @property
    def store_file(self) -> Path:
        return self.folder / "store" / "tallymark.db"

    @property
    def claims_folder(self) -> Path:
        return Path(self.pipeline.claims) if self.pipeline.claims else self.folder / "claims"

    @property
    def scratch_folder(self) -> Path:
        """Spark's spills: may be deleted at any time while nothing runs."""
        return self.folder / "scratch"

    @property
    def logs_folder(self) -> Path:
        return self.folder / "logs"

    @property
    def run_folder(self) -> Path:
        """Locks, addresses and metrics of the running processes; the event names that a collector knows."""
        return self.folder / "run"


@dataclass(frozen=True)
class Entry:
    """One row of the table of settings."""

    key: str
    default: Any
    value: Any
    origin: str
    meaning: str


def entries(settings: Settings | None = None) -> Iterator[Entry]:
    """Every setting in order, with the value and origin it has in `settings`."""
    settings = settings or Settings()
    defaults = Settings()
    for key, owner, name, meaning in _walk(settings):
        default_owner = getattr(defaults, key.split(".")[0]) if "." in key else defaults
        yield Entry(
            key, getattr(default_owner, name), getattr(owner, name), settings.origins.get(key, "default"), meaning
        )


def _walk(settings: Settings) -> Iterator[tuple[str, Any, str, str]]:
    for part in fields(settings):
        value = getattr(settings, part.name)
        if is_dataclass(value):
            for inner in fields(value):
                yield f"{part.name}.{inner.name}", value, inner.name, inner.metadata["meaning"]
        elif "meaning" in part.metadata:
            yield part.name, settings, part.name, part.metadata["meaning"]


def load(
    profile: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Defaults, then `tallymark.toml` (or the profile), then `TALLYMARK_…` variables, then flags."""
    settings = Settings()
    places = {key: (owner, name) for key, owner, name, _ in _walk(settings)}

    def put(key: str, value: Any, origin: str) -> None:
        if key not in places:
            hint = suggest(key, places, otherwise="`tallymark settings` lists them all")
            raise SettingsError(f"unknown setting {key} ({origin}){hint}")
        owner, name = places[key]
        setattr(owner, name, _convert(key, value, getattr(owner, name), origin))
        settings.origins[key] = origin

    for key, value, origin in _from_file(profile):
        put(key, value, origin)
    for key, value, origin in _from_environment(environment if environment is not None else os.environ, places):
        put(key, value, origin)
    for key, value in (flags or {}).items():
        if value is not None:
            put(key, value, "flag")
    _check(settings)
    return settings


def _from_file(profile: Path | None) -> Iterator[tuple[str, Any, str]]:
    path = profile or Path("tallymark.toml")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if profile is not None:
            raise SettingsError(f"profile {profile} does not exist") from None
        return
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    for name, value in table.items():
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value, str(path)
        else:
            yield name, value, str(path)


PREFIX = "TALLYMARK_"
# Variables that name where a command talks to, and as whom; they are not settings of the service.
_NOT_SETTINGS = {"TALLYMARK_URL", "TALLYMARK_KEY", "TALLYMARK_TENANT", "TALLYMARK_SUPERVISED"}


def _from_environment(environment: Mapping[str, str], places: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    by_variable = {PREFIX + key.replace(".", "_").upper(): key for key in places}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in _NOT_SETTINGS:
            continue
        if variable not in by_variable:
            # Without the prefix, which would make any two of them look alike.
            names = [known.removeprefix(PREFIX) for known in by_variable]
            hint = suggest(variable.removeprefix(PREFIX), names, form=PREFIX + "{}", otherwise="")
            raise SettingsError(f"unknown setting {variable} (environment){hint}")
        yield by_variable[variable], environment[variable], variable


def _convert(key: str, value: Any, current: Any, origin: str) -> Any:
    wanted = type(current)
    try:
        if wanted is list:
            return _words(value)
        if wanted in (int, float):
            return _number(value, wanted)
        if not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError, OverflowError):
        raise SettingsError(f"{key} = {value!r} ({origin}) is not {_type_name(wanted)}") from None


def _words(value: Any) -> list[str]:
    """A list of texts; in a variable or flag, one text with commas."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError
    return [word.strip() for word in words if word.strip()]


def _number(value: Any, wanted: type) -> int | float:
    if isinstance(value, bool):
        raise ValueError
    number: int | float = wanted(value)
    if not math.isfinite(number) or (isinstance(value, float) and value != number):
        raise ValueError
    return number


def _type_name(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "a text", list: "a list"}[cast(Any, kind)]


# Over what `resent` allows for: 10 s that clocks differ by (pipeline.claims), and 30 s of Kafka's times (log.kafka).
# With less, every retry that says `resent` would be set aside.
LEAST_HORIZON_S, LEAST_HORIZON_KAFKA_S = 11, 41
_POSITIVE = (1, math.inf)
_SOME_TIME = (0.001, math.inf)
# What numbers may be, where it is not just 0 or more.
_RANGES: dict[str, tuple[float, float]] = {
    "collector.port": (0, 65_535),
    # Well below the 30 s after which a request that waits is to be sent again (collector.commit).
    "collector.commit_interval_ms": (0, 10_000),
    "collector.max_body_bytes": _POSITIVE,
    "collector.max_inflated_bytes": _POSITIVE,
    "collector.max_request_events": _POSITIVE,
    "collector.max_event_names": _POSITIVE,
    "collector.header_timeout_s": _SOME_TIME,
    "collector.body_timeout_s": _SOME_TIME,
    "collector.max_connections": _POSITIVE,
    "collector.max_pending_bytes": _POSITIVE,
    "log.partitions": (1, 1024),
    "log.segment_bytes": (4096, math.inf),
    # Append times in claim tables are 32 bits of milliseconds: beyond 24 days they could wrap.
    "pipeline.horizon_s": (LEAST_HORIZON_S, 20 * 86_400),
    "log.replication": (1, 32_767),
    "log.min_in_sync": (1, 32_767),
    "log.delivery_timeout_s": (0.1, 3600),
    "pipeline.executor_cores": _POSITIVE,
    "pipeline.lease_s": (1, 3600),
    "keeper.lease_s": (1, 3600),
    "store.port": (1, 65_535),
    "store.shards": (1, 1024),
    "store.timeout_s": _SOME_TIME,
    "pipeline.max_batch_events": _POSITIVE,
    "pipeline.max_batch_bytes": _POSITIVE,
    "keeper.fold_interval_s": _SOME_TIME,
    "keeper.fold_rows": _POSITIVE,
    "query.port": (0, 65_535),
    "query.max_points": _POSITIVE,
    "query.max_k": _POSITIVE,
    "agent.every_s": (1, 3600),
    "agent.scrape_every_s": (1, 3600),
    "agent.max_metrics": _POSITIVE,
    "agent.max_spill_bytes": _POSITIVE,
}


# Texts that are one of a few words.
_CHOICES: dict[str, tuple[str, ...]] = {
    "log.kind": ("local", "kafka"),
    "log.acks": ("all", "leader"),
    "store.kind": ("sqlite", "cassandra"),
    "store.consistency": ("one", "local_quorum", "quorum", "all"),
}


def _check(settings: Settings) -> None:
    for entry in entries(settings):
        low, high = _RANGES.get(entry.key, (0, math.inf))
        if isinstance(entry.value, int | float) and not low <= entry.value <= high:
            rule = f"at least {low}" if high == math.inf else f"{low} to {high}"
            raise SettingsError(f"{entry.key} = {entry.value!r} ({entry.origin}) must be {rule}")
    for key, allowed in _CHOICES.items():
        section, name = key.split(".")
        if getattr(getattr(settings, section), name) not in allowed:
            found = f"{key} = {getattr(getattr(settings, section), name)!r} ({settings.origins.get(key, 'default')})"
            raise SettingsError(f"{found} must be one of {', '.join(f'`{each}`' for each in allowed)}")
    if settings.log.kind == "kafka" and not settings.log.brokers:
        raise SettingsError('log.kind = \'kafka\' needs log.brokers, for example ["kafka-1:9092", "kafka-2:9092"]')
    if settings.log.kind == "kafka" and settings.pipeline.horizon_s < LEAST_HORIZON_KAFKA_S:
        raise SettingsError(
            f"pipeline.horizon_s = {settings.pipeline.horizon_s} must be at least {LEAST_HORIZON_KAFKA_S} with"
            " log.kind = 'kafka': clocks may differ by 10 s, Kafka's times by 30 s, and every retry would be set aside"
        )
    if settings.log.min_in_sync > settings.log.replication:
        raise SettingsError(
            f"log.min_in_sync = {settings.log.min_in_sync} exceeds log.replication = {settings.log.replication}"
        )
    by = settings.log.partition_by
    if by != "id" and not (by.startswith("key:") and by != "key:"):
        origin = settings.origins["log.partition_by"]
        raise SettingsError(f"log.partition_by = {by!r} ({origin}) must be `id` or `key:NAME`")
