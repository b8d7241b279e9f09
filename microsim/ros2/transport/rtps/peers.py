"""Participants of Fast DDS and their endpoints, as discovery tells of them; and services, as they are told of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from microsim.ros2.transport.rtps import packets
from microsim.ros2.transport.rtps.packets import Address, Parameters
from microsim.ros2.transport.rtps.reliability import Arrivals, Deliveries

MOST_PEERS = 256
MOST_ENDPOINTS = 4096  # of one peer
_MOST_ADDRESSES = 4


_BUILTIN = 0xC0  # in the last byte of a GUID: an endpoint for discovery itself
_IDLE = 0x800000  # in the number of an endpoint


@dataclass(frozen=True)
class Service:
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
    discovery: tuple[Address, ...]  # where it hears of endpoints
    user: tuple[Address, ...]  # where it hears of data
    expires_s: float = 0.0
    endpoints: dict[bytes, Endpoint] = field(default_factory=dict)  # by GUID
    arrivals: dict[bytes, Arrivals] = field(default_factory=dict)  # by its writer's GUID
    deliveries: dict[tuple[bytes, bytes], Deliveries] = field(default_factory=dict)  # by our writer and its reader
    listeners: list[tuple[bytes, bytes]] = field(default_factory=list)  # our writers and its readers that have met
    half_known: list[Service] = field(default_factory=list)  # of whose readers alone it has been told

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


def peer_of(prefix: bytes, told: Parameters) -> tuple[Peer, float]:
    """And how long it is believed to be there, unless it says so again [s]."""
    (seconds,) = struct.unpack_from("<i", told.get(packets.LEASE, [b"\x14\0\0\0"])[0])
    discovery, user = (_addresses(told, name) for name in (packets.METATRAFFIC_UNICAST, packets.DEFAULT_UNICAST))
    return Peer(prefix, discovery, user or discovery), float(min(max(seconds, 1), 600))


def endpoint_of(told: Parameters) -> tuple[bytes, Endpoint] | None:
    """GUID and what is known of it; None when that is not enough."""
    try:
        guid = told[packets.ENDPOINT_GUID][0][:16]
        topic, type_name = (packets.text_of(told[name][0]) for name in (packets.TOPIC_NAME, packets.TYPE_NAME))
    except (KeyError, struct.error):
        return None
    return guid, Endpoint(topic, type_name, _addresses(told, packets.UNICAST))


def _addresses(told: Parameters, name: int) -> tuple[Address, ...]:
    found = (packets.address_of(value) for value in told.get(name, ()))
    return tuple(address for address in found if address is not None)[:_MOST_ADDRESSES]
