"""The page: static files without a build step, and how they are served."""

import hashlib
from dataclasses import dataclass
from importlib import resources

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
    """Path -> file; the page itself is at `/`."""
    found = {}
    for entry in resources.files(__name__).joinpath("static").iterdir():
        kind = KINDS.get(entry.name.rpartition(".")[2])
        if entry.is_file() and kind:
            path = "/" if entry.name == "index.html" else f"/static/{entry.name}"
            found[path] = File(entry.read_bytes(), kind)
    return dict(sorted(found.items()))
