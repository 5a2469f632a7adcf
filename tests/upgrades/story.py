"""The story that every fixture tells: four days of a small shop, stopped in the middle of everything.

`told` brings a new data folder into the state that is kept, `goes_on` is what any later version must make of it. Both
are told to a `Teller`: the product, which does it, and the reckoning, which works out in plain Python what must come
of it.

    day 1   day 2        day 3               day 4
    [ rolled to days )[ rolled to hours )[ an hour half rolled )[ a fold half done ][ journal ][ only in the log ]
       ^ late events go on arriving here
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Protocol

from tallymark.store.documents import Kind

Event = dict[str, Any]

FIRST_DAY = datetime(2026, 11, 9, tzinfo=UTC)
# Where a retry lies beyond the horizon of ten minutes, and nobody can tell whether its first try was counted.
LONG_AGO_MS = 3_600_000


def at_ms(day: int, clock: str) -> int:
    """Day 1 at 10:17, in epoch milliseconds."""
    hours, minutes = map(int, clock.split(":"))
    moment = FIRST_DAY + timedelta(days=day - 1, hours=hours, minutes=minutes)
    return int(moment.timestamp() * 1000)


@dataclass(frozen=True)
class Definition:
    """A meter as a user writes it, and its `where` once more in Python."""

    mapping: Mapping[str, Any]
    keeps: Callable[[Event], bool] = lambda event: True

    @property
    def name(self) -> str:
        return str(self.mapping["name"])

    @property
    def events(self) -> tuple[str, ...]:
        """Empty: every event."""
        return tuple(self.mapping.get("event", self.mapping.get("weights", ())))

    @property
    def compute(self) -> tuple[str, ...]:
        """What the meter says, or what it then computes."""
        of_kind = ("count", "distinct") if "distinct" in self.mapping else ("count", "sum")
        return tuple(self.mapping.get("compute", of_kind))

    @property
    def grain_s(self) -> int:
        return {"1s": 1, "10s": 10, "1m": 60}[self.mapping.get("grain", "1m")]

    @property
    def approximate(self) -> tuple[str, ...]:
        """What is computed from a sketch."""
        return tuple(name for name in self.compute if name == "distinct" or name[0] == "p")

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.mapping.get("by", ()), *(("metric",) if "each" in self.mapping else ()))


EVERY = ["count", "sum", "min", "max", "avg"]
BUILT_IN = (
    Definition({"name": "events", "by": ["event"], "compute": ["count"]}),
    Definition({"name": "metrics", "event": ["metrics"], "by": ["server"], "compute": EVERY, "each": "values"}),
)
VIEWS = Definition({"name": "views", "event": ["view"], "by": ["video", "country"], "compute": ["count"]})
VIEWS_2 = Definition({"name": "views", "event": ["view", "peek"], "by": ["video"], "compute": ["count"]})
SALES = Definition(
    {"name": "sales", "event": ["purchase"], "by": ["shop"], "compute": EVERY, "value": "amount", "decimals": 2}
)
LATENCY = Definition(
    {"name": "latency", "event": ["request"], "by": ["route"], "compute": ["avg", "max"], "where": "status < 500"},
    keeps=lambda event: event["props"]["status"] < 500,
)
LATENCY_2 = Definition({**LATENCY.mapping, "compute": EVERY}, keeps=LATENCY.keeps)
FAILURES = Definition(
    {"name": "failures", "event": ["request", "purchase"], "compute": ["count"], "where": "status >= 500"},
    keeps=lambda event: event["props"].get("status", 0) >= 500,
)
SESSIONS = Definition({"name": "sessions", "event": ["session"], "by": ["country"], "compute": ["count"]})
REFUNDS = Definition(
    {"name": "refunds", "event": ["refund"], "by": ["shop"], "compute": ["sum"], "value": "amount", "decimals": 2}
)
RETURNS = Definition({"name": "returns", "event": ["refund"], "by": ["shop"], "compute": ["count"]})
TIMES = Definition({"name": "times", "event": ["request"], "by": ["route"], "compute": ["count", "max", "p50", "p99"]})
GUESTS = Definition({"name": "guests", "event": ["view", "session"], "by": ["country"], "distinct": "video"})
PULSE = Definition(
    {
        "name": "pulse",
        "event": ["view", "purchase"],
        "by": ["shop"],
        "compute": ["count", "max"],
        "value": "amount",
        "grain": "1s",
        "late": {"after": "1h", "then": "aside"},
    }
)
TRENDS = Definition(
    {"name": "trends", "by": ["video"], "weights": {"view": 1, "peek": 0.5, "purchase": 5}, "grain": "10s"}
)
PLACES = Definition(
    {"name": "places", "event": ["view"], "by": ["video", "country"], "compute": ["count"], "max_series": 7}
)
MAIN, ACME = "main", "acme"
ACME_VIEWS = Definition({"name": "views", "event": ["view"], "by": ["country"], "compute": ["count"]})
"""a meter of another tenant, called like one of `main`'s"""


