"""What all clients of Kafka share: their options, their log lines, and what an error of theirs means here."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tallymark.log.protocol import LogError, LogLost, LogUnreachable
from tallymark.settings import SettingsError

logger = logging.getLogger("tallymark.log.kafka")


class _Lines:
    """librdkafka's own log lines, served when a client is polled.

    A connection that fails is an error to it; here nothing is lost by it, which makes it a warning.
    """

    def log(self, level: int, message: str, *arguments: Any) -> None:
        logger.log(min(level, logging.WARNING), message, *arguments)


lines = _Lines()

SLACK_MS = 30_000
"""how far apart the clocks of the brokers may be: when the leader changes, append times go back by as much"""

PATIENCE_S = 10.0
"""how long a question to the brokers may take before they count as unreachable"""

# These carry the promises of the log: acknowledged is durable, nothing is skipped, the store is the only memory.
_RESERVED = {
    "acks": "log.acks",
    "request.required.acks": "log.acks",
    "bootstrap.servers": "log.brokers",
    "metadata.broker.list": "log.brokers",
    "delivery.timeout.ms": "log.delivery_timeout_s",
    "message.timeout.ms": "log.delivery_timeout_s",
    "auto.offset.reset": "",
    "enable.auto.commit": "",
    "enable.idempotence": "",
    "enable.gapless.guarantee": "",
    "isolation.level": "",
    "transactional.id": "",
}
# Where the brokers are away, or busy with finding a new leader: nothing is wrong with the question.
_AWAY = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY_BROKER,  # the one asked was dropped from the cluster meanwhile
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def configuration(brokers: Sequence[str], options: Iterable[str], **ours: Any) -> dict[str, Any]:
    """A client's configuration: `ours` with `_` for `.`, then the user's options, which win where they may."""
    chosen: dict[str, Any] = {
        "bootstrap.servers": ",".join(brokers),
        # A broker that comes back is found within a second, not after librdkafka's ten.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "socket.nagle.disable": True,
        "socket.keepalive.enable": True,
        "log_level": 4,
        "log.connection.close": False,
    }
    chosen |= {name.replace("_", "."): value for name, value in ours.items()}
    return chosen | parsed(options)


def parsed(options: Iterable[str]) -> dict[str, str]:
    """`log.kafka_options` as librdkafka takes them."""
    found = {}
    for number, option in enumerate(options, 1):
        name, equals, value = option.partition("=")
        name = name.strip()
        if not equals or not name:
            # Without its text, which may be the rest of a password with a comma in it.
            raise SettingsError(f"log.kafka_options: number {number} in the list is not of the form name=value")
        if name in _RESERVED:
            way_out = f"use {_RESERVED[name]}" if _RESERVED[name] else "leave it out"
            raise SettingsError(
                f"log.kafka_options: {name} is fixed, since the log's guarantees depend on it; {way_out}"
            )
        found[name] = value.strip()
    return found


def client(kind: Callable[..., Any], chosen: Mapping[str, Any], options: Iterable[str]) -> Any:
    """A client of Kafka; SettingsError, with an option's name and never its value, if it takes one of them ill."""
    try:
        return kind(dict(chosen), logger=lines)
    except (KafkaException, TypeError, ValueError) as error:
        said = str(error)
    names = list(parsed(options))
    blamed = [name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said)]
    if not names:
        raise LogError(f"cannot create a Kafka client: {said}")
    what = "there is no such option" if "No such configuration property" in said else "its value is not accepted"
    # Not "from error": what Kafka says may hold the value.
    raise SettingsError(
        f"log.kafka_options: {', '.join(blamed or names)}: {what if blamed else 'no client can be made with these'}; "
        "see the configuration page of librdkafka"
    )


def describe(error: KafkaError | KafkaException) -> str:
    """What Kafka said, without Python round it."""
    error = kafka_error(error)
    return f"{error.str()} ({error.name()})"


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    return error.args[0] if isinstance(error, KafkaException) else error


def is_away(error: KafkaError | KafkaException) -> bool:
    error = kafka_error(error)
    return error.code() in _AWAY or bool(error.retriable())


def is_gone(error: KafkaError | KafkaException) -> bool:
    return kafka_error(error).code() in _GONE


def translated(error: KafkaError | KafkaException, what: str, *, brokers: Sequence[str] = ()) -> LogError:
    """The error to raise when `what` failed."""
    if is_away(error):
        where = f" at {', '.join(brokers)}" if brokers else ""
        return LogUnreachable(f"{what}: Kafka{where} does not answer: {describe(error)}; nothing is lost, try again")
    if is_gone(error):
        return LogLost(f"{what}: {describe(error)}; the topic is gone, or not created yet (the collector creates it)")
    return LogError(f"{what}: Kafka refuses: {describe(error)}")
