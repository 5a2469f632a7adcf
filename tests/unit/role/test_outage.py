"""A failure that repeats is logged when it starts, changes and ends."""

import logging

import pytest

from tallymark.role.outage import Outage

logger = logging.getLogger("outage")


def attempt(outage: Outage, error: Exception | None = None) -> None:
    with outage.tolerated():
        if error:
            raise error


def test_it_is_logged_when_it_starts_changes_and_ends(caplog):
    caplog.set_level(logging.INFO)
    outage = Outage(logger, "cannot write", recovered="writing again")
    for error in (None, OSError("full"), OSError("full"), OSError("gone"), None, None, OSError("gone")):
        attempt(outage, error)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "cannot write: full"),
        ("WARNING", "cannot write: gone"),
        ("INFO", "writing again"),
        ("WARNING", "cannot write: gone"),
    ]


def test_it_knows_whether_the_last_attempt_failed():
    outage = Outage(logger, "cannot write")
    assert not outage.is_on
    attempt(outage, ValueError())  # without a message
    assert outage.is_on
    attempt(outage)
    assert not outage.is_on


@pytest.mark.parametrize(("error", "is_bug"), [(OSError("full"), False), (KeyError("epoch"), True)])
def test_only_an_error_that_nobody_expected_has_a_traceback(caplog, error, is_bug):
    attempt(Outage(logger, "cannot write", expected=OSError), error)
    (record,) = caplog.records
    assert bool(record.exc_info) == is_bug


def test_a_request_to_exit_is_not_tolerated():
    outage = Outage(logger, "cannot write")
    with pytest.raises(SystemExit), outage.tolerated():
        raise SystemExit(1)
