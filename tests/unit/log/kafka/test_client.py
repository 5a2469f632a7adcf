"""Options of the user are taken, but for those on which the promises of the log hang."""

import logging

import pytest

from tallymark.log.kafka.client import configuration, lines, parsed
from tallymark.settings import SettingsError


def test_the_users_options_win_over_ours():
    made = configuration(
        ["a:1", "b:2"], ["fetch.max.bytes=5", "sasl.password= s=cret "], fetch_max_bytes=9, linger_ms=0
    )
    assert made["bootstrap.servers"] == "a:1,b:2"
    assert (made["fetch.max.bytes"], made["linger.ms"], made["sasl.password"]) == ("5", 0, "s=cret")


@pytest.mark.parametrize("bad", ["", "acks", "=1"])
def test_an_option_needs_a_name_and_a_value(bad):
    with pytest.raises(SettingsError, match="name=value"):
        parsed([bad])


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
