"""Runs the tests on a busy machine: `python -m tests.loaded [PROCESSES] [pytest's arguments]`, or `make test-loaded`.

Beside the tests, as many processes as named (twice the cores by default) do nothing but count. So every test gets a
third of a core, and is interrupted where it would not be on a quiet machine. A test that waits for a time where it
could wait for an event fails here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_COUNT = """
import os, sys
while os.getppid() == int(sys.argv[1]):  # ends with the tests, also if they are killed
    for _ in range(10_000_000):
        pass
"""


@contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """So many processes that count; their ids."""
    command = [sys.executable, "-S", "-c", _COUNT, str(os.getpid())]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield [each.pid for each in processes]
    finally:
        for each in processes:
            each.kill()
            each.wait()


def main(arguments: Sequence[str]) -> int:
    given = arguments[:1] if arguments[:1] and arguments[0].isdecimal() else []
    count = int(given[0]) if given else 2 * (os.cpu_count() or 1)
    with busy(count):
        print(f"beside {count} busy processes", flush=True)
        return subprocess.run([sys.executable, "-m", "pytest", *arguments[len(given) :]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
