"""A Tallymark small enough to read: it answers over real HTTP what a right one would, and fails on request."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest


class FakeService:
    """Counts each id once, in plain lists. `script` holds what the next requests for /v1/events meet."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.meters: dict[str, dict[str, Any]] = {}
        self.script: list[str] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, tuple[int, Any]] = {}
        self.always: str | None = None
        self.lock = threading.Lock()

    def handle(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, Any] | None:
        """The status and the JSON of the answer; None closes the connection without one."""
        with self.lock:
            self.requests.append((method, target, headers, body))
            parts = urlsplit(target)
            words = parts.path.strip("/").split("/")
            if parts.path in self.answers:
                return self.answers[parts.path]
            if words == ["v1", "events"]:
                return self._take(headers, body, self.always or (self.script.pop(0) if self.script else ""))
            if words == ["v1", "meters"]:
                return 200, {"meters": [{**meter, "version": 1} for meter in self.meters.values()]}
            if words[:2] == ["v1", "meters"] and len(words) == 3:
                return self._meter(method, words[2], body)
            if words[:2] == ["v1", "meters"] and words[2] in self.meters:
                answer = getattr(self, f"_{words[3]}")(self.meters[words[2]], parse_qsl(parts.query))
                now = datetime.now(UTC).isoformat()
                return 200, {**answer, "freshness": {"complete_through": now, "lag_ms": 1}}
            return 404, {"detail": f"no {parts.path}"}

    def _take(self, headers: dict[str, str], body: bytes, fate: str) -> tuple[int, Any] | None:
        if fate.isdigit():
            return int(fate), {"detail": "not now"}
        ndjson = "ndjson" in headers.get("content-type", "")
        events = [json.loads(line) for line in body.splitlines()] if ndjson else json.loads(body)
        errors, accepted = [], 0
        for index, event in enumerate(events):
            if event["event"] == "bad":
                errors.append({"index": index, "code": "bad_event", "detail": "is bad", "retryable": False})
            elif fate == "half" and index % 2:
                errors.append({"index": index, "code": "busy", "detail": "not now", "retryable": True})
            else:
                accepted += 1
                if not (fate == "lossy" and index == 0):
                    self.events[event["event"], event.get("id", f"made-{len(self.events)}")] = event
        if fate == "silent":
            return None
        status = 422 if errors and not accepted and not any(error["retryable"] for error in errors) else 202
        return status, {"accepted": accepted, "rejected": len(errors), "errors": errors}

    def _meter(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        if method == "PUT":
            self.meters[name] = json.loads(body)
        elif name not in self.meters:
            return 404, {"detail": f"no meter {name}"}
        elif method == "DELETE":
            return 200, {"deleted": self.meters.pop(name)["name"]}
        return 200, {**self.meters[name], "version": 1}

    def _rows(self, meter: dict[str, Any], query: list[tuple[str, str]]) -> Iterator[tuple[int, dict[str, str], float]]:
        asked = dict(query)
        events = [meter["event"]] if isinstance(meter["event"], str) else meter["event"]
        for (name, _), event in self.events.items():
            if name not in events or not int(asked.get("from", 0)) <= event["time"] < int(asked.get("to", 1 << 60)):
                continue
            labels = {key: str(event["props"].get(key, "")) for key in meter.get("by", [])}
            numbers = event["values"].items() if meter.get("each") else [("", event.get("value", 0))]
            for metric, number in numbers:
                full = {**labels, "metric": metric} if meter.get("each") else labels
                if all(full[key.removeprefix("label.")] == v for key, v in query if key.removeprefix("label.") in full):
                    yield event["time"], full, number

    def _total(self, meter: dict[str, Any], query: list[tuple[str, str]]) -> dict[str, Any]:
        return {"meter": meter["name"], "value": tally([number for _, _, number in self._rows(meter, query)])}

    def _series(self, meter: dict[str, Any], query: list[tuple[str, str]]) -> dict[str, Any]:
        width = {"1m": 60_000, "1h": 3_600_000, "1d": 86_400_000}[dict(query)["step"]]
        buckets: dict[int, list[float]] = {}
        for time_ms, _, number in self._rows(meter, query):
            buckets.setdefault(time_ms // width * width, []).append(number)
        points = [{"time": spoken(bucket), **tally(numbers)} for bucket, numbers in sorted(buckets.items())]
        return {"series": [{"labels": {}, "points": points}]}

    def _top(self, meter: dict[str, Any], query: list[tuple[str, str]]) -> dict[str, Any]:
        by = dict(query)["by"]
        groups: dict[str, list[float]] = {}
        for _, labels, number in self._rows(meter, query):
            groups.setdefault(labels[by], []).append(number)
        ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[: int(dict(query).get("k", 10))]
        return {"items": [{"labels": {by: label}, "value": tally(numbers)} for label, numbers in ranked]}


def tally(numbers: list[float]) -> dict[str, Any]:
    return {
        "count": len(numbers),
        "sum": sum(numbers),
        "min": min(numbers, default=None),
        "max": max(numbers, default=None),
    }


def spoken(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else 40 ms an answer
    service: FakeService

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.service.handle(self.command, self.path, headers, body)
        if answer is None:
            self.close_connection = True
            return
        status, content = answer
        payload = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def fake_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """A running fake; TALLYMARK_URL leads to it."""
    service = FakeService()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": service}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv("TALLYMARK_URL", f"http://127.0.0.1:{server.server_port}")
    yield service
    server.shutdown()
    server.server_close()
