"""Zstandard: of Python from 3.14 on, before that of the package that carries it back."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd as _zstd
else:
    from backports import zstd as _zstd

_module: Any = _zstd


def packed(data: bytes) -> bytes:
    return bytes(_module.compress(data))


def unpacked(data: bytes, most: int) -> bytes | None:
    """At most so many bytes; None: it is not Zstandard."""
    try:
        return bytes(_module.ZstdDecompressor().decompress(data, most))
    except (_module.ZstdError, EOFError):
        return None
