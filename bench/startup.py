"""Start-up: from `tallymark up` on an empty folder to the first event counted."""

import http.client
import json
import time
from collections.abc import Iterator

from bench.figure import Conditions, Figure
from bench.processes import Broken, Tree, tallymark
from tallymark.http import free_port

DEADLINE_S = 120.0
EVENT = json.dumps({"event": "view", "id": "first", "props": {"video": "A"}})


def measure(conditions: Conditions) -> Iterator[Figure]:
    port = free_port("127.0.0.1")
    begun = time.monotonic()
    with tallymark(conditions.folder / "startup", "up", "--port", str(port)) as tree:
        await_first_count(port, tree)
        yield Figure(
            "start-up",
            "from `up` to the first event counted",
            time.monotonic() - begun,
            "s",
            remark=f"{tree.cpu_s():.1f} s of CPU",
            details={"cpu_s": tree.cpu_s_by_kind()},
        )


def await_first_count(port: int, tree: Tree) -> None:
    """Send one event, the same until it is said to be in the counts."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and tree.alive:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/events?wait=applied&timeout=30", body=EVENT, headers=headers)
            if connection.getresponse().status == 200:
                return
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise Broken("`tallymark up` counted nothing; its log files say why")
