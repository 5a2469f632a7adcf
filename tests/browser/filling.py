"""What the tests of single pages put into a service: saved queries, boards, tables and dead letters."""

import json
import time
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from browser.conftest import Service, ago
from tallymark.store.model import DeadLetter, Stretch

VIEWS = "FROM * SELECT views WINDOW 1m COMPUTE count BY video"


def put(service: Service, path: str, body: Any, *, kind: str = "application/json", tenant: str = "main") -> Any:
    content = json.dumps(body).encode() if kind == "application/json" else body.encode()
    asked = Request(service.url + path, content, {"content-type": kind, "tallymark-tenant": tenant}, method="PUT")
    with urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def ask(service: Service, path: str, *, tenant: str = "main") -> Any:
    with urlopen(Request(service.url + path, headers={"tallymark-tenant": tenant}), timeout=30) as answer:
        return json.load(answer)


def save(service: Service, name: str = "per_minute", q: str = VIEWS, **more: str) -> None:
    put(service, f"/v1/queries/{quote(name)}", {"q": q, **more})


def board(service: Service, *panels: dict[str, Any], name: str = "wall", title: str = "The wall") -> None:
    put(service, f"/v1/boards/{quote(name)}", {"title": title, "panels": panels})


CATS_AND_BOATS = "video,title\nA,Cats\nB,Boats\n"


def table(service: Service, name: str = "videos", rows: str = CATS_AND_BOATS, key: str = "video") -> None:
    put(service, f"/v1/tables/{quote(name)}?key={quote(key)}", rows, kind="text/csv")


def views(service: Service, minutes: int = 5) -> None:
    """Views of A and B: one and two in each of the last minutes, as far as they are over."""
    service.send(
        *(ago(minute, video=video, country="KR") for minute in range(1, minutes + 1) for video in ("A", "B", "B"))
    )


def bury(service: Service, *letters: tuple[str, str, bytes], detail: str = "why", tenant: str = "main") -> None:
    """(hop, reason, raw), the last one is the newest."""
    begin = service.store.dead_letters.position(service.identity)
    now_ms = int(time.time() * 1000)
    found = [
        DeadLetter(hop, reason, detail, 1, raw, now_ms - 1000 * (len(letters) - place), tenant=tenant)
        for place, (hop, reason, raw) in enumerate(letters)
    ]
    assert service.store.dead_letters.take_in(service.identity, Stretch(0, begin, begin + 1), found)
