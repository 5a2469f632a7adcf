"""Compressed bodies: zstd if it is installed, else gzip."""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Literal

Compress = Literal["auto", "gzip", "zstd", "none"]
CHOICES: tuple[Compress, ...] = ("auto", "gzip", "zstd", "none")

SMALLEST_BYTES = 512
"""smaller bodies are not worth compressing: they fit in one packet either way"""
ZSTD_LEVEL, GZIP_LEVEL = 1, 1
_GZIP_WINDOW = zlib.MAX_WBITS | 16

Compressor = Callable[[bytes], bytes]


def compressor(choice: Compress) -> tuple[str, Compressor] | None:
    """The content encoding and its function, for one thread at a time; None for no compression."""
    if choice in ("auto", "zstd") and (zstd := _zstd()) is not None:
        return "zstd", zstd
    if choice == "zstd":
        raise ValueError("compress='zstd' needs the package zstandard (or Python 3.14); install it or use 'auto'")
    return None if choice == "none" else ("gzip", _gzip)


def _zstd() -> Compressor | None:
    # By name, because neither module is installed everywhere.
    try:
        made: Compressor = import_module("zstandard").ZstdCompressor(level=ZSTD_LEVEL).compress
        return made
    except ImportError:
        pass
    try:
        compress = import_module("compression.zstd").compress
    except ImportError:
        return None
    return lambda body: compress(body, ZSTD_LEVEL)


def _gzip(body: bytes) -> bytes:
    stream = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(body) + stream.flush()