class Teller(Protocol):
    """Whom the story is told to."""

    def put_meter(self, definition: Definition, *, now_ms: int, tenant: str = MAIN) -> None: ...

    def delete_meter(self, name: str, *, now_ms: int) -> None: ...

    def resume_meter(self, name: str) -> None: ...

    def append(self, partition: int, received_ms: int, events: Sequence[Event], *, tenant: str = MAIN) -> None:
        """Events that a collector accepted, durable in the log."""
        ...

    def append_garbage(self, partition: int, events: int) -> None:
        """A record that does not decode."""
        ...

    def refuse(self, received_ms: int, events: Mapping[str, Event], *, tenant: str = MAIN) -> None:
        """Events that a collector refused, by the code that it refuses them with."""
        ...

    def apply(self, *, now_ms: int, breaks: Mapping[str, int] | None = None) -> None:
        """Counts all that the log has more, as one batch; `breaks` names meters, and in which partition they fail."""
        ...

    def bury(self, partition: int, *, now_ms: int) -> None:
        """The next record of this partition kills whoever counts it."""
        ...

    def take_in_letters(self) -> None:
        """What was refused moves from the log to the store."""
        ...

    def fold(self, *, most_points: int = 100_000, slices: int | None = None) -> None:
        """All that waits, unless it is broken off after some slices."""
        ...

    def roll(self, *, now_ms: int, slices: int | None = None, of_hours: bool = True) -> None:
        """All that is due, unless it is broken off after some slices of hours, or of minutes."""
        ...

    def prune(self, *, now_ms: int) -> None:
        """Drops what is folded and older than an hour from the journal."""
        ...

    def beat(self, role: str, *, now_ms: int) -> None: ...

    def save(self, kind: Kind, name: str, body: str, *, now_ms: int) -> None:
        """A saved query or a board."""
        ...

    def put_table(self, name: str, rows: Sequence[Event], *, key: str, now_ms: int) -> None: ...

    def store_windows(self, query: str, windows: Mapping[int, bytes]) -> None:
        """What a saved query found, by the start of each window."""
        ...


