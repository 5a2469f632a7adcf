"""`tallymark up --roles …` as a process."""

import json
import os
import signal
import subprocess
import sys
import time

from tallymark.client.transport import HttpTransport, Request
from tallymark.testing import until


class Up:
    """`tallymark up --roles …` as a process."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.out = folder / f"out-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "tallymark", "up", "--data", str(folder / "d"), *arguments]
        with open(self.out, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)

    @property
    def said(self):
        return self.out.read_text()

    def until_ready(self):
        until(lambda: "is ready" in self.said or self.process.poll() is not None, "ready", deadline_s=60)
        assert "is ready" in self.said, self.said
        return self

    def files(self):
        return sorted(path.name for path in (self.folder / "d" / "run").glob("*.json"))

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def test_only_the_chosen_roles_run_and_what_dies_comes_back(tmp_path):
    up = Up(tmp_path, "--roles", "query,keeper")
    try:
        up.until_ready()
        assert up.files() == ["keeper.json", "query.json", "up.json"]
        assert "Tallymark is ready (query, keeper) at http://127.0.0.1:" in up.said
        place = tmp_path / "d" / "run" / "keeper.json"
        first = json.loads(place.read_bytes())["pid"]
        os.kill(first, signal.SIGKILL)

        def another() -> bool:
            return place.exists() and json.loads(place.read_bytes())["pid"] != first

        until(another, "the keeper is started again", deadline_s=60)
    finally:
        up.close()
    assert up.process.returncode == 0


def test_two_with_names_of_their_own_share_a_data_folder(tmp_path):
    ups = [Up(tmp_path, "--roles", "query", "--set", f"instance={name}") for name in ("a", "b")]
    try:
        for up in ups:
            up.until_ready()
        assert ups[0].files() == ["query-a.json", "query-b.json", "up-a.json", "up-b.json"]
        address = json.loads((tmp_path / "d" / "run" / "query-a.json").read_bytes())["address"]
        transport = HttpTransport(f"http://{address}")
        listed = transport.exchange(Request("GET", "/v1/status")).json()["roles"]
        transport.close()
        assert [each["instance"] for each in listed if each["role"] == "query"] == ["a", "b"]
        again = Up(tmp_path, "--roles", "query", "--set", "instance=a")
        assert again.process.wait(60) == 1
        assert "--set instance=…" in again.said
        again.close()
    finally:
        for up in ups:
            up.close()
