"""Memory that a run frees is kept for its next step."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_KEPT_BYTES, _LARGE_BYTES = 64 << 20, 4 << 20


@cache
def keep_freed_memory() -> None:
    """Messages are freed at once, megabytes of them. glibc would return that memory to the system after each step.

    Getting it back, page by page, took a quarter of the time of runs with cameras. At most 64 MiB are kept. Without
    glibc nothing changes.
    """
    if sys.platform != "linux":
        return
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
