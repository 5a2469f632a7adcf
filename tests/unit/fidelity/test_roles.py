"""Which instances of a role are alive, here and on other machines."""

import json
import os

import pytest

from tallymark.fidelity.roles import FORGOTTEN_AFTER_MS, full_name, roles

NOW = 1_000_000_000


def announce(folder, file, beat=None):
    facts = {"pid": os.getpid(), "address": "127.0.0.1:1", "ready_ms": NOW - 60_000, "beat": beat}
    (folder / f"{file}.json").write_text(json.dumps(facts))


def found(folder, beats, role):
    return [
        (full_name(each), each["state"], each["address"])
        for each in roles(folder, beats, now_ms=NOW)
        if each["role"] == role
    ]


def test_each_instance_of_a_data_folder_is_listed(tmp_path):
    announce(tmp_path, "collector-a")
    announce(tmp_path, "collector-b")
    assert found(tmp_path, {}, "collector") == [
        ("collector a", "running", "127.0.0.1:1"),
        ("collector b", "running", "127.0.0.1:1"),
    ]


def test_a_role_that_nobody_plays_is_absent_once(tmp_path):
    assert found(tmp_path, {}, "keeper") == [("keeper", "absent", None)]
    assert found(tmp_path, {"keeper/a": (NOW, {"stopped": True}), "keeper/b": (NOW, {"stopped": True})}, "keeper") == [
        ("keeper a", "absent", None)
    ]


def test_those_on_other_machines_are_known_by_their_beats(tmp_path):
    beats = {
        "query/host-1:8081": (NOW - 1000, {"address": "127.0.0.1:8081"}),
        "query/host-2:8081": (NOW - 60_000, {"address": "127.0.0.1:8081"}),
    }
    assert found(tmp_path, beats, "query") == [
        ("query host-1:8081", "running", "127.0.0.1:8081"),
        ("query host-2:8081", "silent", "127.0.0.1:8081"),
    ]


def test_one_that_is_here_and_beats_is_one_entry(tmp_path):
    announce(tmp_path, "keeper", beat="keeper/host-1")
    assert found(tmp_path, {"keeper/host-1": (NOW, {})}, "keeper") == [("keeper host-1", "running", "127.0.0.1:1")]
    # A role that beats by its bare name, wherever it runs.
    assert found(tmp_path, {"keeper": (NOW, {})}, "keeper") == [("keeper", "running", "127.0.0.1:1")]


@pytest.mark.parametrize(
    ("age_ms", "facts", "kept"),
    [(60_000, {}, True), (FORGOTTEN_AFTER_MS + 1, {}, False), (1_000, {"stopped": True}, False)],
)
def test_who_left_is_forgotten_while_another_runs(tmp_path, age_ms, facts, kept):
    beats = {"keeper/a": (NOW - age_ms, facts), "keeper/b": (NOW, {})}
    assert ("keeper a" in [name for name, _, _ in found(tmp_path, beats, "keeper")]) == kept
    (alone,) = found(tmp_path, {"keeper/a": beats["keeper/a"]}, "keeper")
    assert alone[1] != "running"
