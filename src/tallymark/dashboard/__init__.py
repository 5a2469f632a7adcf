"""The page: static files without a build step, and how they are served."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing from elsewhere, nothing inline: a page that shows other people's labels must not run them.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


# What the page shows by itself: each of these paths is answered with index.html. static/router.js has the same list.
PAGES = (
    "/",
    "/meters",
    "/meters/{name}",
    "/new-meter",
    "/ask",
    "/boards",
    "/boards/{name}",
    "/tables",
    "/tables/{name}",
    "/dead-letters",
    "/live",
)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the page with the headers it is served under."""

    content: bytes
    kind: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'

    @property
    def headers(self) -> list[tuple[str, str]]:
        """`no-cache` is: ask each time whether it changed. The page then never runs with last week's script."""
        return [
            ("content-type", self.kind),
            ("cache-control", "no-cache"),
            ("etag", self.etag),
            ("content-security-policy", POLICY),
            ("referrer-policy", "no-referrer"),
        ]


def files() -> dict[str, File]:
    """Path -> file; each of `PAGES` is the same file."""
    static = resources.files(__name__).joinpath("static")
    found = dict(_files(static, "/static"))
    page = found.pop("/static/index.html")
    return {**dict.fromkeys(PAGES, page), **dict(sorted(found.items()))}


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, File]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif kind := KINDS.get(entry.name.rpartition(".")[2]):
            yield f"{path}/{entry.name}", File(entry.read_bytes(), kind)
