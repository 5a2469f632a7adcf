"""A collector serves loopback only while there are no keys."""

import pytest

from tallymark.collector.service import check_host
from tallymark.settings import SettingsError


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_only_loopback_is_served_while_there_are_no_keys(host: str) -> None:
    with pytest.raises(SettingsError, match="only loopback"):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_is_served(host: str) -> None:
    check_host(host)
