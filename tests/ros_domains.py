"""ROS domains for tests: one is used by one test process at a time, on this machine."""

from __future__ import annotations

import atexit
import contextlib
import random
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: the ports alone keep runs apart
    fcntl = None  # type: ignore[assignment]

DOMAINS = range(1, 101)  # what Linux' ephemeral ports leave free


@contextlib.contextmanager
def free_domain() -> Iterator[int]:
    for domain in random.SystemRandom().sample(DOMAINS, len(DOMAINS)):
        with (Path(tempfile.gettempdir()) / f"microsim-domain-{domain}.lock").open("w") as lock:
            try:
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _check_quiet(domain)
            except OSError:
                continue
            yield domain
            return
    raise RuntimeError("all ROS domains are in use by other tests")


@cache
def own_domain(purpose: str) -> str:
    """One that this process keeps until it ends."""
    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    return str(kept.enter_context(free_domain()))


def _check_quiet(domain: int) -> None:
    """Raises OSError where a first or second participant, which may know nothing of our locks, is there already."""
    for offset in (10, 12):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
            port.bind(("0.0.0.0", 7400 + 250 * domain + offset))
