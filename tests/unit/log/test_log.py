"""What the stages use: open a stream by its name and the settings, hand its address to another process."""

import pickle
from pathlib import Path

import pytest

import tallymark.log
from tallymark.log import LogLost, Outgoing, address, open_reader, open_writer
from tallymark.settings import Settings, load


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(environment={}, flags={"data": str(tmp_path), "log.partitions": 3, "log.reserve_bytes": 0})


def test_the_events_have_the_partitions_of_the_settings_and_the_dead_letters_one(settings: Settings):
    for stream, partitions in (("events", 3), ("dead", 1)):
        writer = open_writer(settings, stream)
        assert writer.partitions == partitions
        writer.append([Outgoing(0, stream.encode(), 1)])
        reader = open_reader(settings, stream)
        assert reader.partitions == partitions
        assert [record.payload for record in reader.read(0, 0, 1)] == [stream.encode()]
        reader.close()
        writer.close()


def test_an_address_travels_and_does_not_depend_on_the_working_folder(settings: Settings, tmp_path: Path, monkeypatch):
    open_writer(settings, "events").close()
    monkeypatch.chdir(tmp_path.parent)
    settings.data = tmp_path.name
    sent = pickle.dumps(address(settings, "events"))
    monkeypatch.chdir("/")
    reader = pickle.loads(sent).open_reader()
    assert reader.partitions == 3
    reader.close()


def test_the_identity_is_that_of_the_log(settings: Settings, tmp_path: Path):
    open_writer(settings, "events").close()
    one, other = open_reader(settings, "events"), open_reader(settings, "events")
    assert one.identity == other.identity
    open_writer(settings, "dead").close()
    dead = open_reader(settings, "dead")
    assert dead.identity != one.identity
    for reader in (one, other, dead):
        reader.close()


def test_a_stream_that_is_not_there(settings: Settings):
    with pytest.raises(LogLost, match="there is no log"):
        open_reader(settings, "events")
    with pytest.raises(ValueError, match="there are `events` and `dead`"):
        open_writer(settings, "evnets")


def test_all_that_is_public_is_named_in_order():
    names = tallymark.log.__all__
    assert names == sorted(names, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(tallymark.log, name) for name in names)
