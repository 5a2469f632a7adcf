"""Events at a steady rate into a running Tallymark: `python -m bench.pour PORT RATE`; at SIGTERM it prints the rate.

The same videos and servers that `hot_store` fills, so that questions meet points and fresh deltas of the same series.
"""

import signal
import sys
import threading
import time

from bench.collector import send
from bench.traffic import COUNTRIES, NAMES, traffic

SERVERS = 2_000
A_REQUEST = 1_000
_LINE = '{"event":"%s","id":"%s","time":%d,"value":%s,"props":{"video":"video-%d","country":"%s","server":"web-%d"}}'
_HEAD = "POST /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
# A slice of each second, so that events come evenly and not once a second.
SLICES = 10


def main(port: int, rate: int) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    begun, sent = time.monotonic(), 0
    while not stopping.is_set():
        requests = _requests(rate // SLICES, seed=time.time_ns() % 2**32)
        time.sleep(max(0.0, begun + sent / rate - time.monotonic()))
        send(port, requests)
        sent += rate // SLICES
    print(round(sent / (time.monotonic() - begun)))


def _requests(events: int, *, seed: int) -> list[bytes]:
    made = traffic(events, seed=seed, start_ms=time.time_ns() // 1_000_000)
    names = [NAMES[name] for name in made.names.tolist()]
    countries = [COUNTRIES[country] for country in made.countries.tolist()]
    servers = (made.videos % SERVERS).tolist()
    fields = (names, made.ids, made.times_ms.tolist(), made.values.tolist(), made.videos.tolist(), countries, servers)
    lines = [_LINE % event for event in zip(*fields, strict=True)]
    bodies = ("[" + ",".join(lines[start : start + A_REQUEST]) + "]" for start in range(0, events, A_REQUEST))
    return [(_HEAD % len(body) + body).encode() for body in bodies]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
