"""RTPS for service clients of Fast DDS: the bytes, and streams over a network that loses, repeats and reorders."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.parts.ros2.transport import rtps_packets as packets
from microsim.parts.ros2.transport.rtps_packets import (
    Acknowledgement,
    Arrivals,
    Deliveries,
    Fragments,
    Gap,
    Heartbeat,
    Sample,
    endpoint_of,
    peer_of,
)
from microsim.parts.ros2.transport.rtps_participant import RtpsRequest, ServiceParticipant

US, THEM = b"us" + bytes(10), b"\x01\x0f" + bytes(range(10))
READER, WRITER = b"\x00\x00\x01\x04", b"\x00\x00\x02\x03"
numbers = st.integers(1, 2**40)


def read(*submessages: bytes) -> list[packets.Submessage]:
    """As they arrive at them."""
    return list(packets.submessages(packets.message(US, THEM, *submessages), THEM))


# ---- the bytes -------------------------------------------------------------------------------------------------------


@given(numbers, st.binary(min_size=4, max_size=99), st.integers(0, 9))
def test_samples_pass_unchanged(number: int, payload: bytes, place: int) -> None:
    inline = packets.parameters((packets.RELATED_SAMPLE, THEM + WRITER + packets.number_bytes(place)))
    (found,) = read(packets.data(READER, WRITER, number, payload, inline))
    assert isinstance(found, Sample)
    assert (found.writer, found.reader, found.number) == (US + WRITER, READER, number)
    assert found.payload[: len(payload)] == payload
    assert len(found.payload) < len(payload) + 4  # to whole words
    assert found.inline == {packets.RELATED_SAMPLE: [THEM + WRITER + struct.pack("<iI", 0, place)]}


@given(numbers, st.sets(st.integers(0, 400), max_size=40))
def test_acknowledgements_name_what_is_missing(base: int, wanted: set[int]) -> None:
    missing = sorted(base + place for place in wanted)
    (found,) = read(packets.acknowledgement(READER, WRITER, base, missing, 7, not missing))
    shown = tuple(number for number in missing if number < base + 256)  # no more fit; the rest comes later
    assert found == Acknowledgement(US + READER, WRITER, base, shown)


@given(numbers, numbers)
def test_heartbeats_pass_unchanged(first: int, last: int) -> None:
    assert read(packets.heartbeat(READER, WRITER, first, last, 3)) == [
        Heartbeat(US + WRITER, READER, first, last, wants_answer=True)
    ]


def test_a_message_of_fast_dds_is_read() -> None:
    """Written by hand after the specification, partly big endian: a gap, a fragment, and a sample for another."""
    gap = READER + WRITER + struct.pack(">iIiII", 0, 3, 0, 5, 33) + struct.pack(">II", 1 << 31, 1 << 31)
    fragment = struct.pack("<HH", 0, 28) + READER + WRITER + struct.pack("<iIIHHI", 0, 9, 2, 1, 1000, 2500) + b"abcd"
    packet = b"RTPS\x02\x02\x01\x0f" + THEM
    packet += struct.pack("<BBH", 0x09, 1, 8) + bytes(8)  # a time, which is not looked at
    packet += struct.pack(">BBH", 0x08, 0, len(gap)) + gap
    packet += struct.pack("<BBH", 0x0E, 1, 12) + US
    packet += struct.pack("<BBH", 0x16, 1, len(fragment)) + fragment
    packet += struct.pack("<BBH", 0x0E, 1, 12) + b"somebody els"
    packet += packets.data(READER, WRITER, 1, b"for another")
    assert packets.vendor(packet) == packets.FAST_DDS
    assert list(packets.submessages(packet, US)) == [
        Gap(THEM + WRITER, READER, 3, 5, (5, 37)),
        Fragments(THEM + WRITER, READER, 9, 2, 1000, 2500, b"abcd"),
    ]


def test_parameters_and_places_pass_unchanged() -> None:
    told = packets.parameters(
        (packets.ENDPOINT_GUID, THEM + WRITER),
        (packets.TOPIC_NAME, packets.string("rq/sim/pauseRequest")),
        (packets.TYPE_NAME, packets.string("std_srvs::srv::dds_::SetBool_Request_")),
        (packets.UNICAST, struct.pack("<iI16x", 16, 7)),  # shared memory
        (packets.UNICAST, packets.locator(("127.0.0.1", 7411))),
    )
    found = endpoint_of(packets.parameters_of(packets.PARAMETERS + told))
    assert found is not None
    guid, endpoint = found
    assert guid == THEM + WRITER
    assert endpoint.names == ("rq/sim/pauseRequest", "std_srvs::srv::dds_::SetBool_Request_")
    assert endpoint.addresses == (("127.0.0.1", 7411),)
    assert endpoint_of({}) is None


def test_a_participant_is_known_by_its_addresses_and_lease() -> None:
    told = packets.parameters(
        (packets.LEASE, struct.pack("<iI", 10, 0)), (packets.METATRAFFIC_UNICAST, packets.locator(("10.0.0.7", 7410)))
    )
    peer, lease_s = peer_of(THEM, packets.parameter_list(told)[0])
    assert (peer.discovery, peer.user, lease_s) == ((("10.0.0.7", 7410),), (("10.0.0.7", 7410),), 10.0)


@settings(max_examples=300)
@given(st.binary(max_size=120), st.integers(0, 200), st.integers(0, 255))
def test_no_packet_does_harm(noise: bytes, place: int, value: int) -> None:
    """Noise behind a good header, and good packets with a byte changed or the end cut off."""
    good = packets.message(
        THEM,
        US,
        packets.data(READER, WRITER, 1, b"payload", packets.parameters((packets.KEY_HASH, bytes(16)))),
        packets.heartbeat(READER, WRITER, 1, 9, 1),
        packets.acknowledgement(READER, WRITER, 1, [3, 40], 1, False),
    )
    changed = bytearray(good)
    changed[place % len(good)] = value
    for packet in (noise, good[:20] + noise, bytes(changed), good[: place % len(good)]):
        if packets.vendor(packet):
            for each in packets.submessages(packet, US):
                if isinstance(each, Sample):
                    packets.parameters_of(each.payload)


# ---- streams ---------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0.0, 0.7))
def test_everything_arrives_once_over_a_bad_network(seed: int, count: int, loss: float) -> None:
    chance = random.Random(seed)
    sender, receiver, arrived = Deliveries(), Arrivals(), []
    flying: list[int] = []  # samples on their way
    for _ in range(count):
        number = sender.add(0.0)
        sender.waiting[number] = struct.pack("<I", number)
        flying.append(number)
    for _ in range(1000):
        chance.shuffle(flying)
        for number in flying:
            for _ in range(chance.choice((1, 1, 2))):
                if chance.random() >= loss and receiver.take(number):
                    arrived.append(number)
        if not sender.waiting:
            break
        flying = []
        if chance.random() >= loss:  # the heartbeat
            missing = receiver.hear(sender.first, sender.last)
            if chance.random() >= loss:  # its answer
                flying = [struct.unpack("<I", again)[0] for again in sender.acknowledge(receiver.next, missing, 0.0)]
    assert sorted(arrived) == list(range(1, count + 1))
    assert not sender.waiting
    assert receiver.next == count + 1


def test_what_was_before_is_not_waited_for() -> None:
    late = Arrivals()
    assert late.hear(5, 6) == [5, 6]
    assert late.take(6)
    late.skip(5, 6, ())
    assert late.next == 7
    assert not late.take(3)
    gapped = Arrivals()
    gapped.skip(1, 3, (4, 5))
    assert gapped.hear(1, 6) == [3, 6]


@given(st.integers(1, 500), st.integers(1, 64), st.randoms())
def test_a_sample_in_fragments_is_put_together_in_any_order(total: int, size: int, chance: random.Random) -> None:
    whole = bytes(chance.randrange(256) for _ in range(total))
    count = -(-total // size)
    pieces = [(number, whole[(number - 1) * size : number * size]) for number in range(1, count + 1)]
    chance.shuffle(pieces)
    arrivals = Arrivals()
    found = [arrivals.take_piece(1, number, size, total, data) for number, data in [*pieces, pieces[0]]]
    assert [each for each in found if each is not None] == [whole]
    assert arrivals.next == 2


@pytest.mark.parametrize(("first", "size", "total"), [(0, 10, 30), (4, 10, 30), (1, 0, 30), (1, 10, 2**31)])
def test_fragments_that_make_no_sense_are_left_out(first: int, size: int, total: int) -> None:
    assert Arrivals().take_piece(1, first, size, total, b"0123456789") is None


def test_reminders_become_rare_and_stop_when_all_has_arrived() -> None:
    deliveries = Deliveries()
    deliveries.waiting[deliveries.add(0.0)] = b"sample"
    times = [step / 100 for step in range(2000) if deliveries.is_due(step / 100)]
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(Deliveries.LONGEST_PAUSE_S, abs=0.02)
    assert deliveries.acknowledge(2, (), 0.0) == []
    assert not deliveries.is_due(1e9)


def test_a_client_that_never_acknowledges_is_not_remembered_for_ever() -> None:
    deliveries = Deliveries(limit=3)
    for _ in range(10):
        deliveries.waiting[deliveries.add(0.0)] = b"reply"
    assert sorted(deliveries.waiting) == [8, 9, 10]
    assert deliveries.first == 8


# ---- a whole conversation --------------------------------------------------------------------------------------------

PARTICIPANTS, WRITERS, READERS = b"\x00\x01\x00\xc2", b"\x00\x00\x03\xc2", b"\x00\x00\x04\xc2"
REQUEST, REPLY = ("rq/addRequest", "t::srv::dds_::Add_Request_"), ("rr/addReply", "t::srv::dds_::Add_Response_")


class Client:
    """A client of Fast DDS on a socket, reduced to what it sends."""

    def __init__(self) -> None:
        self.has_called = threading.Event()
        self.participant = ServiceParticipant(101, ["127.0.0.1"], False)
        self.participant.wake = self.has_called.set
        self.participant.start()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(60.0)
        self.samples: list[Sample] = []

    def send(self, *submessages: bytes) -> None:
        packet = packets.message(THEM, self.participant.prefix, *submessages)
        packet = packet[:6] + packets.FAST_DDS + packet[8:]
        self.socket.sendto(packet, self.participant._socket.getsockname())

    def announce(self, writer: bytes, number: int, *values: tuple[int, bytes]) -> None:
        self.send(packets.data(bytes(4), writer, number, packets.PARAMETERS + packets.parameters(*values)))

    def wait_for(self, writer: bytes, count: int = 1) -> list[Sample]:
        """The first samples of one of the participant's writers."""
        while True:
            found = {each.number: each for each in self.samples if each.writer == self.participant.prefix + writer}
            if len(found) >= count:
                return [found[number] for number in sorted(found)]
            arrived = packets.submessages(self.socket.recv(65536), THEM)
            self.samples += [each for each in arrived if isinstance(each, Sample)]


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.participant.close()
    client.socket.close()


