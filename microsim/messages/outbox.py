"""Where messages go when they are sent: into the list a caller gets, and into the digest.

What goes into the digest is a tick's transcript: the digest before it, then each message with its topic, type, stamp
and length. Recorders are given it too: all of a tick in one piece.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias

from microsim.messages import decode
from microsim.messages.topics import DEFAULT_QOS, Qos

Send: TypeAlias = Callable[[int, bytes], None]  # stamp [ns], encoded message

DIGEST_BYTES = 32
STAMP_AND_LENGTH = struct.Struct("<qI")


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
        """Decoded anew at every access."""
        return decode(self.type, self.cdr)

    def __repr__(self) -> str:
        return f"Message({self.topic}, {self.type}, {self.stamp_ns / 1e9:.9f} s, {len(self.cdr)} bytes)"


class Outbox:
    """Collects messages; their digest is chained: after each tick, sha256(digest before + the tick's messages).

    A chain, unlike one long hash, is 32 bytes at any tick: a snapshot can carry it.
    """

    def __init__(self) -> None:
        self.digest = bytes(DIGEST_BYTES)
        self.messages: list[Message] = []  # sent, not yet handed to the caller
        self.topics: dict[str, tuple[str, Qos]] = {}  # every topic that may be sent on: its type and quality of service
        self._parts = [b""]  # of this tick's transcript; the first is for the digest

    def sender(self, topic: str, type_name: str, qos: Qos = DEFAULT_QOS) -> Send:
        """A function that sends on a topic."""
        self.topics[topic] = (type_name, qos)
        name = name_in_transcript(topic, type_name)
        parts, pack = self._parts, STAMP_AND_LENGTH.pack

        def send(stamp_ns: int, cdr: bytes) -> None:
            self.messages.append(Message(topic, type_name, stamp_ns, cdr))
            parts.extend((name, pack(stamp_ns, len(cdr)), cdr))

        return send

    def close_tick(self) -> bytes:
        """Gives the tick's transcript."""
        parts = self._parts
        parts[0] = self.digest
        transcript = b"".join(parts)
        self.digest = sha256(transcript).digest()
        del parts[1:]
        return transcript

    def take(self) -> list[Message]:
        """Everything sent since the last call."""
        messages, self.messages = self.messages, []
        return messages
