"""StatsD without sockets: lines in; one number (timers: four) per metric and interval out."""

import math
import threading
from hashlib import blake2b

from tallymark.agent.refusals import Refusals
from tallymark.events.model import MAX_KEY_CHARS

MAX_MEMBERS = 100_000
"""of all sets in one interval: the only state whose size does not follow from the number of metrics"""

MAX_RAW_BYTES = 4 * MAX_KEY_CHARS + 64
"""of a name and its tags as sent: no name of 128 characters needs more, and nothing longer is remembered anywhere"""
MAX_MEMBER_BYTES = 64
"""of a set's member as it is; of longer ones a hash is kept, so that 100,000 of them cannot fill the memory"""
_HASH_BYTES = 16

_TIMERS = (b"ms", b"h", b"d")
_OF_A_TIMER = ("_count", "_sum", "_min", "_max")


class Aggregator:
    """Feed it datagrams from one thread, take from another.

    Lines are kept by their raw name and tags; text is made once a metric, not once a line.
    """

    def __init__(self, refusals: Refusals, *, max_metrics: int, gauge_keep_s: float) -> None:
        self.lines = 0
        """that were taken; those that were not are in the refusals"""
        self._refusals = refusals
        self._max_metrics, self._gauge_keep_s = max_metrics, gauge_keep_s
        self._lock = threading.Lock()
        self._members = 0
        self._counters: dict[bytes, float] = {}
        self._gauges: dict[bytes, float] = {}
        self._gauges_set: set[bytes] = set()  # since the last take
        self._gauges_set_s: dict[bytes, float] = {}  # the take that ended the interval in which they were last set
        self._timers: dict[bytes, list[float]] = {}  # count, sum, min, max
        self._sets: dict[bytes, set[bytes]] = {}
        self._names: dict[bytes, tuple[str, str]] = {}  # name and labels as text
        # What lines are looked up in, so that text is made once a metric and not once a line.
        self._ordered: dict[bytes, bytes] = {}  # tags as sent, and sorted
        self._in_ms: dict[bytes, bytes] = {}
        self._timed: dict[bytes, tuple[str, ...]] = {}

    def feed(self, datagram: bytes) -> None:
        with self._lock:
            for line in datagram.split(b"\n"):
                if line and (stripped := line.strip()):
                    refused = self._take_line(stripped)
                    if refused:
                        self._refusals.count(refused, stripped[:200])
                    else:
                        self.lines += 1

    # One function, because it runs for every line that comes in.
    def _take_line(self, line: bytes) -> str:  # noqa: C901, PLR0911, PLR0912
        """Empty if the line was taken, else why not; a line is taken as a whole or not at all."""
        head, _, rest = line.partition(b"|")
        name, _, given = head.partition(b":")
        kind, has_more, more = rest.partition(b"|")
        if not name or not given:
            return "malformed"
        rate, tags = 1.0, b""
        if has_more:
            try:
                rate, tags = _extras(more)
            except ValueError:
                return "malformed"
        if len(name) + len(tags) > MAX_RAW_BYTES:
            return "name_too_long"
        if tags:
            name = name + b"|" + self._in_order(tags)
        if kind == b"s":
            return self._refused_name(name, self._sets) or self._add_member(name, given)
        if b"_" in given:  # which float() takes for a separator of digits
            return "malformed"
        try:
            # Several values in one line, `rpc:3:5:4|ms`, are DogStatsD 1.1.
            values = [float(given)] if b":" not in given else [float(each) for each in given.split(b":")]
        except ValueError:
            return "malformed"
        total = sum(values)
        if total - total != 0.0:  # infinite, or not a number
            return "not_finite"
        if kind == b"c":
            if refused := self._refused_name(name, self._counters):
                return refused
            self._counters[name] = self._counters.get(name, 0.0) + total / rate
        elif kind == b"g":
            if refused := self._refused_name(name, self._gauges):
                return refused
            self._set_gauge(name, given, values)
        elif kind in _TIMERS:
            key = self._with_unit(name) if kind == b"ms" else name
            if refused := self._refused_name(key, self._timers):
                return refused
            self._add_times(key, values, rate)
        else:
            return "malformed"
        return ""

    def _in_order(self, tags: bytes) -> bytes:
        """The same tags are the same metric, in whatever order they were sent."""
        ordered = self._ordered.get(tags)
        if ordered is None:
            ordered = b",".join(sorted({word for word in tags.split(b",") if word}))
            if len(self._ordered) >= self._max_metrics:
                self._ordered.clear()
            self._ordered[tags] = ordered
        return ordered

    def _with_unit(self, key: bytes) -> bytes:
        """`rpc` as `rpc_ms`, so that the name of a time says what it counts."""
        named = self._in_ms.get(key)
        if named is None:
            name, bar, tags = key.partition(b"|")
            named = key if name.endswith((b"_ms", b".ms")) else name + b"_ms" + bar + tags
            if len(self._in_ms) >= self._max_metrics:
                self._in_ms.clear()
            self._in_ms[key] = named
        return named

    def _refused_name(self, key: bytes, known: object) -> str:
        """Why a metric cannot be accepted; empty for those already known."""
        assert isinstance(known, dict)
        if key in known:
            return ""
        if key not in self._names:
            name, _, tags = key.partition(b"|")
            try:
                text, labels = name.decode(), _labels(tags.decode())
            except UnicodeDecodeError:
                return "bad_name"
            if "\0" in text or "\0" in labels:
                return "bad_name"
            if len(text) + len(labels) > MAX_KEY_CHARS:
                return "name_too_long"
            if len(self._names) >= 2 * self._max_metrics:
                self._names = {each: self._names[each] for each in self._present()}
                self._timed = {}
            self._names[key] = (text, labels)
        present = len(self._counters) + len(self._gauges) + len(self._timers) + len(self._sets)
        return "too_many" if present >= self._max_metrics else ""

    def _present(self) -> set[bytes]:
        return {*self._counters, *self._gauges, *self._timers, *self._sets}

    def _set_gauge(self, key: bytes, given: bytes, values: list[float]) -> None:
        value = values[-1]
        if given[:1] in (b"+", b"-"):  # a change, not a level; so a negative level is set by way of 0
            value = self._gauges.get(key, 0.0) + sum(values)
        self._gauges[key] = value
        self._gauges_set.add(key)

    def _add_times(self, key: bytes, values: list[float], rate: float) -> None:
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = [0.0, 0.0, math.inf, -math.inf]
        for value in values:
            timer[0] += 1 / rate
            timer[1] += value / rate
            # Comparing takes a fifth of the time of `min()` and `max()`, which are calls.
            if value < timer[2]:  # noqa: PLR1730
                timer[2] = value
            if value > timer[3]:  # noqa: PLR1730
                timer[3] = value

    def _add_member(self, key: bytes, member: bytes) -> str:
        if len(member) > MAX_MEMBER_BYTES:
            member = blake2b(member, digest_size=_HASH_BYTES).digest()
        if member in self._sets.get(key, ()):
            return ""
        if self._members >= MAX_MEMBERS:
            return "too_many"
        self._members += 1
        self._sets.setdefault(key, set()).add(member)
        return ""

    def take(self, now_s: float) -> dict[str, float]:
        """The values of the interval that ends now. Silent counters and timers are absent; gauges keep their value."""
        with self._lock:
            counters, self._counters = self._counters, {}
            timers, self._timers = self._timers, {}
            sets, self._sets, self._members = self._sets, {}, 0
            self._forget_gauges(now_s)
            gauges, names, timed = dict(self._gauges), self._names, self._timed
        found: dict[str, float] = {}
        for key, value in counters.items():
            self._put(found, "".join(names[key]), value)
        for key, value in gauges.items():
            self._put(found, "".join(names[key]), value)
        for key, members in sets.items():
            self._put(found, "".join(names[key]), float(len(members)))
        for key, timer in timers.items():
            if key not in timed:
                name, labels = names[key]
                timed[key] = tuple(f"{name}{suffix}{labels}" for suffix in _OF_A_TIMER)
            for full, value in zip(timed[key], timer, strict=True):
                self._put(found, full, value)
        return found

    def _forget_gauges(self, now_s: float) -> None:
        """Those that nobody has set for too long; one set in this interval stays, however long the interval was."""
        self._gauges_set_s.update(dict.fromkeys(self._gauges_set, now_s))
        self._gauges_set = set()
        if not self._gauge_keep_s:
            return
        oldest = now_s - self._gauge_keep_s
        for key in [key for key, set_s in self._gauges_set_s.items() if set_s < oldest]:
            del self._gauges[key], self._gauges_set_s[key]

    def _put(self, found: dict[str, float], name: str, value: float) -> None:
        if name in found:  # one name as a counter and as a gauge
            self._refusals.count("name_taken", name)
        else:
            found[name] = value


def _extras(more: bytes) -> tuple[float, bytes]:
    """Sample rate and tags. Raises ValueError for anything that would change the meaning if it were ignored."""
    rate, tags = 1.0, b""
    for part in more.split(b"|"):
        mark = part[:1]
        if mark == b"@":
            rate = float(part[1:])
            if not 0 < rate <= 1 or b"_" in part:
                raise ValueError
        elif mark == b"#":
            tags = part[1:]
        elif mark not in (b"c", b"e"):  # DogStatsD's container id and external data say who sent it, no more
            raise ValueError
    return rate, tags


def _labels(tags: str) -> str:
    """`a:1,urgent` as `{a="1",urgent}`: written like Prometheus' labels."""
    words = [word.partition(":") for word in tags.split(",") if word]
    written = [f'{name}="{_escaped(value)}"' if colon else name for name, colon, value in words]
    return "{" + ",".join(written) + "}" if written else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
