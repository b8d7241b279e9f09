"""A thread that writes, behind a queue that is bounded: the tick never waits for a disk unless it is told to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from microsim.recording.entries import Block


class Disk:
    """Hands blocks to `write` in order. After an error nothing more is written, and `error` says why."""

    def __init__(self, write: Callable[[Block], None], limit: int) -> None:
        self.error: Exception | None = None
        self.waiting_bytes = 0
        self._write = write
        self._limit = limit
        self._queue: deque[Block] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="microsim-recorder", daemon=True)
        self._thread.start()

    def put(self, block: Block, wait: bool) -> bool:
        """False when the queue is full and must not be waited for, or when the disk has failed."""
        with self._changed:
            while self._is_full(block) and self.error is None:
                if not wait:
                    return False
                self._changed.wait()
            if self.error is not None:
                return False
            self._queue.append(block)
            self.waiting_bytes += block.size
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _is_full(self, block: Block) -> bool:
        return bool(self._queue) and self.waiting_bytes + block.size > self._limit

    def _work(self) -> None:
        while (block := self._next()) is not None:
            try:
                self._write(block)
            except Exception as error:  # whatever it is, the run must hear of it
                with self._changed:
                    self.error = error
                    self._queue.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._queue.popleft()
                self.waiting_bytes -= block.size
                self._changed.notify_all()

    def _next(self) -> Block | None:
        """The first of the queue, which stays there while it is written."""
        with self._changed:
            while not self._queue and not self._is_closing:
                self._changed.wait()
            return self._queue[0] if self._queue else None


class NoQueue(Disk):
    """Writes at once, for what is no disk."""

    def __init__(self, write: Callable[[Block], None]) -> None:
        self.error = None
        self.waiting_bytes = 0
        self._write = write

    def put(self, block: Block, wait: bool) -> bool:
        try:
            self._write(block)
        except Exception as error:  # as above
            self.error = error
        return self.error is None

    def close(self) -> None:
        pass