def endpoint(guid: bytes, names: tuple[str, str]) -> tuple[tuple[int, bytes], ...]:
    topic, type_name = names
    return (
        (packets.ENDPOINT_GUID, guid),
        (packets.TOPIC_NAME, packets.string(topic)),
        (packets.TYPE_NAME, packets.string(type_name)),
    )


def test_a_client_discovers_the_service_calls_it_and_recognises_its_reply(client: Client) -> None:
    participant, place = client.participant, packets.locator(client.socket.getsockname())
    number = participant.serve(REQUEST, REPLY, "serviceid=1;")
    client.announce(PARTICIPANTS, 1, (packets.METATRAFFIC_UNICAST, place), (packets.DEFAULT_UNICAST, place))
    (introduced,) = client.wait_for(PARTICIPANTS)
    assert packets.parameters_of(introduced.payload)[packets.PARTICIPANT_GUID][0][:12] == participant.prefix
    (announced,) = client.wait_for(READERS)
    found = endpoint_of(packets.parameters_of(announced.payload))
    assert found is not None
    assert found[1].names == REQUEST
    assert not [each for each in client.samples if each.writer[-4:] == WRITERS]  # not before the reader is known

    client.send(packets.acknowledgement(b"\x00\x00\x04\xc7", READERS, 2, [], 1, True))
    offered = [endpoint_of(packets.parameters_of(each.payload)) for each in client.wait_for(WRITERS, 2)]
    assert [each and each[1].names for each in offered] == [REPLY, REPLY]  # one of them never writes

    client.announce(WRITERS, 1, *endpoint(THEM + WRITER, REQUEST))
    client.announce(READERS, 1, *endpoint(THEM + READER, REPLY))
    related = packets.parameters((packets.RELATED_SAMPLE, THEM + READER + packets.number_bytes(1)))
    client.send(packets.data(bytes(4), WRITER, 1, b"\x00\x01\x00\x00two+2", related))
    assert client.has_called.wait(60.0)
    (request,) = participant.requests
    assert (request.service, request.writer, request.number) == (number, THEM + WRITER, 1)
    assert request.body.startswith(b"\x00\x01\x00\x00two+2")

    assert participant.answer(request, b"\x00\x01\x00\x00four")
    (reply,) = client.wait_for(found[0][-4:-1] + b"\x03")
    assert reply.payload == b"\x00\x01\x00\x00four"
    identity = THEM + WRITER + packets.number_bytes(1)
    assert reply.inline[packets.RELATED_SAMPLE] == reply.inline[packets.RELATED_SAMPLE_OF_FAST_DDS] == [identity]


