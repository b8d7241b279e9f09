"""Where messages go when they are sent: into one buffer, which is hashed tick by tick and handed on as bytes.

A tick's transcript is the digest before it, then each message with its topic, type, stamp and length. Recorders are
given transcripts; `Message` objects are created on access.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from microsim.messages.topics import DEFAULT_QOS, Qos
from microsim.messages.types import decode

Ends: TypeAlias = npt.NDArray[np.int64]  # [byte] of ticks that lie one behind the other
Send: TypeAlias = Callable[[int, bytes], None]  # stamp [ns], encoded message

DIGEST_BYTES = 32
STAMP_AND_LENGTH = struct.Struct("<qI")
_LENGTH = struct.Struct("<I")


def name_in_transcript(topic: str, type_name: str) -> bytes:
    return f"{topic}\0{type_name}\0".encode()


class Message:
    """One published message. `stamp_ns` is when it was measured, in simulated nanoseconds."""

    __slots__ = ("cdr", "stamp_ns", "topic", "type")

    def __init__(self, topic: str, type_name: str, stamp_ns: int, cdr: bytes) -> None:
        self.topic = topic
        self.type = type_name
        self.stamp_ns = stamp_ns
        self.cdr = cdr  # encapsulation header and little-endian CDR, as on the wire

    @property
    def message(self) -> Any:
        """Decoded at every access."""
        return decode(self.type, self.cdr)

    def __repr__(self) -> str:
        return f"Message({self.topic}, {self.type}, {self.stamp_ns / 1e9:.9f} s, {len(self.cdr)} bytes)"


def messages_in(transcript: bytes) -> Iterator[Message]:
    """The messages of a tick."""
    position, end = DIGEST_BYTES, len(transcript)
    while position < end:
        after_topic = transcript.index(0, position)
        after_type = transcript.index(0, after_topic + 1)
        topic, type_name = transcript[position:after_topic].decode(), transcript[after_topic + 1 : after_type].decode()
        stamp_ns, length = STAMP_AND_LENGTH.unpack_from(transcript, after_type + 1)
        start = after_type + 1 + STAMP_AND_LENGTH.size
        position = start + length
        yield Message(topic, type_name, stamp_ns, transcript[start:position])


def on_topic(messages: Sequence[Message], topic: str) -> Sequence[Message]:
    """Those on one topic; of what a step returned, only ticks that have it are taken apart."""
    if isinstance(messages, Messages):
        messages = messages.of_ticks_with(topic.encode() + b"\0")
    return [message for message in messages if message.topic == topic]


def entries_in(messages: bytes) -> Iterator[tuple[str, bytes]]:
    """Topic and all bytes of each message of a tick, without its digest."""
    position = 0
    while position < len(messages):
        after_topic = messages.index(0, position)
        head = messages.index(0, after_topic + 1) + 1
        end = head + STAMP_AND_LENGTH.size + STAMP_AND_LENGTH.unpack_from(messages, head)[1]
        yield messages[position:after_topic].decode(), messages[position:end]
        position = end


Place: TypeAlias = tuple[bytes, int, int]  # transcript, and where a message's bytes begin and end in it


class Transcripts:
    """Of some ticks, one behind the other; they are split on access."""

    __slots__ = ("_data", "ends")

    def __init__(self, data: bytes | memoryview, ends: Sequence[int]) -> None:
        self._data = data
        self.ends = ends  # [byte] of each tick

    def __len__(self) -> int:
        return len(self._data)

    @property
    def data(self) -> bytes:
        if not isinstance(self._data, bytes):
            self._data = bytes(self._data)
        return self._data

    def each(self) -> Iterator[bytes]:
        begin = 0
        for end in self.ends:
            yield bytes(self._data[begin:end])
            begin = end

    def note_latest(self, found: dict[bytes, Place]) -> None:
        """Write down where the last message of each topic is, by topic and type as `name_in_transcript` has them."""
        data, begin, head, length_of = self.data, 0, STAMP_AND_LENGTH.size, _LENGTH.unpack_from
        for end in self.ends:
            position = begin + DIGEST_BYTES
            while position < end:
                after = data.index(0, data.index(0, position) + 1) + 1
                start = after + head
                stop = start + length_of(data, start - _LENGTH.size)[0]
                found[data[position:after]] = data, start, stop
                position = stop
            begin = end


class Messages(Sequence[Message]):
    """What some ticks sent, in the order of sending. `Message` objects are made when first looked at."""

    def __init__(self, transcripts: Sequence[Transcripts]) -> None:
        self._transcripts = transcripts
        self._made: list[Message] | None = None

    def _list(self) -> list[Message]:
        if self._made is None:
            self._made = self.of_ticks_with(b"")
        return self._made

    def of_ticks_with(self, part: bytes) -> list[Message]:
        """The messages of ticks whose transcript has these bytes in it."""
        with_it = [some for some in self._transcripts if part in some.data]
        return [message for some in with_it for tick in some.each() if part in tick for message in messages_in(tick)]

    def __len__(self) -> int:
        return len(self._list())

    def __bool__(self) -> bool:
        return any(len(some) > DIGEST_BYTES * len(some.ends) for some in self._transcripts)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._list()[index]

    def __add__(self, other: Sequence[Message]) -> list[Message]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Message]) -> list[Message]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        """As a list of the same messages."""
        return isinstance(other, (Messages, list)) and self._list() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Messages({len(self)} of {sum(len(some.ends) for some in self._transcripts)} ticks)"


class Outbox:
    """Collects messages; their digest is chained: after each tick, sha256(digest before + the tick's messages).

    A chain, unlike one long hash, is 32 bytes at any tick: a snapshot can carry it.
    """

    def __init__(self, find_chain: Callable[[], Callable[[int, Ends], None] | None] = lambda: None) -> None:
        """`find_chain` gives `_chain_in_python`, quicker, of the buffer's address, or None.

        That leaves the digest behind the last tick. It is looked for when ticks are first closed together.
        """
        self._find_chain = find_chain
        self.digest = bytes(DIGEST_BYTES)
        self.topics: dict[str, tuple[str, Qos]] = {}  # every topic that may be sent on: its type and quality of service
        self.transcripts: list[Transcripts] = []  # of ticks whose messages are not yet handed to the caller
        self.sent = 0  # messages that were sent one by one
        self.position = DIGEST_BYTES  # in the buffer: where the next message goes
        self.alter: Callable[[Sequence[bytes]], Sequence[bytes]] | None = None  # the messages of ticks that end
        self._end: Ends = np.zeros(1, np.int64)  # of a tick
        self._use(np.empty(1 << 18, np.uint8))

    def _use(self, memory: npt.NDArray[np.uint8]) -> None:
        """Behind the buffer there is room for one more digest."""
        self.buffer, self.room = memory[:-DIGEST_BYTES], memory.size - DIGEST_BYTES
        self.address = int(memory.ctypes.data)  # kept: asking NumPy takes longer than a tick
        self._view = memory.data

    def make_room(self, size: int) -> None:
        """For so many further bytes."""
        if self.position + size > self.room:
            room = max(2 * self.room, self.position + size)
            larger: npt.NDArray[np.uint8] = np.empty(room + DIGEST_BYTES, np.uint8)
            larger[: self.position] = self.buffer[: self.position]
            self._use(larger)

    def sender(self, topic: str, type_name: str, qos: Qos = DEFAULT_QOS) -> Send:
        """A function that sends on a topic."""
        self.topics[topic] = (type_name, qos)
        name, pack = name_in_transcript(topic, type_name), STAMP_AND_LENGTH.pack

        def send(stamp_ns: int, cdr: bytes) -> None:
            head = name + pack(stamp_ns, len(cdr))
            self.make_room(len(head) + len(cdr))
            start = self.position + len(head)
            self._view[self.position : start] = head
            self.position = start + len(cdr)
            self._view[start : self.position] = cdr
            self.sent += 1

        return send

    def close_tick(self) -> Transcripts:
        """Ends a tick whose messages were sent one by one."""
        self._end[0] = self.position
        return self.close_ticks(self._end)

    def close_ticks(self, places: Ends) -> Transcripts:
        """Ends ticks that lie one behind the other in the buffer, each with room for a digest before it."""
        if self.alter is not None:
            places = self._altered(self.alter, places.tolist())
        ends: list[int] = places.tolist()
        view, last = self._view, ends[-1]
        chain = self._find_chain() if len(ends) > 1 else None
        if chain is None:
            self._chain_in_python(ends)
        else:
            view[:DIGEST_BYTES] = self.digest
            chain(self.address, places)
            self.digest = bytes(view[last : last + DIGEST_BYTES])
        self.position = DIGEST_BYTES
        if 2 * last < self.room:
            closed = Transcripts(bytes(view[:last]), ends)
        else:  # handed on as it is: copying images takes as long as drawing them
            closed = Transcripts(view[:last], ends)
            self._use(np.empty(self.room + DIGEST_BYTES, np.uint8))
        self.transcripts.append(closed)
        return closed

    def _chain_in_python(self, ends: Sequence[int]) -> None:
        """Each tick begins with the digest of the one before."""
        view, digest, begin = self._view, self.digest, 0
        for end in ends:
            view[begin : begin + DIGEST_BYTES] = digest
            digest = sha256(view[begin:end]).digest()
            begin = end
        self.digest = digest

    def _altered(self, alter: Callable[[Sequence[bytes]], Sequence[bytes]], ends: Sequence[int]) -> Ends:
        """Write the ticks again, as they were altered; gives where each ends."""
        ticks = [bytes(self._view[a + DIGEST_BYTES : b]) for a, b in zip((0, *ends), ends, strict=False)]
        altered = alter(ticks)
        self.sent += sum(sum(1 for _ in entries_in(each)) for each in altered)
        self.sent -= sum(sum(1 for _ in entries_in(each)) for each in ticks)
        self.position, places = 0, []
        for tick in altered:
            self.make_room(DIGEST_BYTES + len(tick))
            start, self.position = self.position + DIGEST_BYTES, self.position + DIGEST_BYTES + len(tick)
            self._view[start : self.position] = tick
            places.append(self.position)
        return np.array(places, np.int64)

    def take(self) -> Messages:
        """Everything sent since the last call."""
        taken, self.transcripts = self.transcripts, []
        return Messages(taken)