class Shop:
    """What happens in the shop, minute by minute. Nothing is left to chance: each telling gives the same events."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def open(self, start_ms: int, *, minutes: int) -> list[Event]:
        found: list[Event] = []
        for time_ms in range(start_ms, start_ms + minutes * 60_000, 60_000):
            found += self._minute(time_ms)
        return found

    def event(self, name: str, time_ms: int, **props: Any) -> Event:
        number = next(self._numbers)
        return {"event": name, "id": f"{name}-{number}", "time": time_ms + number % 60 * 1000, "props": props}

    def _minute(self, time_ms: int) -> Iterable[Event]:
        minute = time_ms // 60_000
        country = ("KR", "DE", "São Tomé", "")[minute % 4]
        for place in range(1 + minute % 3):
            yield self.event("view", time_ms, video=f"video {(minute + place) % 5}", country=country)
        if minute % 5 == 0:
            yield self.event("peek", time_ms, video="video 0")
        # Multiples of a quarter add up to the same float in any order.
        request = self.event("request", time_ms, route=f"/{minute % 2}", status=(200, 404, 503)[minute % 3])
        yield request if minute % 7 == 0 else request | {"value": minute % 400 / 4}
        if minute % 2:
            # One purchase alone has more than 2^32 units of a cent.
            yield self.event("purchase", time_ms, shop=f"shop {minute % 3}", amount=48_000_000.01 + minute % 1000)
        if minute % 4 == 1:
            yield self.event("refund", time_ms, shop=f"shop {minute % 3}", amount=-(minute % 100) - 0.25)
        if minute % 3 == 2:
            yield self.event("session", time_ms, country=country)
        if minute % 4 == 0:
            metrics = self.event("metrics", time_ms, server=f"server {minute % 2}")
            yield metrics | {"values": {"cpu": minute % 100 / 4, "memory": 512.5 + minute % 64}}


def told(teller: Teller) -> None:
    """All that happened before the folder was left."""
    shop = Shop()
    for definition in (VIEWS, SALES, LATENCY, FAILURES, SESSIONS, REFUNDS, RETURNS):
        teller.put_meter(definition, now_ms=at_ms(1, "08:00"))
    for definition in (TIMES, GUESTS, PULSE, TRENDS, PLACES):
        teller.put_meter(definition, now_ms=at_ms(1, "08:01"))
    first = _first_days(teller, shop)
    _another_tenant(teller, shop, first)
    _broken_meters(teller, shop)
    _dead_letters(teller, shop, first)
    newest = _in_the_middle(teller, shop)
    # Durable in the log, and counted by nobody yet: new events and a late one, retries of them and of events that were
    # counted long ago and just now, garbage, one refused.
    waiting = shop.open(at_ms(4, "11:00"), minutes=7)
    teller.append(0, at_ms(4, "11:08"), waiting)
    late = shop.event("view", at_ms(2, "09:31"), video="video 3")
    teller.append(0, at_ms(4, "11:09"), [*waiting[:6], *first[:4], late, *newest[:5]])
    teller.append(1, at_ms(4, "11:09"), shop.open(at_ms(4, "11:02"), minutes=5))
    teller.append_garbage(1, 4)
    teller.refuse(at_ms(4, "11:09"), {"too_old": shop.event("view", at_ms(4, "11:09") - 9 * 86_400_000)})
    for role in ("pipeline", "keeper", "query"):
        teller.beat(role, now_ms=at_ms(4, "11:10"))
    _what_people_keep(teller)


def _what_people_keep(teller: Teller) -> None:
    """Documents, a table with history, stored windows."""
    saved = '{"q": "FROM * SELECT views WINDOW 1m BY country", "title": "Länder", "tz": null}'
    teller.save("query", "by_country", saved, now_ms=at_ms(4, "11:11"))
    teller.save("board", "wall", '{"title": "Wall", "panels": []}', now_ms=at_ms(4, "11:12"))
    teller.save("board", "wall", '{"title": "The wall", "panels": []}', now_ms=at_ms(4, "11:13"))
    for title, clock in (("First", "11:14"), ("Second", "11:15")):
        rows = [{"video": f"video {number}", "title": f"{title} {number}", "paid": number > 2} for number in range(5)]
        teller.put_table("videos", rows, key="video", now_ms=at_ms(4, clock))
    starts = [at_ms(4, "10:00") // 1000 + 60 * number for number in range(3)]
    teller.store_windows("by_country", {start_s: f"window {start_s}".encode() for start_s in starts})


def _first_days(teller: Teller, shop: Shop) -> list[Event]:
    """Rolled to days and hours. Returns the first events of partition 0, to be sent again later."""
    first = shop.open(at_ms(1, "09:50"), minutes=20)
    teller.append(0, at_ms(1, "10:10"), first)
    teller.append(1, at_ms(1, "23:50"), shop.open(at_ms(1, "23:41"), minutes=8))
    teller.apply(now_ms=at_ms(1, "23:51"))
    teller.fold()
    teller.append(0, at_ms(2, "00:06"), shop.open(at_ms(1, "23:56"), minutes=9))
    teller.append(1, at_ms(2, "09:35"), shop.open(at_ms(2, "09:28"), minutes=6))
    teller.apply(now_ms=at_ms(2, "09:36"))
    teller.fold(most_points=20)
    teller.roll(now_ms=at_ms(2, "15:00"))
    # Late: a rolled day, a rolled hour, and one of the day before that has no points yet.
    late = [shop.event("view", at_ms(1, clock), video="video 1", country="KR") for clock in ("09:55", "09:55", "17:30")]
    late += [shop.event("purchase", at_ms(2, "09:30"), shop="shop 2", amount=0.01)]
    teller.append(1, at_ms(2, "15:05"), late)
    teller.apply(now_ms=at_ms(2, "15:06"))
    teller.fold()
    return first


def _another_tenant(teller: Teller, shop: Shop, known: Sequence[Event]) -> None:
    """Its events are no duplicates of events that `main` sent under the same ids, and count in its own meters alone."""
    teller.put_meter(ACME_VIEWS, now_ms=at_ms(2, "15:10"), tenant=ACME)
    own = [event | {"time": at_ms(2, "15:11")} for event in known[:9]]
    teller.append(0, at_ms(2, "15:12"), [*own, *own[:2]], tenant=ACME)
    teller.append(1, at_ms(2, "15:12"), shop.open(at_ms(2, "15:00"), minutes=3))
    teller.append(1, at_ms(2, "15:13"), shop.open(at_ms(2, "15:02"), minutes=4), tenant=ACME)
    teller.refuse(at_ms(2, "15:13"), {"bad_value": {"event": "view", "id": "a1", "value": "much"}}, tenant=ACME)
    teller.apply(now_ms=at_ms(2, "15:14"))


def _broken_meters(teller: Teller, shop: Shop) -> None:
    """One meter breaks and is resumed, one stays broken; one has a new version, one is deleted."""
    teller.append(0, at_ms(2, "16:10"), shop.open(at_ms(2, "16:00"), minutes=9))
    teller.append(1, at_ms(2, "16:10"), shop.open(at_ms(2, "16:01"), minutes=6))
    teller.apply(now_ms=at_ms(2, "16:11"), breaks={"refunds": 0})
    teller.append(0, at_ms(2, "16:20"), shop.open(at_ms(2, "16:10"), minutes=5))
    teller.append(1, at_ms(2, "16:20"), shop.open(at_ms(2, "16:11"), minutes=5))
    teller.apply(now_ms=at_ms(2, "16:21"))
    teller.resume_meter("refunds")
    teller.put_meter(VIEWS_2, now_ms=at_ms(2, "16:30"))
    teller.delete_meter("sessions", now_ms=at_ms(2, "16:31"))
    teller.append(0, at_ms(3, "00:20"), shop.open(at_ms(3, "00:05"), minutes=10))
    teller.append(1, at_ms(3, "00:20"), shop.open(at_ms(3, "00:07"), minutes=4))
    teller.apply(now_ms=at_ms(3, "00:21"), breaks={"returns": 1})
    teller.put_meter(LATENCY_2, now_ms=at_ms(3, "00:30"))
    teller.fold()
    teller.roll(now_ms=at_ms(3, "02:00"))
    teller.prune(now_ms=at_ms(3, "01:00"))


def _dead_letters(teller: Teller, shop: Shop, counted: Sequence[Event]) -> None:
    """Duplicates, events set aside, dead letters of several kinds."""
    fresh = shop.open(at_ms(3, "08:00"), minutes=3)
    teller.append(0, at_ms(3, "08:05"), [*counted[:15], *fresh, *fresh[:4]])
    resent = [event | {"resent": at_ms(3, "08:06") - LONG_AGO_MS} for event in shop.open(at_ms(3, "08:03"), minutes=2)]
    known = [event | {"resent": at_ms(3, "08:06") - LONG_AGO_MS} for event in counted[:3]]
    teller.append(0, at_ms(3, "08:06"), [*resent, *known])
    teller.append_garbage(1, 7)
    teller.apply(now_ms=at_ms(3, "08:07"))
    killer = shop.open(at_ms(3, "08:10"), minutes=2)
    teller.append(1, at_ms(3, "08:12"), killer)
    teller.bury(1, now_ms=at_ms(3, "08:13"))
    # A record that killed its task has claimed nothing: its events count when they are sent again.
    teller.append(1, at_ms(3, "08:14"), killer[:5])
    teller.apply(now_ms=at_ms(3, "08:15"))
    teller.refuse(
        at_ms(3, "08:16"),
        {
            "bad_event": {"event": "", "id": "nameless"},
            "bad_value": {"event": "view", "id": "x1", "value": "much"},
            "unknown_field": {"event": "view", "id": "x2", "valeu": 1},
        },
    )
    teller.refuse(at_ms(3, "08:17"), {"bad_time": {"event": "view", "id": "x3", "time": "yesterday"}})
    teller.take_in_letters()
    teller.fold()


def _in_the_middle(teller: Teller, shop: Shop) -> list[Event]:
    """An hour and a minute half rolled, a fold half done, a batch only in the journal: its events of partition 0."""
    teller.append(0, at_ms(3, "14:30"), shop.open(at_ms(3, "14:10"), minutes=12))
    teller.append(1, at_ms(3, "14:30"), shop.open(at_ms(3, "14:12"), minutes=9))
    # An hour that is still to be rolled, and that nothing later reminds the keeper of.
    teller.append(1, at_ms(3, "20:15"), shop.open(at_ms(3, "20:10"), minutes=4))
    teller.apply(now_ms=at_ms(3, "20:16"))
    teller.fold()
    teller.roll(now_ms=at_ms(3, "14:40"))
    teller.roll(now_ms=at_ms(4, "10:00"), slices=2)
    # And a minute of the meters by the second.
    several = [shop.event("view", at_ms(4, "09:50"), video=f"video {number}") for number in range(20)]
    teller.append(0, at_ms(4, "10:00"), [*several, *shop.open(at_ms(4, "09:50"), minutes=5)])
    teller.apply(now_ms=at_ms(4, "10:00"))
    teller.fold()
    teller.roll(now_ms=at_ms(4, "10:05"), slices=1, of_hours=False)
    teller.append(0, at_ms(4, "10:30"), shop.open(at_ms(4, "10:01"), minutes=12))
    # Late into the hour half rolled, and into the rolled ones.
    late = [
        shop.event("view", at_ms(day, clock), video="video 4")
        for day, clock in ((3, "14:15"), (3, "08:01"), (1, "10:01"))
    ]
    teller.append(1, at_ms(4, "10:31"), [*shop.open(at_ms(3, "14:20"), minutes=4), *late])
    teller.apply(now_ms=at_ms(4, "10:32"))
    teller.fold(most_points=40, slices=1)
    newest = shop.open(at_ms(4, "10:40"), minutes=4)
    teller.append(0, at_ms(4, "10:45"), newest)
    teller.append(1, at_ms(4, "10:45"), shop.open(at_ms(4, "10:14"), minutes=5))
    teller.apply(now_ms=at_ms(4, "10:46"))
    return newest


def goes_on(teller: Teller) -> None:
    """What a running Tallymark does with the folder: count what waits, take in, fold and roll."""
    teller.apply(now_ms=at_ms(4, "11:11"))
    teller.take_in_letters()
    teller.fold()
    teller.roll(now_ms=at_ms(6, "00:00"))
