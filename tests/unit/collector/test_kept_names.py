"""The file of event names: whatever is in it, the collector starts; what changes is in it soon."""

import asyncio
from pathlib import Path

import pytest

from tallymark.collector import kept_names
from tallymark.events.tenant_names import TenantNames


def known(path: Path) -> set[str]:
    found = kept_names.load(path)
    return set() if found is None else {*found.recent, *found.older}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"recent": 1}', b'{"recent":["a"],"older":[],"age_s":null}']
)
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "collector.names"
    assert kept_names.load(path) is None
    path.write_bytes(content)
    assert kept_names.load(path) is None


def test_new_names_are_saved_while_it_runs_and_the_rest_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_names, "SAVE_INTERVAL_S", 0.001)
    path, names = tmp_path / "run" / "collector.names", TenantNames(10)

    async def run() -> None:
        done = asyncio.Event()
        saving = asyncio.create_task(kept_names.keep_saved(path, names, until=done))
        names.of("main").admit({"a"})
        async with asyncio.timeout(20):
            while known(path) != {"a"}:
                await asyncio.sleep(0)
        monkeypatch.setattr(kept_names, "SAVE_INTERVAL_S", 3_600.0)
        names.of("main").admit({"b"})
        done.set()
        await saving

    asyncio.run(run())
    assert known(path) == {"a", "b"}


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    names = TenantNames(10)
    names.of("main").admit({"a"})
    kept_names.save(tmp_path / "run" / "collector.names", names)
    assert "cannot write" in caplog.text
