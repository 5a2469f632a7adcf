"""`GET /tallymark.js`: the script with which a page in a browser sends events."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

PATH = "/tallymark.js"


@dataclass(frozen=True, slots=True)
class Snippet:
    content: bytes

    @property
    def headers(self) -> list[tuple[str, str]]:
        """It is no secret: any page may load it; which pages may send events is another question."""
        return [
            ("content-type", "text/javascript; charset=utf-8"),
            ("cache-control", "public, max-age=3600"),
            ("etag", f'"{hashlib.sha256(self.content).hexdigest()[:20]}"'),
            ("access-control-allow-origin", "*"),
            ("cross-origin-resource-policy", "cross-origin"),
            ("x-content-type-options", "nosniff"),
        ]

    def is_known(self, if_none_match: str | None) -> bool:
        return if_none_match is not None and dict(self.headers)["etag"] in if_none_match


@cache
def snippet() -> Snippet:
    return Snippet(resources.files("tallymark.collector").joinpath("tallymark.js").read_bytes())
