"""Participants of Fast DDS, their endpoints, and the state of the reliable streams to and from them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from microsim.ros2.transport.rtps import packets
from microsim.ros2.transport.rtps.packets import Address, Parameters

MOST_PEERS = 256
MOST_ENDPOINTS = 4096  # of one peer
_MOST_ADDRESSES = 4
_MOST_AHEAD = 4096  # numbers beyond the first missing one that are remembered
_MOST_BYTES = 16 * 2**20  # of a sample in fragments

_BUILTIN = 0xC0  # in the last byte of a GUID: an endpoint for discovery itself
_IDLE = 0x800000  # in the number of an endpoint


class Arrivals:
    """Of a remote writer. Each sample is taken once, in any order: requests need none."""

    def __init__(self) -> None:
        self.next = 1  # all before it have arrived or never will
        self.acknowledgements = 0
        self._later: set[int] = set()
        self._pieces: dict[int, tuple[bytearray, set[int]]] = {}  # sample -> bytes, fragments that are there

    def take(self, number: int) -> bool:
        """Whether it is new."""
        if number < self.next or number in self._later or number > self.next + _MOST_AHEAD:
            return False
        self._settle((number,))
        return True

    def take_piece(self, number: int, first: int, size: int, total: int, data: bytes) -> bytes | None:
        """A fragment; the whole sample with the last of them."""
        count = -(-total // size) if size else 0
        if number < self.next or number in self._later or total > _MOST_BYTES or not 1 <= first <= count:
            return None
        if number not in self._pieces and len(self._pieces) >= 4:  # an older one will be sent again as a whole
            self._pieces.pop(min(self._pieces))
        whole, there = self._pieces.setdefault(number, (bytearray(total), set()))
        if len(whole) != total:
            return None
        start = (first - 1) * size
        data = data[: total - start]
        whole[start : start + len(data)] = data
        there.update(range(first, first + -(-len(data) // size)))
        if len(there) < count or not self.take(number):
            return None
        del self._pieces[number]
        return bytes(whole)

    def hear(self, first: int, last: int) -> list[int]:
        """A heartbeat: what is still missing."""
        if first > self.next:
            self._later = {number for number in self._later if number >= first}
            self.next = first
            self._settle(())
        return [number for number in range(self.next, min(last, self.next + 255) + 1) if number not in self._later]

    def skip(self, start: int, base: int, listed: Iterable[int]) -> None:
        """A gap."""
        if start <= self.next < base:
            self.next = base
        self._settle(number for number in listed if self.next <= number <= self.next + _MOST_AHEAD)

    def _settle(self, numbers: Iterable[int]) -> None:
        self._later.update(numbers)
        while self.next in self._later:
            self._later.remove(self.next)
            self.next += 1


class Deliveries:
    """For a remote reader: what it has not acknowledged yet. Numbers are counted for each reader alone."""

    FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 3.0

    def __init__(self, limit: int = 1000) -> None:
        self.last = 0
        self.waiting: dict[int, bytes] = {}  # submessages by number
        self.heartbeats = 0
        self.due_s = 0.0  # when to remind the reader
        self._pause_s = self.FIRST_PAUSE_S
        self._limit = limit

    @property
    def first(self) -> int:
        return min(self.waiting, default=self.last + 1)

    def add(self, now: float) -> int:
        """The number of the next one, which is to be put into `waiting`."""
        self.last += 1
        if len(self.waiting) >= self._limit:
            del self.waiting[min(self.waiting)]
        self._pause_s = self.FIRST_PAUSE_S
        self.due_s = now + self._pause_s
        return self.last

    def acknowledge(self, base: int, missing: Iterable[int], now: float) -> list[bytes]:
        """Forget what has arrived; gives what must be sent again."""
        for number in [number for number in self.waiting if number < base]:
            del self.waiting[number]
        self._pause_s = self.FIRST_PAUSE_S
        self.due_s = now + self._pause_s
        return [self.waiting[number] for number in missing if number in self.waiting]

    def is_due(self, now: float) -> bool:
        """Time to ask what has arrived; less and less often."""
        if not self.waiting or now < self.due_s:
            return False
        self._pause_s = min(2.0 * self._pause_s, self.LONGEST_PAUSE_S)
        self.due_s = now + self._pause_s
        return True


@dataclass(frozen=True)
class OfferedService:
    """One of ours, with its endpoints."""

    number: int
    request: tuple[str, str]  # topic and type, as DDS names them
    reply: tuple[str, str]
    user_data: bytes

    @property
    def reader(self) -> bytes:
        return self.number.to_bytes(3, "big") + b"\x04"

    @property
    def writer(self) -> bytes:
        return self.number.to_bytes(3, "big") + b"\x03"

    @property
    def idle_writer(self) -> bytes:
        return (self.number | _IDLE).to_bytes(3, "big") + b"\x03"


@dataclass(frozen=True)
class Endpoint:
    topic: str
    type_name: str
    addresses: tuple[Address, ...]  # empty: those of the participant

    @property
    def names(self) -> tuple[str, str]:
        return self.topic, self.type_name


@dataclass
class Peer:
    prefix: bytes
    discovery: tuple[Address, ...]  # where it receives announcements
    user: tuple[Address, ...]  # where it receives data
    expires_s: float = 0.0
    endpoints: dict[bytes, Endpoint] = field(default_factory=dict)  # by GUID
    arrivals: dict[bytes, Arrivals] = field(default_factory=dict)  # by its writer's GUID
    deliveries: dict[tuple[bytes, bytes], Deliveries] = field(default_factory=dict)  # by our writer and its reader
    listeners: list[tuple[bytes, bytes]] = field(default_factory=list)  # our writers and its readers that have matched
    half_known: list[OfferedService] = field(default_factory=list)  # whose readers it knows, but not yet their writers

    def addresses_of(self, guid: bytes) -> tuple[Address, ...]:
        if guid[-1] & _BUILTIN == _BUILTIN:
            return self.discovery
        endpoint = self.endpoints.get(guid)
        return (endpoint.addresses if endpoint is not None else ()) or self.user

    def forget(self, guid: bytes) -> None:
        self.endpoints.pop(guid, None)
        self.arrivals.pop(guid, None)
        self.listeners = [pair for pair in self.listeners if pair[1] != guid]
        for key in [key for key in self.deliveries if key[1] == guid]:
            del self.deliveries[key]


def peer_of(prefix: bytes, announced: Parameters) -> tuple[Peer, float]:
    """And how long it is believed to be there, unless it says so again [s]."""
    (seconds,) = struct.unpack_from("<i", announced.get(packets.LEASE, [b"\x14\0\0\0"])[0])
    discovery, user = (_addresses(announced, name) for name in (packets.METATRAFFIC_UNICAST, packets.DEFAULT_UNICAST))
    return Peer(prefix, discovery, user or discovery), float(min(max(seconds, 1), 600))


def endpoint_of(announced: Parameters) -> tuple[bytes, Endpoint] | None:
    """GUID and what is known of it; None when that is not enough."""
    try:
        guid = announced[packets.ENDPOINT_GUID][0][:16]
        topic, type_name = (packets.text_of(announced[name][0]) for name in (packets.TOPIC_NAME, packets.TYPE_NAME))
    except (KeyError, struct.error):
        return None
    return guid, Endpoint(topic, type_name, _addresses(announced, packets.UNICAST))


def _addresses(announced: Parameters, name: int) -> tuple[Address, ...]:
    found = (packets.address_of(value) for value in announced.get(name, ()))
    return tuple(address for address in found if address is not None)[:_MOST_ADDRESSES]
