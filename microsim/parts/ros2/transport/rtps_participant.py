"""The participant for services of Fast DDS: it answers its clients and calls its servers.

A client on Fast DDS recognises its reply by a field of the protocol's own headers ("related sample identity"), which
Cyclone DDS neither reads nor writes. So services and clients have a second, small participant, which communicates with
Fast DDS only; other nodes do not see it. It does not handle topics.

A participant of Fast DDS announces itself to all; this one then answers it alone, once it has a service or a client.
Only a first client announces itself to all, and only once: otherwise it would wait for up to 3 s until its server does.

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

from microsim.parts.ros2.transport import rtps_packets as rtps

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


@dataclass(frozen=True)
class RtpsReply:
    client: int
    token: int  # of the request
    body: bytes  # with encapsulation


class ServiceParticipant(threading.Thread):
    """`wake` is called, on its own thread, when there are new requests or replies, or when a server has been found."""

    def __init__(self, domain: int, interfaces: Sequence[str], multicast: bool) -> None:
        super().__init__(name="microsim-rtps", daemon=True)
        self.prefix = rtps.OUR_VENDOR + os.urandom(rtps.PREFIX - 2)
        self.requests: deque[RtpsRequest] = deque()
        self.replies: deque[RtpsReply] = deque()
        self.with_server: frozenset[int] = frozenset()  # numbers of the clients whose server is ready
        self._domain, self._multicast = domain, multicast
        self._is_known = False  # to all
        self.wake: Callable[[], object] = bool  # does nothing
        self._ends: dict[int, rtps.ServiceEnds] = {}
        self._peers: dict[bytes, rtps.Peer] = {}
        self._commands: deque[Callable[[], None]] = deque()  # for the thread
        self._asked: dict[tuple[int, bytes, int], int] = {}  # client, server's participant, number -> token
        self._undelivered: list[tuple[RtpsRequest, bytes, float]] = []  # replies, and until when they are tried [s]
        self._announce_s = 0.0
        self._numbers = count(1)  # of services and clients
        self._is_open = True
        self._socket = _unicast(domain, interfaces)
        self._addresses = [(address, self._socket.getsockname()[1]) for address in interfaces]
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for each in (self._socket, self._wake_reader, *([_multicast(domain, interfaces)] if multicast else [])):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    # ---- from other threads ------------------------------------------------------------------------------------------

    def serve(self, request: tuple[str, str], reply: tuple[str, str], user_data: str) -> int:
        """Gives the number of the service. Each pair: topic and type."""
        return self._new(rtps.ServiceEnds(next(self._numbers), request, reply, user_data.encode()))

    def client(self, request: tuple[str, str], reply: tuple[str, str], user_data: str) -> int:
        """Gives the number of the client, for `ask`."""
        return self._new(rtps.ServiceEnds(next(self._numbers), reply, request, user_data.encode(), is_client=True))

    def _new(self, ends: rtps.ServiceEnds) -> int:
        self._do(lambda: self._add(ends))
        return ends.number

    def ask(self, client: int, token: int, request: bytes) -> bool:
        """Send a request to the server of a client in `with_server`; False: it does not fit into a packet."""
        if len(request) > rtps.LARGEST:
            return False
        self._do(lambda: self._send_request(client, token, request))
        return True

    def answer(self, request: RtpsRequest, reply: bytes) -> bool:
        """Whether it fits into a packet."""
        if len(reply) > rtps.LARGEST:
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
            is_waiting = any(each.waiting for peer in self._peers.values() for each in peer.deliveries.values())
            patience_s = LOOK_SOON_S if is_waiting else LOOK_EVERY_S if self._peers else 1.0
            for key, _ in self._selector.select(patience_s):
                with suppress(OSError):
                    self._read(key.fileobj)  # type: ignore[arg-type]
            while self._commands:
                self._commands.popleft()()
            if self._is_open:
                self._keep_up(time.monotonic())
                self._find_servers()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._wake_writer.close()

    def _read(self, source: socket.socket) -> None:
        for _ in range(64):
            try:
                packet = source.recv(65536)
            except BlockingIOError:
                return
            if source is self._wake_reader or rtps.vendor(packet) != rtps.FAST_DDS or packet[8:20] == self.prefix:
                continue
            for each in rtps.submessages(packet, self.prefix):
                with suppress(struct.error, ValueError):  # malformed
                    self._take(each)

    def _take(self, each: rtps.Submessage) -> None:
        if isinstance(each, rtps.Sample):
            if each.writer[-4:] == _PARTICIPANTS:
                self._take_participant(each)
            elif (found := self._arrivals(each.writer)) is not None and found[1].take(each.number):
                self._take_sample(each)
        elif isinstance(each, rtps.Fragments):
            self._take_fragments(each)
        elif isinstance(each, rtps.Acknowledgement):
            self._send_again(each)
        elif isinstance(each, rtps.Heartbeat):
            if (found := self._arrivals(each.writer)) is not None:
                missing = found[1].hear(each.first, each.last)
                if missing or each.wants_answer:
                    self._acknowledge(found[0], each.writer, missing)
        elif (found := self._arrivals(each.writer)) is not None:
            found[1].skip(each.start, each.base, each.listed)

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
            for peer in self._peers.values() if self._ends else ():
                self._introduce(peer)
        self._undelivered = [each for each in self._undelivered if now <= each[2]]

    # ---- participants ------------------------------------------------------------------------------------------------

    def _take_participant(self, sample: rtps.Sample) -> None:
        prefix, now = sample.writer[: rtps.PREFIX], time.monotonic()
        if rtps.STATUS in sample.inline:
            self._peers.pop(prefix, None)
            return
        peer, lease_s = rtps.peer_of(prefix, rtps.parameters_of(sample.payload))
        known = self._peers.get(prefix)
        if known is not None:
            known.expires_s = now + lease_s
            return
        if not peer.discovery or len(self._peers) >= rtps.MOST_PEERS:
            return
        peer.expires_s = now + lease_s
        self._peers[prefix] = peer
        if self._ends:
            self._introduce(peer)
        for ends in self._ends.values():
            self._announce(peer, ends)

    def _introduce(self, peer: rtps.Peer) -> None:
        self._send(peer, peer.discovery, self._introduction())

    def _tell_all(self, announcement: bytes) -> None:
        """Announce to all participants of the domain: on the port of each, and on that which all have in common."""
        packet = rtps.message(self.prefix, bytes(rtps.PREFIX), announcement)
        ports = [_port(self._domain, index) for index in INDICES]
        addresses = [(host, port) for host, own in self._addresses for port in ports if port != own]
        for address in [*addresses, *([(GROUP, 7400 + 250 * self._domain)] if self._multicast else [])]:
            with suppress(OSError):
                self._socket.sendto(packet, address)

    def _introduction(self) -> bytes:
        announced = rtps.parameters(
            (rtps.PROTOCOL_VERSION, rtps.VERSION),
            (rtps.VENDOR, rtps.OUR_VENDOR),
            (rtps.PARTICIPANT_GUID, self.prefix + _PARTICIPANT),
            (rtps.DOMAIN_ID, struct.pack("<I", self._domain)),
            (rtps.LEASE, struct.pack("<iI", LEASE_S, 0)),
            (rtps.BUILTIN_ENDPOINTS, struct.pack("<I", _BUILTIN)),
            (rtps.ENTITY_NAME, rtps.string("microsim services")),
            *((rtps.METATRAFFIC_UNICAST, rtps.locator(address)) for address in self._addresses),
            *((rtps.DEFAULT_UNICAST, rtps.locator(address)) for address in self._addresses),
        )
        return rtps.data(_PARTICIPANTS_READER, _PARTICIPANTS, 1, rtps.PARAMETERS + announced)

    def _leave(self) -> None:
        key = rtps.parameters((rtps.KEY_HASH, self.prefix + _PARTICIPANT), (rtps.STATUS, rtps.GONE))
        farewell = rtps.data(_PARTICIPANTS_READER, _PARTICIPANTS, 2, b"", key)
        for peer in self._peers.values():
            self._send(peer, peer.discovery, farewell)
        if self._is_known:
            self._tell_all(farewell)
        self._is_open = False

    # ---- endpoints ---------------------------------------------------------------------------------------------------

    def _add(self, ends: rtps.ServiceEnds) -> None:
        is_first = not self._ends
        self._ends[ends.number] = ends
        for peer in self._peers.values():
            if is_first:
                self._introduce(peer)
            self._announce(peer, ends)
            for guid in peer.endpoints:
                self._match_writer(peer, guid)
        if ends.is_client and not self._is_known:
            self._is_known = True
            self._tell_all(self._introduction())

    def _announce(self, peer: rtps.Peer, ends: rtps.ServiceEnds) -> None:
        """Announce its reader; the writers follow when the peer has acknowledged that."""
        self._announce_endpoint(peer, _READERS, ends.reader, ends.received, ends.user_data)
        peer.half_known.append(ends)

    def _announce_endpoint(
        self, peer: rtps.Peer, announcer: bytes, entity: bytes, names: tuple[str, str], user_data: bytes
    ) -> None:
        payload = rtps.PARAMETERS + rtps.parameters(
            (rtps.ENDPOINT_GUID, self.prefix + entity),
            (rtps.PARTICIPANT_GUID, self.prefix + _PARTICIPANT),
            (rtps.KEY_HASH, self.prefix + entity),
            (rtps.PROTOCOL_VERSION, rtps.VERSION),
            (rtps.VENDOR, rtps.OUR_VENDOR),
            (rtps.TOPIC_NAME, rtps.string(names[0])),
            (rtps.TYPE_NAME, rtps.string(names[1])),
            (rtps.RELIABILITY, _RELIABLE),
            (rtps.DURABILITY, _VOLATILE),
            (rtps.USER_DATA, struct.pack("<I", len(user_data)) + user_data),
            *((rtps.UNICAST, rtps.locator(address)) for address in self._addresses),
        )
        self._deliver(peer, announcer, peer.prefix + _READER_OF[announcer], payload)

    def _take_endpoint(self, peer: rtps.Peer, sample: rtps.Sample) -> None:
        if rtps.STATUS in sample.inline:
            named = sample.inline.get(rtps.KEY_HASH) or rtps.parameters_of(sample.key).get(rtps.ENDPOINT_GUID)
            if named:
                peer.forget(named[0][:16])
            return
        found = rtps.endpoint_of(rtps.parameters_of(sample.payload))
        if found is None or found[0][: rtps.PREFIX] != peer.prefix or len(peer.endpoints) >= rtps.MOST_ENDPOINTS:
            return
        guid, endpoint = found
        if not endpoint.names[0].startswith(_OF_SERVICES) or guid in peer.endpoints:
            return
        peer.endpoints[guid] = endpoint  # its service may come later
        self._match_writer(peer, guid)

    def _match_writer(self, peer: rtps.Peer, guid: bytes) -> None:
        """Receive from a peer's writer, starting with its present samples."""
        is_wanted = not rtps.is_reader(guid) and self._receiver(peer.endpoints[guid]) is not None
        if is_wanted and guid not in peer.arrivals:
            peer.arrivals[guid] = rtps.Arrivals()
            self._acknowledge(peer, guid, [], is_final=False)  # asks for a heartbeat

    def _receiver(self, endpoint: rtps.Endpoint) -> rtps.ServiceEnds | None:
        return next((each for each in self._ends.values() if endpoint.names == each.received), None)

    def _find_servers(self) -> None:
        ready = frozenset(each.number for each in self._ends.values() if each.is_client and self._server(each))
        if ready != self.with_server:
            self.with_server = ready
            self.wake()

    def _server(self, client: rtps.ServiceEnds) -> tuple[rtps.Peer, bytes] | None:
        """The newest peer with a server, and the GUID of its reader, which has matched the client's writer.

        An older one may have been killed: it stays until its lease ends.
        """
        for peer in reversed(self._peers.values()):
            if any(each.names == client.received for guid, each in peer.endpoints.items() if not rtps.is_reader(guid)):
                for guid, each in peer.endpoints.items():
                    if each.names == client.sent and (client.writer, guid) in peer.listeners:
                        return peer, guid
        return None

    # ---- what arrives ------------------------------------------------------------------------------------------------

    def _arrivals(self, writer: bytes) -> tuple[rtps.Peer, rtps.Arrivals] | None:
        """None for writers that were not announced: their samples will be sent again."""
        peer = self._peers.get(writer[: rtps.PREFIX])
        if peer is None:
            return None
        if writer[-4:] in (_WRITERS, _READERS) and writer not in peer.arrivals:
            peer.arrivals[writer] = rtps.Arrivals()
        return (peer, peer.arrivals[writer]) if writer in peer.arrivals else None

    def _take_fragments(self, piece: rtps.Fragments) -> None:
        found = self._arrivals(piece.writer)
        if found is not None:
            whole = found[1].take_piece(piece.number, piece.first, piece.size, piece.total, piece.data)
            if whole is not None:
                self._take_sample(rtps.Sample(piece.writer, piece.reader, piece.number, whole, piece.inline))

    def _take_sample(self, sample: rtps.Sample) -> None:
        peer = self._peers[sample.writer[: rtps.PREFIX]]
        if sample.writer[-4:] in (_WRITERS, _READERS):
            self._take_endpoint(peer, sample)
            return
        ends = self._receiver(peer.endpoints[sample.writer])
        if ends is None or not sample.payload:
            return
        guid, number = rtps.related_to(sample)
        if ends.is_client:
            is_ours = guid in (self.prefix + ends.reader, self.prefix + ends.writer)  # of old servers: the writer
            token = self._asked.pop((ends.number, peer.prefix, number), None) if is_ours else None
            if token is not None:
                self.replies.append(RtpsReply(ends.number, token, sample.payload))
                self.wake()
        elif len(self.requests) < MOST_REQUESTS:
            self.requests.append(RtpsRequest(ends.number, sample.writer, sample.number, guid, sample.payload))
            self.wake()

    def _acknowledge(self, peer: rtps.Peer, writer: bytes, missing: list[int], is_final: bool = True) -> None:
        arrivals = peer.arrivals[writer]
        arrivals.acknowledgements += 1
        reader = _READER_OF.get(writer[-4:])
        if reader is None:
            ends = self._receiver(peer.endpoints[writer])
            assert ends is not None  # only such writers are remembered
            reader = ends.reader
        state = (arrivals.next, missing, arrivals.acknowledgements, is_final and not missing)
        self._send(peer, peer.addresses_of(writer), rtps.acknowledgement(reader, writer[-4:], *state))

    # ---- what is sent ------------------------------------------------------------------------------------------------

    def _send_request(self, client: int, token: int, request: bytes) -> None:
        ends = self._ends[client]
        server = self._server(ends)
        if server is None:  # it has just left; the caller's timeout reports it
            return
        peer, reader = server
        deliveries = peer.deliveries.setdefault((ends.writer, reader), rtps.Deliveries())
        if len(self._asked) >= MOST_REQUESTS:
            self._asked.pop(next(iter(self._asked)))
        self._asked[client, peer.prefix, deliveries.last + 1] = token
        inline = rtps.related_sample(self.prefix + ends.reader, deliveries.last + 1)
        self._deliver(peer, ends.writer, reader, request, inline)

    def _send_reply(self, request: RtpsRequest, reply: bytes, until_s: float) -> None:
        peer = self._peers.get(request.writer[: rtps.PREFIX])
        ends = self._ends[request.service]
        if peer is None:
            return
        named = (guid for guid, endpoint in peer.endpoints.items() if endpoint.names == ends.sent)
        readers = [guid for guid in named if rtps.is_reader(guid)]
        if request.reader in readers:
            readers = [request.reader]
        if not readers:
            self._undelivered.append((request, reply, until_s))
        related = rtps.related_sample(request.writer, request.number)
        for reader in readers:
            self._deliver(peer, ends.writer, reader, reply, related)

    def _deliver(self, peer: rtps.Peer, writer: bytes, reader: bytes, payload: bytes, inline: bytes = b"") -> None:
        deliveries = peer.deliveries.setdefault((writer, reader), rtps.Deliveries())
        number = deliveries.add(time.monotonic())
        deliveries.waiting[number] = body = rtps.data(reader[-4:], writer, number, payload, inline)
        self._send(peer, peer.addresses_of(reader), body + self._heartbeat(writer, reader, deliveries))

    def _send_heartbeat(self, peer: rtps.Peer, writer: bytes, reader: bytes, deliveries: rtps.Deliveries) -> None:
        self._send(peer, peer.addresses_of(reader), self._heartbeat(writer, reader, deliveries))

    def _heartbeat(self, writer: bytes, reader: bytes, deliveries: rtps.Deliveries) -> bytes:
        deliveries.heartbeats += 1
        return rtps.heartbeat(reader[-4:], writer, deliveries.first, deliveries.last, deliveries.heartbeats)

    def _send_again(self, received: rtps.Acknowledgement) -> None:
        """What the reader has not received yet."""
        pair = writer, reader = received.writer, received.reader
        peer = self._peers.get(reader[: rtps.PREFIX])
        if peer is None:
            return
        if pair not in peer.listeners and len(peer.listeners) < rtps.MOST_ENDPOINTS:
            peer.listeners.append(pair)  # anything sent before would have been lost
            unheard, self._undelivered = self._undelivered, []
            for undelivered in unheard:
                self._send_reply(*undelivered)
        deliveries = peer.deliveries.setdefault(pair, rtps.Deliveries())
        for body in deliveries.acknowledge(received.base, received.missing, time.monotonic()):
            self._send(peer, peer.addresses_of(reader), body)
        if received.base == 0:  # a new reader repeats this until it gets a heartbeat
            self._send_heartbeat(peer, writer, reader, deliveries)
        if writer == _READERS and not deliveries.waiting:
            half_known, peer.half_known = peer.half_known, []
            for ends in half_known:
                for entity in (ends.writer,) if ends.is_client else (ends.writer, ends.idle_writer):
                    self._announce_endpoint(peer, _WRITERS, entity, ends.sent, ends.user_data)

    def _send(self, peer: rtps.Peer, addresses: Sequence[rtps.Address], *bodies: bytes) -> None:
        packet = rtps.message(self.prefix, peer.prefix, *bodies)
        for address in addresses:
            with suppress(OSError):  # it will be sent again
                self._socket.sendto(packet, address)


def _unicast(domain: int, interfaces: Sequence[str]) -> socket.socket:
    """On one of the ports that others try."""
    host = interfaces[0] if len(interfaces) == 1 else ""
    for index in INDICES:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.bind((host, _port(domain, index)))
        except OSError:
            made.close()
        else:
            return made
    raise OSError(f"all ports for participants of domain {domain} are taken")


def _port(domain: int, index: int) -> int:
    return 7410 + 250 * domain + 2 * index


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
