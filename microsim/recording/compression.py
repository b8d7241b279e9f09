"""Zstandard, from the package that `rosbags` brings; part of Python from 3.14 on."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from microsim.recording.entries import BagError

LARGEST = 2**31  # [byte] a chunk that claims more is damaged


@cache
def zstd() -> Any:
    from importlib import import_module

    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def decompress(data: bytes, name: str, size: int) -> bytes:
    """`size` bytes; BagError when they are not what comes out."""
    if size > LARGEST:
        raise BagError(f"a chunk of {size:,} bytes")
    if not name:
        result = data
    elif name == "zstd":
        result = _zstd(data, size)
    else:
        raise BagError(f"unknown compression {name!r}")
    if len(result) != size:
        raise BagError("a chunk that has not the size it claims")
    return result


def _zstd(data: bytes, size: int) -> bytes:
    library = zstd()
    try:
        found: bytes = library.ZstdDecompressor().decompress(data, max_length=size + 1)
    except (library.ZstdError, EOFError, ValueError) as error:
        raise BagError(f"a chunk cannot be decompressed: {error}") from None
    return found
