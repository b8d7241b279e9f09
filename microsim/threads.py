"""Threads that share long kernels, which release the GIL and write to places of their own: results are the same."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from microsim.processes import usable_cores


def usual_threads() -> int:
    """As many as this process may use cores, at most OMP_NUM_THREADS: that is 1 in the processes of a sweep."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(usable_cores(), int(limit)) if limit.isdecimal() and int(limit) > 0 else usable_cores()


class Threads:
    """The calling thread and `count - 1` others, started when first needed; 0: the usual number."""

    def __init__(self, count: int = 0) -> None:
        self.count = count if count > 0 else usual_threads()
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
            self._pool = ThreadPoolExecutor(self.count - 1, thread_name_prefix="microsim")
            self._owner = os.getpid()
        return self._pool
