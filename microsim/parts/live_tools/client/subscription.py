"""Messages of a topic as an iterator, for asyncio, or for a callback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.cdr_endpoints import CdrReader
from microsim.parts.ros2.transport.graph_view import GraphEndpoint

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode


class Received(NamedTuple):
    """An encoded message, and when it arrived."""

    cdr: bytes
    time_ns: int  # monotonic


def adapted(writers: list[GraphEndpoint], depth: int) -> Qos:
    """The strongest quality of service that all of them offer."""
    return Qos(depth, all(each.qos.reliable for each in writers), all(each.qos.latched for each in writers))


class Subscription:
    """`for message in subscription`, `async for`, `get(timeout)` or `latest()`; `close` ends it.

    At most `depth` messages wait to be taken; when more arrive, the oldest are lost and counted in `dropped`.
    """

    def __init__(
        self, node: ClientNode, topic: str, type_name: str, callback: Callable[[Any], Any] | None,
        qos: Qos | None, depth: int, raw: bool,
    ) -> None:  # fmt: skip
        self.topic, self.type = topic, type_name
        self.dropped = 0  # because they were not taken in time
        self.refused = ""  # why the last message that could not be decoded was refused
        self._node, self._callback, self._depth, self._raw = node, callback, depth, raw
        self.demanded = qos  # None: adapts to the publishers
        self._qos: Qos | None = None  # of the reader
        self._reader: CdrReader | None = None
        self._queue: deque[Received] = deque()
        self._last: Received | None = None
        self._arrived = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._is_open = True

    # ---- on the node's thread

    def adapt(self) -> None:
        """Make the reader once there is a publisher; make it again when one appears that it could not hear."""
        writers = [each for each in self._node.view.on(self.topic, is_writer=True) if each.type == self.type]
        if not writers or not self._is_open:
            return
        wanted = self.demanded or adapted(writers, self._depth)
        if self._qos is not None and self._qos.reliable <= wanted.reliable and self._qos.latched <= wanted.latched:
            return
        if self._reader is not None:
            self._node.graph.drop(self._reader)
        self._qos = wanted
        self._reader = self._node.graph.reader(f"rt{self.topic}", self.type, wanted, self._take)

    def _take(self) -> None:
        if self._reader is None:
            return
        taken, now = self._reader.take(), time.monotonic_ns()
        for cdr, _ in taken:
            self._deliver(Received(cdr, now))

    def _deliver(self, received: Received) -> None:
        if self._callback is not None:
            message = self._decoded(received)
            if message is not None:
                self._node.guarded(self._callback, message)
            return
        with self._arrived:
            self._last = received
            self._queue.append(received)
            if len(self._queue) > self._depth:
                self._queue.popleft()
                self.dropped += 1
            self._tell()

    def _tell(self) -> None:
        self._arrived.notify_all()
        waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def _decoded(self, received: Received) -> Any:
        """None: not a message of this type."""
        if self._raw:
            return received
        try:
            return wire.decode_checked(self.type, received.cdr)
        except wire.WireError as error:
            self.refused = str(error)
            return None

    # ---- for users

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        message = self.wait(None)
        if message is None:
            raise StopIteration
        return message

    def get(self, timeout: float | None = 5.0) -> Any:
        """The next message; TimeoutError says why there is none."""
        message = self.wait(timeout)
        if message is None:
            raise TimeoutError(f"nothing arrived on {self.topic} within {timeout:g} s: {'; '.join(self.why_silent())}")
        return message

    def latest(self) -> Any:
        """The newest message that has arrived, or None; does not wait and takes nothing."""
        return self._decoded(self._last) if self._last is not None else None

    def why_silent(self) -> list[str]:
        """Reasons, as sentences."""
        if self.refused:
            return [f"messages cannot be decoded: {self.refused}"]
        return self._node.why_silent(self)

    def wait(self, timeout: float | None) -> Any:
        """The next message; None: there was none within that time, or the subscription has ended."""
        self._node.forbid_waiting()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._arrived:
                while not self._queue and self._is_open:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        return None
                    self._arrived.wait(left)
                if not self._queue:
                    return None
                received = self._queue.popleft()
            message = self._decoded(received)
            if message is not None:
                return message

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Any:
        while True:
            event = asyncio.Event()
            with self._arrived:
                received = self._queue.popleft() if self._queue else None
                if received is None:
                    if not self._is_open:
                        raise StopAsyncIteration
                    self._waiting.append((asyncio.get_running_loop(), event))
            if received is None:
                await event.wait()
            elif (message := self._decoded(received)) is not None:
                return message

    def close(self) -> None:
        self._node.end_subscription(self)

    def end(self) -> None:
        """On the node's thread."""
        if self._reader is not None:
            self._node.graph.drop(self._reader)
            self._reader = None
        with self._arrived:
            self._is_open = False
            self._tell()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
