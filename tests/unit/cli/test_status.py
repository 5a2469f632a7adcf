"""One screen: the verdict first."""

from tallymark.cli import main

GOOD = {
    "healthy": True, "problems": [], "received": 1005, "accepted": 1000, "refused": 5, "counted": 900, "duplicate": 90,
    "dead": 0, "aside": 0, "unmatched": 0, "in_flight": 10, "missing": 0, "events_per_second": 50.5,
    "lag_ms": {"p50": 120.0, "p95": 300.5, "p99": 400.0, "highest": 500.0, "events": 3000, "window_s": 60},
    "roles": [{"role": "collector", "state": "running", "address": "127.0.0.1:8080"}],
    "meters": [{"name": "events"}], "dead_letters": [], "freshness": {"complete_through": "2026-11-15T12:00:00Z"},
}  # fmt: skip


def test_all_is_well(fake_service, capsys):
    fake_service.answers["/v1/status"] = 200, GOOD
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("all is well")
    shown = {line.split()[0]: line.split()[-1] for line in lines if line}
    assert (shown["received"], shown["accepted"], shown["counted"], shown["duplicate"]) == (
        "1,005",
        "1,000",
        "900",
        "90",
    )
    assert len(lines) < 25
    assert len({len(line) for line in lines if line.split()[:1] in (["received"], ["counted"], ["duplicate"])}) == 1


def test_what_is_wrong_comes_first_and_fails(fake_service, capsys):
    dead = [{"hop": "pipeline", "reason": "damaged", "events": 3}]
    problems = ["pipeline is absent", "counts are 90.0 s behind"]
    fake_service.answers["/v1/status"] = 200, {**GOOD, "healthy": False, "problems": problems, "dead_letters": dead}
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["! pipeline is absent", "! counts are 90.0 s behind"]
    assert any("damaged" in line for line in lines)
