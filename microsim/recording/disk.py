"""A thread that writes, behind a queue that is bounded: the tick never waits for a disk unless it is told to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from microsim.recording.assembly import Portion


class Disk:
    """Hands portions to `write` in order. After an error nothing more is written, and `error` says why."""

    def __init__(self, write: Callable[[Portion], None], limit: int) -> None:
        self.error: Exception | None = None
        self.waiting_bytes = 0
        self._write = write
        self._limit = limit
        self._queue: deque[Portion] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="microsim-recorder", daemon=True)
        self._thread.start()

    def put(self, portion: Portion, wait: bool) -> bool:
        """False when the queue is full and must not be waited for, or when the disk has failed."""
        with self._changed:
            while self._is_full(portion) and self.error is None:
                if not wait:
                    return False
                self._changed.wait()
            if self.error is not None:
                return False
            self._queue.append(portion)
            self.waiting_bytes += portion.size
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """Wait until everything is written."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _is_full(self, portion: Portion) -> bool:
        return bool(self._queue) and self.waiting_bytes + portion.size > self._limit

    def _work(self) -> None:
        while (portion := self._next()) is not None:
            try:
                self._write(portion)
            except Exception as error:  # whatever it is, the run must hear of it
                with self._changed:
                    self.error = error
                    self._queue.clear()
                    self._changed.notify_all()
                return
            with self._changed:
                self._queue.popleft()
                self.waiting_bytes -= portion.size
                self._changed.notify_all()

    def _next(self) -> Portion | None:
        """The first of the queue, which stays there while it is written."""
        with self._changed:
            while not self._queue and not self._is_closing:
                self._changed.wait()
            return self._queue[0] if self._queue else None