def test_a_reply_waits_for_the_reader_of_its_client(client: Client) -> None:
    """Requests and discovery are different streams: a request may come before the reader of its reply is known."""
    participant, place = client.participant, packets.locator(client.socket.getsockname())
    participant.serve(REQUEST, REPLY, "")
    client.announce(PARTICIPANTS, 1, (packets.METATRAFFIC_UNICAST, place), (packets.DEFAULT_UNICAST, place))
    client.wait_for(READERS)
    client.announce(WRITERS, 1, *endpoint(THEM + WRITER, REQUEST))
    client.send(packets.data(bytes(4), WRITER, 1, b"\x00\x01\x00\x00ping"))
    assert client.has_called.wait(60.0)
    assert participant.answer(participant.requests.popleft(), b"\x00\x01\x00\x00pong")
    client.announce(READERS, 1, *endpoint(THEM + READER, REPLY))
    client.send(packets.acknowledgement(READER, b"\x00\x00\x01\x03", 0, [], 1, False))  # the reader says hello
    (reply,) = client.wait_for(b"\x00\x00\x01\x03")
    assert reply.payload == b"\x00\x01\x00\x00pong"


def test_a_reply_that_does_not_fit_into_a_packet_is_refused(client: Client) -> None:
    request = RtpsRequest(1, THEM + WRITER, 1, b"", b"")
    assert not client.participant.answer(request, bytes(packets.LARGEST + 1))
