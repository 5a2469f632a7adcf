"""Which tests go to the same process, and in which order, when `make test` runs three processes side by side.

Each process takes the next group as soon as it is free. The tests on Cassandra take nearly the whole run, so one
process begins with them; the others begin with the unit tests, since they fail soonest, and go on with the longest
groups, so that no long one begins last.
"""

import atexit
import os
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# Whoever uses one of these needs a server. All on Cassandra share the run's only one, so they go to one process, with a
# Kafka for those that need both; tests that need Kafka alone go to another process, with one of their own.
SERVER_FIXTURES = {"cassandra": "cassandra", "kafka_cluster": "kafka"}
SERVERS, KAFKA = "servers", "kafka"
# What may be asked of one `tallymark up`: the page first, which wants to see that nothing was counted yet.
ONE_UP = ("browser/test_whole_path.py", "e2e/test_commands.py", "stories")
ORDER = (
    SERVERS,
    "unit",
    KAFKA,
    "e2e/test_crashes.py",
    "one up",
    "integration/spark",
    "e2e/test_power.py",
    "e2e",
    "spark",
    "upgrades",
    "stores",
    "integration",
    "browser",
    "stories",
    "processes",
)
# Inside the servers' group: no server idles while others are tested, and Cassandra's gentle tests come before kills.
SERVER_ORDER = ({"cassandra"}, {"cassandra", "kafka"})


def arrange(items: list[pytest.Item]) -> None:
    """Marks every test with its group and brings the groups into order; inside a group the order stays."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_rank)


def only_here(name: str, *, most: int = 1) -> None:
    """Fails if more processes of this run than that have started the server: then its tests were not kept together."""
    run, worker = os.environ.get("PYTEST_XDIST_TESTRUNUID"), os.environ.get("PYTEST_XDIST_WORKER")
    if run is None or worker is None:
        return
    folder = Path(tempfile.gettempdir())
    place = folder / f"tallymark-{run}-{name}-{worker}"
    place.touch()
    atexit.register(place.unlink, missing_ok=True)
    found = sorted(each.name.rpartition("-")[2] for each in folder.glob(f"tallymark-{run}-{name}-*"))
    assert len(found) <= most, f"{', '.join(found)} all need {name}: see tests/lanes.py"


def servers(item: pytest.Item) -> set[str]:
    """Which of `cassandra` and `kafka` the test needs."""
    needed = {SERVER_FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in SERVER_FIXTURES}
    callspec = getattr(item, "callspec", None)
    if callspec and callspec.params.get("stores") == "cassandra":
        needed.add("cassandra")
    return needed


def _place(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _group(item: pytest.Item) -> str:
    place = _place(item)
    if needed := servers(item):
        return SERVERS if "cassandra" in needed else KAFKA
    if place.startswith(ONE_UP) and "tallymark" in getattr(item, "fixturenames", ()):
        return "one up"
    # A folder that shares a Spark session stays together, all others go file by file.
    return "spark" if place.startswith("spark/") else place


def _rank(item: pytest.Item) -> tuple[int, int]:
    group = _group(item)
    if group == SERVERS:
        return ORDER.index(SERVERS), SERVER_ORDER.index(servers(item))
    first = next((number for number, name in enumerate(ORDER) if group.startswith(name)), len(ORDER))
    if group == "one up":
        return first, next(number for number, name in enumerate(ONE_UP) if _place(item).startswith(name))
    return first, 0
