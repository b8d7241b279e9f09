"""How work is shared that does not depend on who does it: its parts, and what runs them. No thread starts here."""

from collections.abc import Callable
from typing import Protocol


class Workers(Protocol):
    """Runs `task(0)` to `task(count - 1)`, which do not depend on each other, in any order."""

    count: int  # how many run at a time

    def run(self, task: Callable[[int, int], None], count: int) -> None:
        """`task(number, worker)`; worker < self.count is that of the thread it runs on."""


class OneWorker:
    count = 1

    def run(self, task: Callable[[int, int], None], count: int) -> None:
        for number in range(count):
            task(number, 0)


def parts_of(count: int, parts: int) -> list[tuple[int, int]]:
    """Begin and end of each."""
    return [(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
