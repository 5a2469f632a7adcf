"""One sending process: `python -m bench.senders WHO PORT EVENTS RATE [FOLDER]`; it prints what sending cost as JSON.

WHO is `tallymark`, `tallymark-spill`, `posthog` or `segment`, each as its documentation says, with default settings.
RATE 0 is as fast as the caller can.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import psutil

CLOSE_S = 60.0
# The clock is read once for so many calls.
STEP = 50

RESTING = "resting"
"""instead of a folder: a client that sends nothing until the calls are over"""

Call = Callable[[int], Any]


def ours(port: int, folder: str | None) -> tuple[Call, Callable[[], Any]]:
    from tallymark import Client

    url = f"http://127.0.0.1:{port}"
    if folder == RESTING:
        client = Client(url, linger_s=60.0, batch_events=100_000, batch_bytes=30_000_000)
    else:
        client = Client(url, when_full="spill", spill_folder=folder) if folder else Client(url)

    def end() -> dict[str, Any]:
        client.flush(CLOSE_S)
        client.close()
        stats = client.stats()
        return {name: getattr(stats, name) for name in ("delivered", "dropped", "spilled", "retried")}

    return lambda number: client.count("view", video="A", user=number), end


def posthog(port: int, folder: str | None) -> tuple[Call, Callable[[], Any]]:
    from posthog import Posthog

    client = Posthog("key", host=f"http://127.0.0.1:{port}")
    return lambda number: client.capture("view", distinct_id=str(number), properties={"video": "A"}), client.shutdown


def segment(port: int, folder: str | None) -> tuple[Call, Callable[[], Any]]:
    from segment.analytics.client import Client

    client = Client("key", host=f"http://127.0.0.1:{port}")
    return lambda number: client.track(str(number), "view", {"video": "A"}), client.shutdown


WHO = {"tallymark": ours, "tallymark-spill": ours, "posthog": posthog, "segment": segment}


def main(who: str, port: int, events: int, rate: int, folder: str | None = None) -> None:
    call, end = WHO[who](port, folder)
    call(0)  # what is made at the first call, threads and all, is not what a call costs
    begun, cpu = time.perf_counter(), time.process_time()
    steps_s: list[float] = []
    for start in range(1, events, STEP):
        if rate:
            time.sleep(max(0.0, begun + start / rate - time.perf_counter()))
        before = time.perf_counter()
        for number in range(start, min(start + STEP, events)):
            call(number)
        steps_s.append(time.perf_counter() - before)
    memory_mb = psutil.Process().memory_info().rss / 1e6
    told = end()
    print(
        json.dumps(
            {
                "us_a_call": median(steps_s) / STEP * 1e6,
                "longest_step_ms": max(steps_s) * 1e3,
                "cpu_us": (time.process_time() - cpu) / events * 1e6,
                "seconds": time.perf_counter() - begun,
                "memory_mb": memory_mb,
                "told": told if isinstance(told, dict) else None,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:6])
