"""The files of the dashboard: they are ours or vouched for, few and small, and need nothing from elsewhere."""

import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest

from tallymark import dashboard
from tallymark.tenants import is_page

STATIC = Path(str(resources.files("tallymark.dashboard").joinpath("static")))
VENDOR = STATIC / "vendor"
MOST_BYTES = 300_000
OURS = sorted(path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents)


def test_what_is_not_ours_is_what_its_authors_published() -> None:
    sums = dict(reversed(line.split()) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("uPlot*")}
    assert found == sums
    assert set(found) == {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS"}
    assert "MIT License" in (VENDOR / "uPlot.LICENSE").read_text()


def test_the_whole_dashboard_is_small() -> None:
    files = {id(file): len(file.content) for file in dashboard.files().values()}
    assert 100_000 < sum(files.values()) < MOST_BYTES


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_our_files_need_nothing_from_elsewhere_and_hold_nothing_inline(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not set(re.findall(r"https?://[^\s\"'<>)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert " style=" not in text
    assert "<script>" not in text


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix == ".js"], ids=lambda path: path.name)
def test_scripts_build_elements_from_text_only(path: Path) -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc"
    assert not re.findall(unsafe, path.read_text(encoding="utf-8"))


def test_the_server_and_the_page_know_the_same_paths() -> None:
    router = (STATIC / "router.js").read_text(encoding="utf-8")
    patterns = re.findall(r"pattern: /\^(\S+?)\$/, at:", router)
    known = [each.replace("\\/", "/").replace("([^/]+)", "{name}") for each in patterns]
    assert known == list(dashboard.PAGES)


def test_every_import_and_preload_is_a_file() -> None:
    served = dashboard.files()
    for path in OURS:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'(?:from|import) "(\.[^"]+)"', text):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"
        for name in re.findall(r'(?:href|src)="(/static/[^"]+)"', text):
            assert name in served, f"{path.name} names {name}"


@pytest.mark.parametrize("path", ["/", "/meters", "/meters/views", "/new-meter", "/live", "/static/app.js"])
def test_a_page_is_everybodys_whatever_tenant_it_names(path: str) -> None:
    assert is_page(path)


@pytest.mark.parametrize("path", ["/v1/meters", "/v1/status", "/metrics", "/v1", "*", "/docs/errors"])
def test_an_answer_belongs_to_a_tenant(path: str) -> None:
    assert not is_page(path)
