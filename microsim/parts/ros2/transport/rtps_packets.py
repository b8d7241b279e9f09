"""RTPS (https://www.omg.org/spec/DDSI-RTPS/2.5): messages to bytes and back, peers, and reliable streams between them.

Unknown parts are skipped; a truncated message ends where it is cut. RTPS is the protocol under DDS: here is the part
that is needed to answer service clients of Fast DDS, and to call its servers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

VERSION, OUR_VENDOR, FAST_DDS = b"\x02\x03", b"\x00\x00", b"\x01\x0f"
PREFIX = 12  # bytes of a GUID that name the participant; 4 more name the endpoint
LARGEST = 65_000  # [byte] that go into a packet of UDP, with the headers

ACKNACK, HEARTBEAT, GAP, INFO_DESTINATION, DATA, DATA_FRAGMENT = 0x06, 0x07, 0x08, 0x0E, 0x15, 0x16
_LITTLE, _FINAL, _INLINE, _PAYLOAD, _KEY = 0x01, 0x02, 0x02, 0x04, 0x08

LEASE, TOPIC_NAME, TYPE_NAME, DOMAIN_ID, PROTOCOL_VERSION = 0x0002, 0x0005, 0x0007, 0x000F, 0x0015
VENDOR, RELIABILITY, DURABILITY = 0x0016, 0x001A, 0x001D
USER_DATA, UNICAST, DEFAULT_UNICAST, METATRAFFIC_UNICAST = 0x002C, 0x002F, 0x0031, 0x0032
PARTICIPANT_GUID, BUILTIN_ENDPOINTS, ENDPOINT_GUID, ENTITY_NAME = 0x0050, 0x0058, 0x005A, 0x0062
KEY_HASH, STATUS = 0x0070, 0x0071
RELATED_SAMPLE, RELATED_SAMPLE_OF_FAST_DDS = 0x0083, 0x800F
_SENTINEL = 1
PARAMETERS = b"\x00\x03\x00\x00"  # encapsulation of a list of parameters, little endian
GONE = b"\0\0\0\x03"  # status: disposed and unregistered

_UDP4 = 1
_SHORTEST_LOCATOR = 24

Parameters: TypeAlias = Mapping[int, list[bytes]]
Address: TypeAlias = tuple[str, int]


@dataclass(frozen=True)
class FromWriter:
    writer: bytes  # GUID
    reader: bytes  # entity; zeros: any


@dataclass(frozen=True)
class Sample(FromWriter):
    number: int
    payload: bytes  # with its encapsulation; empty when it has only a key
    inline: Parameters = field(default_factory=dict)
    key: bytes = b""


@dataclass(frozen=True)
class Fragments(FromWriter):
    """A piece of a sample that is larger than a packet."""

    number: int
    first: int  # number of the first fragment here, from 1
    size: int  # [byte] of each but the last
    total: int  # [byte] of the sample
    data: bytes
    inline: Parameters = field(default_factory=dict)


@dataclass(frozen=True)
class Heartbeat(FromWriter):
    """A writer offers samples `first` to `last`."""

    first: int
    last: int
    wants_answer: bool


@dataclass(frozen=True)
class Gap(FromWriter):
    """Samples that will never be sent: from `start` to before `base`, and those listed."""

    start: int
    base: int
    listed: tuple[int, ...]


@dataclass(frozen=True)
class Acknowledgement:
    """A reader has all samples before `base`, and requests those that are missing."""

    reader: bytes  # GUID
    writer: bytes  # entity
    base: int
    missing: tuple[int, ...]


Submessage: TypeAlias = Sample | Fragments | Heartbeat | Gap | Acknowledgement


def message(source: bytes, destination: bytes, *submessages: bytes) -> bytes:
    """From a participant to another, both named by their prefix."""
    header = b"RTPS" + VERSION + OUR_VENDOR + source
    return header + _submessage(INFO_DESTINATION, _LITTLE, destination) + b"".join(submessages)


def data(reader: bytes, writer: bytes, number: int, payload: bytes, inline: bytes = b"") -> bytes:
    head = struct.pack("<HH", 0, 16) + reader + writer + number_bytes(number)
    flags = _LITTLE | (_PAYLOAD if payload else 0) | (_INLINE if inline else 0)
    return _submessage(DATA, flags, head + inline + payload)


def heartbeat(reader: bytes, writer: bytes, first: int, last: int, count: int) -> bytes:
    body = reader + writer + number_bytes(first) + number_bytes(last) + struct.pack("<I", count)
    return _submessage(HEARTBEAT, _LITTLE, body)


def acknowledgement(
    reader: bytes, writer: bytes, base: int, missing: Iterable[int], count: int, is_final: bool
) -> bytes:
    wanted = [number - base for number in missing if base <= number < base + 256]
    bits = max(wanted) + 1 if wanted else 0
    words = [0] * (-(-bits // 32))
    for place in wanted:
        words[place // 32] |= 1 << (31 - place % 32)
    body = reader + writer + number_bytes(base) + struct.pack(f"<I{len(words)}II", bits, *words, count)
    return _submessage(ACKNACK, _LITTLE | (_FINAL if is_final else 0), body)


def parameters(*pairs: tuple[int, bytes]) -> bytes:
    """Without encapsulation, as before a payload."""
    parts = []
    for name, value in (*pairs, (_SENTINEL, b"")):
        padded = value + bytes(-len(value) % 4)
        parts.append(struct.pack("<HH", name, len(padded)) + padded)
    return b"".join(parts)


def string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<I", len(raw)) + raw


def locator(address: Address) -> bytes:
    return struct.pack("<iI", _UDP4, address[1]) + bytes(12) + bytes(map(int, address[0].split(".")))


def _submessage(kind: int, flags: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<BBH", kind, flags, len(body)) + body


def number_bytes(value: int) -> bytes:
    return struct.pack("<iI", value >> 32, value & 0xFFFFFFFF)


def related_sample(guid: bytes, number: int) -> bytes:
    """Inline parameters that name a sample: in a reply its request, in a request the reader of its reply."""
    identity = guid + number_bytes(number)
    return parameters((RELATED_SAMPLE, identity), (RELATED_SAMPLE_OF_FAST_DDS, identity))


def related_to(sample: Sample) -> tuple[bytes, int]:
    """GUID and number of the sample that another one names; empty and 0: none."""
    named = sample.inline.get(RELATED_SAMPLE) or sample.inline.get(RELATED_SAMPLE_OF_FAST_DDS)
    return (named[0][:16], _read_number(named[0], 16, _LITTLE)) if named and len(named[0]) >= 24 else (b"", 0)


def is_reader(guid: bytes) -> bool:
    return guid[-1] & 0x3F in (0x04, 0x07)


def vendor(packet: bytes) -> bytes:
    """Of who sent it; empty when it is not RTPS."""
    return packet[6:8] if packet[:4] == b"RTPS" and len(packet) >= 20 else b""


def submessages(packet: bytes, ours: bytes) -> Iterator[Submessage]:
    """Those for the participant `ours`."""
    source, is_for_us, at = packet[8:20], True, 20
    while at + 4 <= len(packet):
        kind, flags, length = packet[at], packet[at + 1], _short(packet, at + 2, packet[at + 1])
        body = packet[at + 4 : at + 4 + length] if length else packet[at + 4 :]  # 0: to the end
        at += 4 + len(body)
        try:
            if kind == INFO_DESTINATION:
                is_for_us = body[:PREFIX] in (ours, bytes(PREFIX))
            elif is_for_us and kind in _READ:
                yield _READ[kind](source, flags, body)
        except (struct.error, IndexError):
            return


def parameter_list(raw: bytes, order: str = "<") -> tuple[dict[int, list[bytes]], int]:
    """Values by name, and where the list ends."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at + 4 <= len(raw):
        name, length = struct.unpack_from(f"{order}HH", raw, at)
        at += 4
        if name == _SENTINEL:
            break
        found.setdefault(name, []).append(raw[at : at + length])
        at += length
    return found, at


