"""The participant that answers service clients of Fast DDS.

It never starts a conversation: a participant of Fast DDS announces itself to all, and this one then answers it alone.

A client sees the service twice, here and on Cyclone DDS, and must not call before it has discovered this one. Fast DDS
considers a service available when it has as many readers of requests as writers of replies. So each side has one too
many: Cyclone DDS has a second reader, which is never read, and here is a second writer, which never writes. While the
client knows only one side, it waits. Readers are announced before writers, so the numbers agree only at the end.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from microsim.ros2.transport import rtps_packets as packets
from microsim.ros2.transport.rtps_packets import (
    MOST_ENDPOINTS,
    MOST_PEERS,
    Acknowledgement,
    Address,
    Arrivals,
    Deliveries,
    Endpoint,
    Fragments,
    Gap,
    Heartbeat,
    OfferedService,
    Peer,
    Sample,
    endpoint_of,
    peer_of,
)

GROUP = "239.255.0.1"  # where participants announce themselves
LEASE_S = 20
ANNOUNCE_EVERY_S = 5.0  # the participant, to keep its lease
LOOK_EVERY_S = 0.05  # while there are peers
LOOK_SOON_S = 0.01  # while a peer has not acknowledged
MOST_REQUESTS = 1000  # in the queue
UNDELIVERED_S = 10.0  # how long a reply waits for its client to be ready
INDICES = range(32)  # of participants that others try on one machine

_PARTICIPANT = b"\x00\x00\x01\xc1"
_PARTICIPANTS, _PARTICIPANTS_READER = b"\x00\x01\x00\xc2", b"\x00\x01\x00\xc7"
_WRITERS, _WRITERS_READER = b"\x00\x00\x03\xc2", b"\x00\x00\x03\xc7"  # announce writers, and receive such announcements
_READERS, _READERS_READER = b"\x00\x00\x04\xc2", b"\x00\x00\x04\xc7"  # the same for readers
_READER_OF = {_PARTICIPANTS: _PARTICIPANTS_READER, _WRITERS: _WRITERS_READER, _READERS: _READERS_READER}
_BUILTIN = 0x3F  # has endpoints for participants, writers and readers
_OF_SERVICES = ("rq/", "rr/")  # how their topics begin
_RELIABLE = struct.pack("<IiI", 2, 0, 429496729)  # blocks for 0.1 s at most
_VOLATILE = struct.pack("<I", 0)


@dataclass(frozen=True)
class RtpsRequest:
    service: int
    writer: bytes  # GUID of the client's
    number: int
    reader: bytes  # GUID of the client's reader, if the request names it
    body: bytes  # with encapsulation


@dataclass
class _Undelivered:
    request: RtpsRequest
    reply: bytes
    until_s: float


class ServiceParticipant(threading.Thread):
    """`wake` is called, on its thread, when there are new requests."""

    def __init__(self, domain: int, interfaces: Sequence[str], multicast: bool, wake: Callable[[], None]) -> None:
        super().__init__(name="microsim-rtps", daemon=True)
        self.prefix = packets.OUR_VENDOR + os.urandom(packets.PREFIX - 2)
        self.requests: deque[RtpsRequest] = deque()
        self._domain, self._wake = domain, wake
        self._services: dict[int, OfferedService] = {}
        self._peers: dict[bytes, Peer] = {}
        self._commands: deque[Callable[[], None]] = deque()  # for the thread
        self._undelivered: list[_Undelivered] = []
        self._announce_s = 0.0
        self._numbers = count(1)  # of services
        self._is_open = True
        self._socket = _unicast(domain, interfaces)
        self._addresses = [(address, self._socket.getsockname()[1]) for address in interfaces]
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        sockets = [self._socket, self._wake_reader]
        if multicast:
            sockets += [_multicast(domain, interfaces)]
        for each in sockets:
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    # ---- from other threads ------------------------------------------------------------------------------------------

    def serve(self, request: tuple[str, str], reply: tuple[str, str], user_data: str) -> int:
        """Gives the number of the service. Each pair: topic and type."""
        service = OfferedService(next(self._numbers), request, reply, user_data.encode())
        self._do(lambda: self._add(service))
        return service.number

    def answer(self, request: RtpsRequest, reply: bytes) -> bool:
        """Whether it fits into a packet."""
        if len(reply) > packets.LARGEST:
            return False
        self._do(lambda: self._send_reply(request, reply, time.monotonic() + UNDELIVERED_S))
        return True

    def close(self) -> None:
        """Tell peers that it leaves."""
        if self._is_open:
            self._do(self._leave)
            self.join(2.0)

    def _do(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        with suppress(OSError):
            self._wake_writer.send(b"!")

    # ---- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        while self._is_open:
            for key, _ in self._selector.select(self._patience_s()):
                with suppress(OSError):
                    self._read(key.fileobj)  # type: ignore[arg-type]
            while self._commands:
                self._commands.popleft()()
            if self._is_open:
                self._keep_up(time.monotonic())
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._wake_writer.close()

    def _patience_s(self) -> float:
        if any(deliveries.waiting for peer in self._peers.values() for deliveries in peer.deliveries.values()):
            return LOOK_SOON_S
        return LOOK_EVERY_S if self._peers else 1.0

    def _read(self, source: socket.socket) -> None:
        for _ in range(64):
            try:
                packet = source.recv(65536)
            except BlockingIOError:
                return
            if source is self._wake_reader or packets.vendor(packet) != packets.FAST_DDS:
                continue
            if packet[8:20] == self.prefix:
                continue
            for each in packets.submessages(packet, self.prefix):
                with suppress(struct.error, ValueError):  # malformed
                    self._take(each)

    def _take(self, each: packets.Submessage) -> None:
        if isinstance(each, Sample):
            if each.writer[-4:] == _PARTICIPANTS:
                self._take_participant(each)
                return
            if self._is_new(each):
                self._take_sample(each)
        elif isinstance(each, Fragments):
            self._take_fragments(each)
        elif isinstance(each, Acknowledgement):
            self._send_again(each)
        elif isinstance(each, Heartbeat):
            self._acknowledge(each)
        else:
            self._skip(each)

    def _keep_up(self, now: float) -> None:
        """Periodic work: expired peers, heartbeats, announcements."""
        for prefix in [peer.prefix for peer in self._peers.values() if now > peer.expires_s]:
            del self._peers[prefix]
        for peer in self._peers.values():
            for (writer, reader), deliveries in peer.deliveries.items():
                if deliveries.is_due(now):
                    self._send_heartbeat(peer, writer, reader, deliveries)
        if now >= self._announce_s:
            self._announce_s = now + ANNOUNCE_EVERY_S
            for peer in self._peers.values():
                self._introduce(peer)
        self._undelivered = [each for each in self._undelivered if now <= each.until_s]

    # ---- participants ------------------------------------------------------------------------------------------------

    def _take_participant(self, sample: Sample) -> None:
        prefix, now = sample.writer[: packets.PREFIX], time.monotonic()
        if packets.STATUS in sample.inline:
            self._peers.pop(prefix, None)
            return
        peer, lease_s = peer_of(prefix, packets.parameters_of(sample.payload))
        known = self._peers.get(prefix)
        if known is not None:
            known.expires_s = now + lease_s
            return
        if not peer.discovery or len(self._peers) >= MOST_PEERS:
            return
        peer.expires_s = now + lease_s
        self._peers[prefix] = peer
        self._introduce(peer)
        for service in self._services.values():
            self._announce(peer, service)

    def _introduce(self, peer: Peer) -> None:
        announced = packets.parameters(
            (packets.PROTOCOL_VERSION, packets.VERSION),
            (packets.VENDOR, packets.OUR_VENDOR),
            (packets.PARTICIPANT_GUID, self.prefix + _PARTICIPANT),
            (packets.DOMAIN_ID, struct.pack("<I", self._domain)),
            (packets.LEASE, struct.pack("<iI", LEASE_S, 0)),
            (packets.BUILTIN_ENDPOINTS, struct.pack("<I", _BUILTIN)),
            (packets.ENTITY_NAME, packets.string("microsim services")),
            *((packets.METATRAFFIC_UNICAST, packets.locator(address)) for address in self._addresses),
            *((packets.DEFAULT_UNICAST, packets.locator(address)) for address in self._addresses),
        )
        payload = packets.PARAMETERS + announced
        self._send(peer, peer.discovery, packets.data(_PARTICIPANTS_READER, _PARTICIPANTS, 1, payload))

    def _leave(self) -> None:
        key = packets.parameters((packets.KEY_HASH, self.prefix + _PARTICIPANT), (packets.STATUS, packets.GONE))
        for peer in self._peers.values():
            self._send(peer, peer.discovery, packets.data(_PARTICIPANTS_READER, _PARTICIPANTS, 2, b"", key))
        self._is_open = False

    # ---- endpoints ---------------------------------------------------------------------------------------------------

    def _add(self, service: OfferedService) -> None:
        self._services[service.number] = service
        for peer in self._peers.values():
            self._announce(peer, service)
            for guid in peer.endpoints:
                self._match_writer(peer, guid)

    def _announce(self, peer: Peer, service: OfferedService) -> None:
        """Announce its reader; the writers follow when the peer has acknowledged that."""
        self._announce_endpoint(peer, _READERS, service.reader, service.request, service)
        peer.half_known.append(service)

    def _announce_writers(self, peer: Peer) -> None:
        services, peer.half_known = peer.half_known, []
        for service in services:
            for entity in (service.writer, service.idle_writer):
                self._announce_endpoint(peer, _WRITERS, entity, service.reply, service)

    def _announce_endpoint(
        self, peer: Peer, announcer: bytes, entity: bytes, names: tuple[str, str], service: OfferedService
    ) -> None:
        self._deliver(
            peer, announcer, peer.prefix + _READER_OF[announcer], self._endpoint_parameters(entity, names, service)
        )

    def _endpoint_parameters(self, entity: bytes, names: tuple[str, str], service: OfferedService) -> bytes:
        return packets.PARAMETERS + packets.parameters(
            (packets.ENDPOINT_GUID, self.prefix + entity),
            (packets.PARTICIPANT_GUID, self.prefix + _PARTICIPANT),
            (packets.KEY_HASH, self.prefix + entity),
            (packets.PROTOCOL_VERSION, packets.VERSION),
            (packets.VENDOR, packets.OUR_VENDOR),
            (packets.TOPIC_NAME, packets.string(names[0])),
            (packets.TYPE_NAME, packets.string(names[1])),
            (packets.RELIABILITY, _RELIABLE),
            (packets.DURABILITY, _VOLATILE),
            (packets.USER_DATA, packets.octets(service.user_data)),
            *((packets.UNICAST, packets.locator(address)) for address in self._addresses),
        )

    def _take_endpoint(self, peer: Peer, sample: Sample) -> None:
        if packets.STATUS in sample.inline:
            named = sample.inline.get(packets.KEY_HASH) or packets.parameters_of(sample.key).get(packets.ENDPOINT_GUID)
            if named:
                peer.forget(named[0][:16])
            return
        found = endpoint_of(packets.parameters_of(sample.payload))
        if found is None or found[0][: packets.PREFIX] != peer.prefix or len(peer.endpoints) >= MOST_ENDPOINTS:
            return
        guid, endpoint = found
        if not endpoint.topic.startswith(_OF_SERVICES) or guid in peer.endpoints:
            return
        peer.endpoints[guid] = endpoint  # its service may come later
        self._match_writer(peer, guid)

    def _match_writer(self, peer: Peer, guid: bytes) -> None:
        """Receive from a client's writer, starting with its present samples."""
        names = peer.endpoints[guid].names
        if guid not in peer.arrivals and any(names == service.request for service in self._services.values()):
            peer.arrivals[guid] = Arrivals()
            self._acknowledge_to(peer, guid, [], is_final=False)  # asks for a heartbeat

    def _service_of(self, endpoint: Endpoint) -> OfferedService | None:
        return next((each for each in self._services.values() if endpoint.names in (each.request, each.reply)), None)

    # ---- what arrives ------------------------------------------------------------------------------------------------

    def _arrivals(self, writer: bytes) -> tuple[Peer, Arrivals] | None:
        """None for writers that were not announced: their samples will be sent again."""
        peer = self._peers.get(writer[: packets.PREFIX])
        if peer is None:
            return None
        if writer[-4:] in (_WRITERS, _READERS) and writer not in peer.arrivals:
            peer.arrivals[writer] = Arrivals()
        return (peer, peer.arrivals[writer]) if writer in peer.arrivals else None

    def _is_new(self, sample: Sample) -> bool:
        found = self._arrivals(sample.writer)
        return found is not None and found[1].take(sample.number)

    def _take_fragments(self, piece: Fragments) -> None:
        found = self._arrivals(piece.writer)
        if found is not None:
            whole = found[1].take_piece(piece.number, piece.first, piece.size, piece.total, piece.data)
            if whole is not None:
                self._take_sample(Sample(piece.writer, piece.reader, piece.number, whole))

    def _take_sample(self, sample: Sample) -> None:
        peer = self._peers[sample.writer[: packets.PREFIX]]
        if sample.writer[-4:] in (_WRITERS, _READERS):
            self._take_endpoint(peer, sample)
            return
        service = self._service_of(peer.endpoints[sample.writer])
        if service is None or not sample.payload:
            return
        related = sample.inline.get(packets.RELATED_SAMPLE) or sample.inline.get(packets.RELATED_SAMPLE_OF_FAST_DDS)
        reader = related[0][:16] if related else b""
        if len(self.requests) < MOST_REQUESTS:
            self.requests.append(RtpsRequest(service.number, sample.writer, sample.number, reader, sample.payload))
            self._wake()

    def _acknowledge(self, heartbeat: Heartbeat) -> None:
        found = self._arrivals(heartbeat.writer)
        if found is not None:
            missing = found[1].hear(heartbeat.first, heartbeat.last)
            if missing or heartbeat.wants_answer:
                self._acknowledge_to(found[0], heartbeat.writer, missing)

    def _acknowledge_to(self, peer: Peer, writer: bytes, missing: list[int], is_final: bool = True) -> None:
        arrivals = peer.arrivals[writer]
        arrivals.acknowledgements += 1
        reader = _READER_OF.get(writer[-4:])
        if reader is None:
            service = self._service_of(peer.endpoints[writer])
            assert service is not None  # only such writers are remembered
            reader = service.reader
        state = (arrivals.next, missing, arrivals.acknowledgements, is_final and not missing)
        self._send(peer, peer.addresses_of(writer), packets.acknowledgement(reader, writer[-4:], *state))

    def _skip(self, gap: Gap) -> None:
        found = self._arrivals(gap.writer)
        if found is not None:
            found[1].skip(gap.start, gap.base, gap.listed)

    # ---- what is sent ------------------------------------------------------------------------------------------------

    def _send_reply(self, request: RtpsRequest, reply: bytes, until_s: float) -> None:
        peer = self._peers.get(request.writer[: packets.PREFIX])
        service = self._services[request.service]
        if peer is None:
            return
        readers = [
            guid for guid, endpoint in peer.endpoints.items() if (endpoint.topic, endpoint.type_name) == service.reply
        ]
        if request.reader in readers:
            readers = [request.reader]
        if not readers:
            self._undelivered.append(_Undelivered(request, reply, until_s))
        identity = packets.sample_identity(request.writer, request.number)
        related = packets.parameters((packets.RELATED_SAMPLE, identity), (packets.RELATED_SAMPLE_OF_FAST_DDS, identity))
        for reader in readers:
            self._deliver(peer, service.writer, reader, reply, related)

    def _send_undelivered(self) -> None:
        unheard, self._undelivered = self._undelivered, []
        for each in unheard:
            self._send_reply(each.request, each.reply, each.until_s)

    def _deliver(self, peer: Peer, writer: bytes, reader: bytes, payload: bytes, inline: bytes = b"") -> None:
        deliveries = peer.deliveries.setdefault((writer, reader), Deliveries())
        number = deliveries.add(time.monotonic())
        deliveries.waiting[number] = body = packets.data(reader[-4:], writer, number, payload, inline)
        self._send(peer, peer.addresses_of(reader), body + self._heartbeat(writer, reader, deliveries))

    def _send_heartbeat(self, peer: Peer, writer: bytes, reader: bytes, deliveries: Deliveries) -> None:
        self._send(peer, peer.addresses_of(reader), self._heartbeat(writer, reader, deliveries))

    def _heartbeat(self, writer: bytes, reader: bytes, deliveries: Deliveries) -> bytes:
        deliveries.heartbeats += 1
        return packets.heartbeat(reader[-4:], writer, deliveries.first, deliveries.last, deliveries.heartbeats)

    def _send_again(self, received: Acknowledgement) -> None:
        """What the reader has not received yet."""
        pair = writer, reader = received.writer, received.reader
        peer = self._peers.get(reader[: packets.PREFIX])
        if peer is None:
            return
        if pair not in peer.listeners and len(peer.listeners) < MOST_ENDPOINTS:
            peer.listeners.append(pair)  # anything sent before would have been lost
            self._send_undelivered()
        deliveries = peer.deliveries.setdefault(pair, Deliveries())
        for body in deliveries.acknowledge(received.base, received.missing, time.monotonic()):
            self._send(peer, peer.addresses_of(reader), body)
        if received.base == 0:  # a new reader repeats this until it gets a heartbeat
            self._send_heartbeat(peer, writer, reader, deliveries)
        if writer == _READERS and not deliveries.waiting:
            self._announce_writers(peer)

    def _send(self, peer: Peer, addresses: Sequence[Address], *bodies: bytes) -> None:
        packet = packets.message(self.prefix, peer.prefix, *bodies)
        for address in addresses:
            with suppress(OSError):  # it will be sent again
                self._socket.sendto(packet, address)


def _unicast(domain: int, interfaces: Sequence[str]) -> socket.socket:
    """On one of the ports that others try."""
    host = interfaces[0] if len(interfaces) == 1 else ""
    for index in INDICES:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.bind((host, 7410 + 250 * domain + 2 * index))
        except OSError:
            made.close()
        else:
            return made
    raise OSError(f"all ports for participants of domain {domain} are taken")


def _multicast(domain: int, interfaces: Sequence[str]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "SO_REUSEPORT"):
        with suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("" if os.name == "nt" else GROUP, 7400 + 250 * domain))
    for address in interfaces:
        with suppress(OSError):  # not every interface supports multicast
            group = socket.inet_aton(GROUP) + socket.inet_aton(address)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    return made
