"""How Spark is set up."""

from pathlib import Path

from tallymark.pipeline.spark.context import _configuration, _unix_sockets
from tallymark.settings import Settings


def test_a_failed_task_has_four_attempts():
    assert _configuration(Settings())["spark.master"] == "local[*,4]"


def test_a_folder_whose_path_is_too_long_for_a_unix_socket_gets_none():
    assert _unix_sockets(Path("/" + "d" * 59))["spark.python.unix.domain.socket.enabled"] == "true"
    assert _unix_sockets(Path("/" + "d" * 60)) == {}
    assert _unix_sockets(Path("/" + "ü" * 30)) == {}, "it is bytes that count"