def parameters_of(payload: bytes) -> dict[int, list[bytes]]:
    """Of a payload that is such a list; only little endian, which Fast DDS writes on every machine it runs on today."""
    return parameter_list(payload[4:])[0] if payload[:2] == PARAMETERS[:2] else {}


def text_of(value: bytes) -> str:
    (length,) = struct.unpack_from("<I", value)
    return value[4 : 4 + length].rstrip(b"\0").decode("utf-8", "replace")


def address_of(value: bytes) -> Address | None:
    """None when it is not UDP over IPv4."""
    if len(value) < _SHORTEST_LOCATOR:
        return None
    kind, port = struct.unpack_from("<iI", value)
    return (".".join(map(str, value[20:24])), port) if kind == _UDP4 and 0 < port < 65536 else None


def _order(flags: int) -> str:
    return "<" if flags & _LITTLE else ">"


def _short(raw: bytes, at: int, flags: int) -> int:
    return int(struct.unpack_from(f"{_order(flags)}H", raw, at)[0])


def _read_number(raw: bytes, at: int, flags: int) -> int:
    high, low = struct.unpack_from(f"{_order(flags)}iI", raw, at)
    return int(high << 32 | low)


def _read_set(raw: bytes, at: int, flags: int) -> tuple[int, tuple[int, ...]]:
    """Base and listed numbers."""
    base = _read_number(raw, at, flags)
    (bits,) = struct.unpack_from(f"{_order(flags)}I", raw, at + 8)
    bits = min(bits, 256)
    words = struct.unpack_from(f"{_order(flags)}{-(-bits // 32)}I", raw, at + 12)
    return base, tuple(base + place for place in range(bits) if words[place // 32] >> (31 - place % 32) & 1)


def _inline_parameters(flags: int, body: bytes) -> tuple[int, dict[int, list[bytes]]]:
    """Where the payload begins, and the parameters before it."""
    at = 4 + _short(body, 2, flags)
    if not flags & _INLINE:
        return at, {}
    inline, length = parameter_list(body[at:], _order(flags))
    return at + length, inline


def _data(source: bytes, flags: int, body: bytes) -> Sample:
    at, inline = _inline_parameters(flags, body)
    payload, key = (body[at:] if flags & bit else b"" for bit in (_PAYLOAD, _KEY))
    return Sample(source + body[8:12], body[4:8], _read_number(body, 12, flags), payload, inline, key)


def _fragments(source: bytes, flags: int, body: bytes) -> Fragments:
    at, inline = _inline_parameters(flags, body)
    first, _, size, total = struct.unpack_from(f"{_order(flags)}IHHI", body, 20)
    number = _read_number(body, 12, flags)
    return Fragments(source + body[8:12], body[4:8], number, first, size, total, body[at:], inline)


def _heartbeat(source: bytes, flags: int, body: bytes) -> Heartbeat:
    first, last = _read_number(body, 8, flags), _read_number(body, 16, flags)
    return Heartbeat(source + body[4:8], body[:4], first, last, not flags & _FINAL)


def _gap(source: bytes, flags: int, body: bytes) -> Gap:
    return Gap(source + body[4:8], body[:4], _read_number(body, 8, flags), *_read_set(body, 16, flags))


def _acknowledgement(source: bytes, flags: int, body: bytes) -> Acknowledgement:
    return Acknowledgement(source + body[:4], body[4:8], *_read_set(body, 8, flags))


_READ: Mapping[int, Callable[[bytes, int, bytes], Submessage]] = {
    DATA: _data,
    DATA_FRAGMENT: _fragments,
    HEARTBEAT: _heartbeat,
    GAP: _gap,
    ACKNACK: _acknowledgement,
}

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
        self._pause(now, self.FIRST_PAUSE_S)
        return self.last

    def _pause(self, now: float, pause_s: float) -> None:
        self._pause_s, self.due_s = pause_s, now + pause_s

    def acknowledge(self, base: int, missing: Iterable[int], now: float) -> list[bytes]:
        """Forget what has arrived; gives what must be sent again."""
        for number in [number for number in self.waiting if number < base]:
            del self.waiting[number]
        self._pause(now, self.FIRST_PAUSE_S)
        return [self.waiting[number] for number in missing if number in self.waiting]

    def is_due(self, now: float) -> bool:
        """Time to ask what has arrived; less and less often."""
        if not self.waiting or now < self.due_s:
            return False
        self._pause(now, min(2.0 * self._pause_s, self.LONGEST_PAUSE_S))
        return True


@dataclass(frozen=True)
class ServiceEnds:
    """The endpoints of one of our servers or clients. Names are topic and type, as in DDS."""

    number: int
    received: tuple[str, str]  # requests of a server, replies of a client
    sent: tuple[str, str]
    user_data: bytes
    is_client: bool = False

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
    names: tuple[str, str]  # topic and type
    addresses: tuple[Address, ...]  # empty: those of the participant


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
    half_known: list[ServiceEnds] = field(default_factory=list)  # whose readers it knows, but not yet their writers

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
    """And its lease: how long it counts as present without a new announcement [s]."""
    (seconds,) = struct.unpack_from("<i", announced.get(LEASE, [b"\x14\0\0\0"])[0])
    discovery, user = (_addresses(announced, name) for name in (METATRAFFIC_UNICAST, DEFAULT_UNICAST))
    return Peer(prefix, discovery, user or discovery), float(min(max(seconds, 1), 600))


def endpoint_of(announced: Parameters) -> tuple[bytes, Endpoint] | None:
    """GUID and what is known of it; None when that is not enough."""
    try:
        guid = announced[ENDPOINT_GUID][0][:16]
        names = text_of(announced[TOPIC_NAME][0]), text_of(announced[TYPE_NAME][0])
    except (KeyError, struct.error):
        return None
    return guid, Endpoint(names, _addresses(announced, UNICAST))


def _addresses(announced: Parameters, name: int) -> tuple[Address, ...]:
    found = (address_of(value) for value in announced.get(name, ()))
    return tuple(address for address in found if address is not None)[:_MOST_ADDRESSES]
