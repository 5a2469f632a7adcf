"""Settings: who wins, where each came from, and what an error says."""

import os
from pathlib import Path

import pytest

from tallymark.log.kafka.client import SLACK_MS
from tallymark.pipeline.counting.claims import CLOCKS_MS
from tallymark.settings import (
    _RANGES,
    LEAST_HORIZON_KAFKA_S,
    LEAST_HORIZON_S,
    Settings,
    SettingsError,
    entries,
    load,
)


@pytest.fixture
def profile(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "profile.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """No `tallymark.toml` or variable of this machine takes part."""
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("TALLYMARK_")]:
        monkeypatch.delenv(variable)


def test_without_anything_there_are_the_defaults():
    settings = load()
    assert settings == Settings()
    assert all(entry.value == entry.default and entry.origin == "default" for entry in entries(settings))


def test_flags_win_over_variables_over_the_file_over_defaults(profile):
    path = profile("data = 'f'\n[collector]\nport = 1\nmax_connections = 1\n[log]\npartitions = 3\n")
    environment = {"TALLYMARK_COLLECTOR_PORT": "2", "TALLYMARK_LOG_PARTITIONS": "4", "HOME": "/"}
    settings = load(path, environment=environment, flags={"collector.port": 3, "data": None})
    assert (settings.collector.port, settings.log.partitions, settings.collector.max_connections) == (3, 4, 1)
    assert settings.data == "f"  # a flag that was not given is None and changes nothing
    origins = {entry.key: entry.origin for entry in entries(settings) if entry.origin != "default"}
    assert origins == {
        "data": str(path),
        "collector.port": "flag",
        "collector.max_connections": str(path),
        "log.partitions": "TALLYMARK_LOG_PARTITIONS",
    }


def test_the_file_of_the_folder_is_read_unless_a_profile_is_named(tmp_path, profile):
    (tmp_path / "tallymark.toml").write_text("[collector]\nport = 5\n")
    assert load().collector.port == 5
    assert load(profile("")).collector.port == 8080


def test_the_environment_of_the_process_is_read_unless_one_is_given(monkeypatch):
    monkeypatch.setenv("TALLYMARK_COLLECTOR_PORT", "6")
    assert load().collector.port == 6
    assert load(environment={}).collector.port == 8080


def test_variables_of_commands_are_not_settings():
    assert load(environment={"TALLYMARK_URL": "http://x", "TALLYMARK_KEY": "k"}) == Settings()


def test_one_load_leaves_no_trace_in_the_next():
    first = load(flags={"collector.cors_origins": ["*"], "collector.port": 1})
    first.collector.cors_origins.append("x")
    assert load(environment={}) == Settings()
    assert Settings().collector.cors_origins == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[collector]\nprot = 1", "unknown setting collector.prot ({path}); did you mean collector.port?"),
        ("[colector]\nport = 1", "unknown setting colector.port ({path}); did you mean collector.port?"),
        ("xyzzy = 1", "unknown setting xyzzy ({path}); `tallymark settings` lists them all"),
        ("[collector.port]\nx = 1", "collector.port = {{'x': 1}} ({path}) is not a whole number"),
        ("[data]\nx = 1", "unknown setting data.x ({path})"),
        ("[collector]\nport = 'http'", "collector.port = 'http' ({path}) is not a whole number"),
        ("[collector]\nport = true", "collector.port = True ({path}) is not a whole number"),
        ("[collector]\nport = 80.5", "collector.port = 80.5 ({path}) is not a whole number"),
        ("[collector]\nport = inf", "collector.port = inf ({path}) is not a whole number"),
        ("[collector]\nport = [80]", "collector.port = [80] ({path}) is not a whole number"),
        ("[collector]\nbody_timeout_s = nan", "collector.body_timeout_s = nan ({path}) is not a number"),
        ("[collector]\nbody_timeout_s = inf", "collector.body_timeout_s = inf ({path}) is not a number"),
        ("[collector]\nhost = 127", "collector.host = 127 ({path}) is not a text"),
        ("[collector]\ncors_origins = 5", "collector.cors_origins = 5 ({path}) is not a list"),
        ("[collector]\ncors_origins = [5]", "collector.cors_origins = [5] ({path}) is not a list"),
        ("[collector]\nport = 65536", "collector.port = 65536 ({path}) must be 0 to 65535"),
        ("[query]\nport = -1", "query.port = -1 ({path}) must be 0 to 65535"),
        (
            "[collector]\ncommit_interval_ms = 10001",
            "collector.commit_interval_ms = 10001 ({path}) must be 0 to 10000",
        ),
        ("[log]\npartitions = 0", "log.partitions = 0 ({path}) must be 1 to 1024"),
        ("[log]\nsegment_bytes = 4095", "log.segment_bytes = 4095 ({path}) must be at least 4096"),
        ("[log]\nkeep_s = -1", "log.keep_s = -1 ({path}) must be at least 0"),
        ("[keeper]\nfold_interval_s = 0", "keeper.fold_interval_s = 0.0 ({path}) must be at least 0.001"),
        ("[log]\npartition_by = 'key'", "log.partition_by = 'key' ({path}) must be `id` or `key:NAME`"),
        ("[log]\npartition_by = 'key:'", "log.partition_by = 'key:' ({path}) must be `id` or `key:NAME`"),
        ("port = = 1", "{path}: Invalid value (at line 1, column 8)"),
    ],
)
def test_an_error_names_the_setting_its_value_and_its_origin(profile, text, message):
    path = profile(text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert message.format(path=path) in str(caught.value)


def test_an_unknown_variable_or_flag_names_the_nearest():
    with pytest.raises(SettingsError, match="unknown setting TALLYMARK_PORT "):
        load(environment={"TALLYMARK_PORT": "1"})
    with pytest.raises(SettingsError, match=r"_PRT \(environment\); did you mean TALLYMARK_COLLECTOR_PORT\?"):
        load(environment={"TALLYMARK_COLLECTOR_PRT": "1"})
    with pytest.raises(SettingsError, match=r"unknown setting collector.prt \(flag\); did you mean collector.port\?"):
        load(flags={"collector.prt": 1})


def test_a_wrong_variable_is_named():
    with pytest.raises(SettingsError, match=r"log.partitions = 'two' \(TALLYMARK_LOG_PARTITIONS\) is not a whole"):
        load(environment={"TALLYMARK_LOG_PARTITIONS": "two"})


def test_a_profile_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"profile none\.toml does not exist"):
        load(Path("none.toml"))
    with pytest.raises(SettingsError, match=r"cannot read .*: Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"data = '\xe9'")
    with pytest.raises(SettingsError, match=r"latin\.toml: .*utf-8"):
        load(Path("latin.toml"))


def test_variables_are_text_and_become_what_the_setting_is():
    settings = load(
        environment={
            "TALLYMARK_COLLECTOR_MAX_BODY_BYTES": "1_000_000",
            "TALLYMARK_COLLECTOR_BODY_TIMEOUT_S": "2.5",
            "TALLYMARK_COLLECTOR_CORS_ORIGINS": "https://a, https://b",
            "TALLYMARK_LOG_PARTITION_BY": "key:user",
        }
    )
    assert settings.collector.max_body_bytes == 1_000_000
    assert settings.collector.body_timeout_s == 2.5
    assert settings.collector.cors_origins == ["https://a", "https://b"]
    assert settings.log.partition_by == "key:user"


def test_an_empty_list_is_empty():
    assert load(environment={"TALLYMARK_COLLECTOR_CORS_ORIGINS": ""}).collector.cors_origins == []


def test_whole_numbers_are_numbers_too(profile):
    settings = load(profile("[collector]\nbody_timeout_s = 2\nport = 80.0\n"))
    assert (settings.collector.body_timeout_s, settings.collector.port) == (2.0, 80)
    assert (type(settings.collector.body_timeout_s), type(settings.collector.port)) == (float, int)


def test_every_setting_has_a_meaning_and_a_variable_of_its_own():
    table = list(entries())
    assert len(table) > 20
    assert [entry.key for entry in table if not entry.meaning.strip()] == []
    assert all(isinstance(entry.default, str | int | float | list) for entry in table)
    variables = [entry.key.replace(".", "_").upper() for entry in table]
    assert len(set(variables)) == len(variables)


def test_every_setting_can_be_set_by_a_variable_and_by_a_flag():
    for entry in entries():
        text = ",".join(entry.default) if isinstance(entry.default, list) else str(entry.default)
        variable = "TALLYMARK_" + entry.key.replace(".", "_").upper()
        (changed,) = [e for e in entries(load(environment={variable: text})) if e.origin != "default"]
        assert (changed.key, changed.value, changed.origin) == (entry.key, entry.default, variable)
        (changed,) = [e for e in entries(load(flags={entry.key: entry.default})) if e.origin != "default"]
        assert (changed.key, changed.value, changed.origin) == (entry.key, entry.default, "flag")


def test_a_horizon_within_which_no_retry_could_be_told_is_refused():
    assert LEAST_HORIZON_S * 1000 > CLOCKS_MS
    assert LEAST_HORIZON_KAFKA_S * 1000 > CLOCKS_MS + SLACK_MS
    kafka = {"log.kind": "kafka", "log.brokers": ["kafka:9092"]}
    for flags, least in (({}, LEAST_HORIZON_S), (kafka, LEAST_HORIZON_KAFKA_S)):
        assert load(flags={**flags, "pipeline.horizon_s": least}).pipeline.horizon_s == least
        with pytest.raises(SettingsError, match=rf"pipeline\.horizon_s = {least - 1} .*must be (at least )?{least}"):
            load(flags={**flags, "pipeline.horizon_s": least - 1})


def test_ranges_are_of_settings_that_exist():
    assert _RANGES.keys() <= {entry.key for entry in entries()}


def test_everything_of_one_machine_lies_in_the_data_folder():
    settings = load(flags={"data": "/d"})
    places = [settings.log_folder, settings.store_file, settings.claims_folder, settings.scratch_folder]
    places += [settings.logs_folder, settings.run_folder]
    assert all(place.is_relative_to("/d") for place in places)
    assert len(set(places)) == len(places)
