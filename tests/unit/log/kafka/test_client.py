"""Options of the user are taken, but for those on which the promises of the log hang."""

import logging
import traceback

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tallymark.log import LogUnreachable
from tallymark.log.kafka.client import client, configuration, lines, parsed, translated
from tallymark.settings import SettingsError


def test_the_users_options_win_over_ours():
    made = configuration(
        ["a:1", "b:2"], ["fetch.max.bytes=5", "sasl.password= s=cret "], fetch_max_bytes=9, linger_ms=0
    )
    assert made["bootstrap.servers"] == "a:1,b:2"
    assert (made["fetch.max.bytes"], made["linger.ms"], made["sasl.password"]) == ("5", 0, "s=cret")


@pytest.mark.parametrize("bad", ["", "s3cret", "=s3cret"])
def test_an_option_needs_a_name_and_a_value(bad):
    with pytest.raises(SettingsError, match="number 2 in the list is not of the form name=value") as told:
        parsed(["sasl.password=ab", bad])
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("sasl.mechanizm=s3cret", "sasl.mechanizm: there is no such option"),
        ("security.protocol=s3cret", "security.protocol: its value is not accepted"),
        ("ssl.key.pem=s3cret", "ssl.key.pem: its value is not accepted"),
        ("error_cb=s3cret", "error_cb: its value is not accepted"),
    ],
)
@pytest.mark.parametrize("kind", [Producer, AdminClient, Consumer])
def test_an_option_that_is_not_taken_is_named_without_its_value(kind, option, why):
    options = ["security.protocol=ssl", option]
    chosen = configuration(["127.0.0.1:1"], options) | ({"group.id": "g"} if kind is Consumer else {})
    with pytest.raises(SettingsError, match=f"log.kafka_options: {why}") as told:
        client(kind, chosen, options)
    assert "s3cret" not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    ("option", "way_out"),
    [
        ("acks=0", "use log.acks"),
        ("enable.auto.commit=true", "leave it out"),
        ("auto.offset.reset=earliest", "leave it out"),
        ("delivery.timeout.ms=1", "use log.delivery_timeout_s"),
    ],
)
def test_what_the_promises_hang_on_is_not_an_option(option, way_out):
    with pytest.raises(SettingsError, match=way_out):
        parsed([option])


def test_a_lost_connection_is_a_warning_since_nothing_is_lost(caplog):
    with caplog.at_level(logging.DEBUG):
        lines.log(logging.CRITICAL, "connection to %s lost", "a:1")
        lines.log(logging.INFO, "connected")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("WARNING", "connection to a:1 lost"),
        ("INFO", "connected"),
    ]


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TIMED_OUT]
)
def test_brokers_that_are_away_may_be_asked_again(code):
    assert isinstance(translated(KafkaError(code), "a question", brokers=["a:1"]), LogUnreachable)
