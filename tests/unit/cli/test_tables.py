"""`tallymark tables`: from files to the service, and back to people."""

import io
import json
import sys

import pytest

from tallymark.cli import main

DONE = {"name": "videos", "rows": 1200, "added": 1000, "changed": 0, "unchanged": 200, "deleted": 1}
VIDEOS = {
    "name": "videos", "key": "video", "columns": {"title": "text", "minutes": "number"}, "rows": 1200,
    "changed": "2026-11-15T12:00:00.123Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "kind"),
    [("v.csv", "text/csv"), ("v.json", "application/json"), ("v.JSONL", "application/x-ndjson")],
)
def test_put_sends_the_file_as_what_it_is(fake_service, capsys, tmp_path, file, kind):
    fake_service.answers["/v1/tables/videos"] = 201, DONE
    (tmp_path / file).write_bytes(b"content")
    assert main(["tables", "put", "videos", str(tmp_path / file), "--key", "video"]) == 0
    method, path, headers, body = fake_service.requests[-1]
    assert (method, path, body) == ("PUT", "/v1/tables/videos?key=video", b"content")
    assert headers["content-type"] == kind
    assert capsys.readouterr().out == "videos: 1,200 rows (1,000 added, 200 unchanged, 1 deleted)\n"


def test_patch_reads_stdin(fake_service, capsys, monkeypatch):
    fake_service.answers["/v1/tables/videos"] = 200, {**DONE, "added": 0, "unchanged": 0, "deleted": 0, "note": "so"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"video":"A"}')))
    assert main(["tables", "patch", "videos", "-", "--format", "ndjson"]) == 0
    assert fake_service.requests[-1][0] == "PATCH"
    assert fake_service.requests[-1][3] == b'{"video":"A"}'
    assert capsys.readouterr().out == "videos: 1,200 rows (nothing changed)\nso\n"


def test_mistakes_are_told_one_a_line(fake_service, capsys, tmp_path):
    file = tmp_path / "v.csv"
    file.write_text("x")
    errors = [{"detail": f"line {line}: wrong \x1b", "line": line} for line in (2, 7)]
    fake_service.answers["/v1/tables/videos"] = 400, {"code": "bad_row", "detail": "line 2: wrong", "errors": errors}
    assert main(["tables", "put", "videos", str(file)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"{file}: line 2: wrong \\u001b",
        f"{file}: line 7: wrong \\u001b",
        f"tallymark tables: mistakes in {file}; nothing was changed",
    ]
    fake_service.answers["/v1/tables/videos"] = (
        400,
        {"code": "bad_row", "detail": "line 2: wrong", "errors": errors[:1]},
    )
    assert main(["tables", "put", "videos", str(file)]) == 1
    assert capsys.readouterr().err == "tallymark tables: line 2: wrong (HTTP 400)\n"


def test_what_cannot_be_sent_is_refused_before(fake_service, capsys, tmp_path):
    assert main(["tables", "put", "videos", "videos.txt"]) == 1
    assert "cannot read videos.txt: No such file" in capsys.readouterr().err
    (tmp_path / "v.txt").write_text("x")
    assert main(["tables", "put", "videos", str(tmp_path / "v.txt")]) == 2
    assert "CSV, JSON or NDJSON? Add --format" in capsys.readouterr().err
    (tmp_path / "v.csv").write_bytes(b" " * 32_000_001)
    assert main(["tables", "put", "videos", str(tmp_path / "v.csv")]) == 1
    assert "32,000,001 bytes exceed 32,000,000, the most that can be sent at once" in capsys.readouterr().err
    assert fake_service.requests == []


def test_list_and_delete(fake_service, capsys):
    fake_service.answers["/v1/tables"] = 200, {"tables": []}
    assert main(["tables", "list"]) == 0
    assert "no tables yet; make one from a file: tallymark tables put" in capsys.readouterr().out
    fake_service.answers["/v1/tables"] = 200, {"tables": [VIDEOS]}
    assert main(["tables", "list"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split("  ")[0] == "videos"
    assert line.endswith("1,200  2026-11-15T12:00:00.123Z  title (text), minutes (number)")
    fake_service.answers["/v1/tables/videos"] = 200, {"deleted": "videos"}
    assert main(["tables", "delete", "videos"]) == 0
    assert capsys.readouterr().out == "videos is deleted, with its history\n"


def test_show_has_rows_and_the_history_of_one(fake_service, capsys):
    rows = [{"key": "A", "from": None, "columns": {"title": "Alpha", "minutes": 2.5}}]
    fake_service.answers["/v1/tables/videos"] = 200, VIDEOS
    fake_service.answers["/v1/tables/videos/rows"] = 200, {"rows": rows, "next": "A"}
    assert main(["tables", "show", "videos", "--search", "al", "--at", "-1d"]) == 0
    assert fake_service.requests[-1][1] == "/v1/tables/videos/rows?search=al&at=-1d&limit=20"
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["A", "Alpha", "2.5", "always"]
    assert lines[2].startswith("and more of 1,200 rows")
    ended = {"key": "A", "from": "2026-11-15T12:00:00.000Z", "columns": {}, "deleted": True}
    fake_service.answers["/v1/tables/videos/rows/A%2FB"] = 200, {"key": "A/B", "history": [ended, *rows]}
    assert main(["tables", "show", "videos", "A/B"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["A", "-", "-", "2026-11-15T12:00:00.000Z", "(ended)"]
    assert main(["tables", "show", "videos", "A/B", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["shown"][1]["columns"]["title"] == "Alpha"


def test_questions_take_columns(fake_service, capsys):
    item = {"labels": {"video": "A"}, "with": {"videos.title": "Alpha"}, "value": {"count": 7}}
    fake_service.answers["/v1/meters/views/top"] = 200, {"meter": "views", "items": [item], "freshness": {}}
    assert main(["top", "views", "--by", "video", "--with", "videos.title", "videos.channel=music"]) == 0
    assert "with=videos.title" in fake_service.requests[-1][1]
    assert "label.videos.channel=music" in fake_service.requests[-1][1]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["video", "videos.title", "count"]
    assert lines[1].split() == ["1", "A", "Alpha", "7"]
