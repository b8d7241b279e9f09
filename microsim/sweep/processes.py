"""Workers as processes of this machine, each with a pipe to it and a pipe from it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from microsim.processes import kill, obituary
from microsim.sweep.crew import CrewError, Done, Lost, Task
from microsim.sweep.flying import Failure, Order

_STARTS = 3  # workers in a row that may die before they are ready
_LAST_WORDS = 4000  # bytes
_PATIENCE_S = 5.0
_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Worker:
    """One process. Lines of JSON: the order and lists of tasks in, a line for each result out."""

    def __init__(self, order: bytes, events: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
        self.pending: deque[int] = deque()  # runs, in the order in which it takes them
        self.is_ready = self.is_late = False
        self.since = time.monotonic()  # when it began with what it is doing
        self.words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the worker
        self.process = subprocess.Popen(
            [sys.executable, "-m", "microsim.sweep.worker"],
            env=_variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            start_new_session=True,  # Ctrl-C is for us; we end them
        )
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()
        self.write(order)

    def _listen(self, events: queue.SimpleQueue[tuple[Worker, bytes]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put((self, line))
        events.put((self, b""))

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # it is gone: its end is an event
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def give(self, tasks: Sequence[Task]) -> None:
        if not self.pending:
            self.since = time.monotonic()
        self.pending.extend(run for run, _, _ in tasks)
        self.write(json.dumps(tasks).encode())

    def last_words(self) -> str:
        self.words.seek(0, os.SEEK_END)
        self.words.seek(max(self.words.tell() - _LAST_WORDS, 0))
        return self.words.read().decode(errors="replace")

    def last_words_said(self) -> None:
        """Its pipe is closed; what it still has to say shall not be cut off."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_PATIENCE_S)

    def end(self) -> int:
        kill(self.process)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was still to be written to it
                    stream.close()
        return self.process.wait()


def _variables() -> dict[str, str]:
    """One thread each, and the same MicroSim as here."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    return {**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": path}


class LocalCrew:
    """As many processes as asked for; one that dies, or takes longer than `timeout_s` for a run, is replaced."""

    def __init__(self, order: Order, jobs: int, timeout_s: float) -> None:
        self.size, self.timeout_s = jobs, timeout_s
        self._order = json.dumps(order.to_plain()).encode()
        self._events: queue.SimpleQueue[tuple[Worker, bytes]] = queue.SimpleQueue()
        self._bad_starts = 0
        self._workers: list[Worker] = []
        try:
            self._workers += [self._hired() for _ in range(jobs)]
        except BaseException:
            self.dismiss()
            raise

    def _hired(self) -> Worker:
        try:
            return Worker(self._order, self._events)
        except OSError as error:
            raise CrewError(f"a process could not be started: {error.strerror or error}") from None

    @property
    def workers(self) -> tuple[Worker, ...]:
        return tuple(self._workers)

    def is_ready(self) -> bool:
        """Whether all have started."""
        return all(worker.is_ready for worker in self._workers)

    def has_room(self) -> bool:
        """A worker may have one run left when it gets more: it need not wait for us."""
        return len(self._least_busy().pending) <= 1

    def give(self, tasks: Sequence[Task]) -> None:
        self._least_busy().give(tasks)

    def _least_busy(self) -> Worker:
        return min(self._workers, key=lambda worker: len(worker.pending))

    def wait(self, seconds: float) -> Iterable[Done | Lost]:
        found: list[tuple[Worker, bytes]] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=seconds))
            while True:
                found.append(self._events.get_nowait())
        for worker, line in found:
            event = self._gone(worker) if not line else self._heard(worker, line)
            if event is not None:
                yield event
        self._end_late()

    def _heard(self, worker: Worker, line: bytes) -> Done | None:
        answer = json.loads(line)
        worker.since = time.monotonic()
        if answer == "ready":
            worker.is_ready, self._bad_starts = True, 0
            return None
        run, values, error, is_final = answer
        worker.pending.remove(run)
        return Done(run, Failure(error, is_final) if error else values)

    def _gone(self, worker: Worker) -> Lost | None:
        if worker not in self._workers:
            return None
        self._workers.remove(worker)
        worker.last_words_said()
        code = worker.end()
        why = obituary(code, worker.last_words())
        if worker.is_late:
            why = f"no result in {self.timeout_s:g} s; give it more with --timeout"
        if not worker.is_ready:
            self._bad_starts += 1
            if self._bad_starts >= _STARTS:
                raise CrewError(f"workers do not start: {why}")
        self._workers.append(self._hired())
        runs = list(worker.pending)
        begun = 1 if worker.is_ready else 0
        return Lost(runs[:begun], runs[begun:], why)

    def _end_late(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.pending and worker.is_ready and not worker.is_late and now - worker.since > self.timeout_s:
                worker.is_late = True
                kill(worker.process)

    def dismiss(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            kill(worker.process)
        for worker in workers:
            worker.end()
