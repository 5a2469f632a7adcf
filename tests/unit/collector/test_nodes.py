"""Questions go to each query node in turn, and past those that do not answer."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tallymark.collector.nodes import DOWN_S, QueryNodes, address
from tallymark.http import free_port
from tallymark.settings import SettingsError


class Node:
    """A query node that counts what it was asked; with `rude`, it hangs up instead of answering."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.rude = False
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                node.asked.append(self.command)
                if node.rude:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_PUT = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    pair = Node(), Node()
    yield pair
    for node in pair:
        node.close()


def test_questions_are_spread(make: Any, nodes: tuple[Node, Node]) -> None:
    collector = make(query=[node.address for node in nodes])
    for _ in range(10):
        assert collector.get("/v1/meters").status == 200
    assert [len(node.asked) for node in nodes] == [5, 5]


def test_a_node_that_is_down_is_passed_over_whatever_is_asked(make: Any, nodes: tuple[Node, Node]) -> None:
    collector = make(query=[f"127.0.0.1:{free_port()}", nodes[0].address])
    for method in ("GET", "PUT") * 3:
        assert collector.request(method, "/v1/meters/a", b"{}" if method == "PUT" else None).status == 200
    assert len(nodes[0].asked) == 6


def test_a_node_that_breaks_off_is_followed_by_another_only_for_questions(make: Any, nodes: tuple[Node, Node]) -> None:
    nodes[0].rude = True
    collector = make(query=[node.address for node in nodes])
    for _ in range(4):
        assert collector.get("/v1/meters").status == 200
    nodes[1].rude = True
    reply = make(query=[node.address for node in nodes]).request("PUT", "/v1/meters/a", b"{}")
    assert (reply.status, reply.json["code"]) == (502, "query_failed")
    # It may have been done, so it is not sent to the other.
    assert sum(node.asked.count("PUT") for node in nodes) == 1


def test_with_no_node_at_all_questions_are_answered_503(make: Any) -> None:
    collector = make(query=[f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])
    reply = collector.get("/v1/meters")
    assert (reply.status, reply.json["code"], reply.headers["retry-after"]) == (503, "query_away", "1")


def test_those_that_did_not_answer_come_last_for_a_while(tmp_path: Path) -> None:
    now = [0.0]
    nodes = QueryNodes(["a:1", "b:1", "c:1"], tmp_path, clock=lambda: now[0])
    assert {nodes.in_turn()[0] for _ in range(3)} == {("a", 1), ("b", 1), ("c", 1)}
    nodes.failed(("b", 1))
    assert [nodes.in_turn()[-1] for _ in range(3)] == [("b", 1)] * 3
    now[0] += DOWN_S + 1
    assert {nodes.in_turn()[0] for _ in range(3)} == {("a", 1), ("b", 1), ("c", 1)}


def test_all_that_run_on_the_data_folder_are_found(tmp_path: Path) -> None:
    assert QueryNodes([], tmp_path).in_turn() == []
    (tmp_path / "query-a.json").write_text(json.dumps({"address": "127.0.0.1:1"}))
    (tmp_path / "query.json").write_text(json.dumps({"address": "[::1]:2"}))
    (tmp_path / "query-b.json").write_text("{")
    assert set(QueryNodes([], tmp_path).in_turn()) == {("127.0.0.1", 1), ("::1", 2)}


@pytest.mark.parametrize("wrong", ["query-1", "query-1:", ":80", "query-1:http", "query-1:70000"])
def test_a_wrong_address_is_named(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"collector\.query"):
        address(wrong)
