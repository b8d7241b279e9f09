"""Threads that share the tiles of a frame. The kernels release the GIL, and write to places of their own."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Threads:
    """`Workers` of the rasteriser: the calling thread and `count - 1` others, started when first needed."""

    def __init__(self, count: int) -> None:
        self.count = max(1, count)
        self._pool: ThreadPoolExecutor | None = None
        self._owner = 0

    def run(self, task: Callable[[int, int], None], count: int) -> None:
        numbers = itertools.count()

        def work(worker: int) -> None:
            while (number := next(numbers)) < count:
                task(number, worker)

        helpers = min(self.count, count) - 1
        waiting: list[Future[None]] = []
        if helpers > 0:
            pool = self._threads()
            waiting = [pool.submit(work, worker) for worker in range(1, helpers + 1)]
        try:
            work(0)
        finally:
            for future in waiting:
                future.result()

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None or self._owner != os.getpid():  # threads do not survive a fork
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="microsim-splat")
            self._owner = os.getpid()
        return self._pool


def available() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
