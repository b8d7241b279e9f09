"""Bytes from outside: a message or WireError, whatever they are."""

import struct
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microsim import messages as wire
from microsim.errors import MicroSimError
from microsim.messages import WireError, decode_checked
from microsim.messages.types import definitions

TWIST = "geometry_msgs/msg/Twist"
STRING = "std_msgs/msg/String"
INPUTS = [TWIST, "geometry_msgs/msg/TwistStamped", "geometry_msgs/msg/PoseStamped", "std_msgs/msg/ByteMultiArray"]
REQUESTS = [name for name in definitions() if "/srv/" in name and name.endswith("_Request")]
HEADER = b"\x00\x01\x00\x00"


def filled(type_name: str) -> bytes:
    """A message whose strings and sequences are not empty."""
    values = {
        "geometry_msgs/msg/TwistStamped": {"header": {"frame_id": "drone/base_link"}},
        "geometry_msgs/msg/PoseStamped": {"header": {"frame_id": "map"}, "pose": {"position": {"x": 1.0}}},
        "std_msgs/msg/ByteMultiArray": {
            "layout": {"dim": [{"label": "x", "size": 3, "stride": 1}, {"label": "", "size": 1, "stride": 1}]},
            "data": [1, 2, 3],
        },
        "rcl_interfaces/srv/SetParameters_Request": {
            "parameters": [
                {"name": "a.b", "value": {"type": 9, "string_array_value": ["x", "", "ü"]}},
                {"name": "c", "value": {"type": 6, "bool_array_value": [True, False]}},
            ]
        },
        "simulation_interfaces/srv/GetEntities_Request": {
            "filters": {
                "filter": ".*",
                "categories": [{"category": 1}],
                "bounds": {"points": [{"x": 1.0}, {"y": 2.0}]},
            }
        },
    }.get(type_name, {})
    return wire.encode(type_name, wire.from_mapping(type_name, values))


@pytest.mark.parametrize("type_name", [*INPUTS, *REQUESTS])
def test_real_messages_pass_and_come_out_as_rosbags_decodes_them(type_name: str) -> None:
    cdr = filled(type_name)
    assert wire.encode(type_name, decode_checked(type_name, cdr)) == cdr


@given(st.sampled_from([*INPUTS, *REQUESTS]), st.binary(max_size=400), st.booleans())
@settings(max_examples=400, deadline=None)
def test_arbitrary_bytes_give_a_message_or_a_wire_error(type_name: str, noise: bytes, with_header: bool) -> None:
    decode_or_refuse(type_name, HEADER + noise if with_header else noise)


@given(
    st.sampled_from([*INPUTS, *REQUESTS]),
    st.lists(st.tuples(st.integers(0, 500), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])), min_size=1, max_size=4),
    st.integers(-20, 20),
)
@settings(max_examples=600, deadline=None)
@example("rcl_interfaces/srv/SetParameters_Request", [(7, 0xFF)], 0)
def test_damaged_messages_give_a_message_or_a_wire_error(
    type_name: str, damage: list[tuple[int, int]], longer: int
) -> None:
    cdr = bytearray(filled(type_name))
    for index, byte in damage:
        cdr[index % len(cdr)] = byte
    decode_or_refuse(type_name, bytes(cdr[:longer]) if longer < 0 else bytes(cdr) + bytes(longer))


def decode_or_refuse(type_name: str, cdr: bytes) -> None:
    try:
        message = decode_checked(type_name, cdr)
    except WireError:
        return
    again = wire.encode(type_name, message)
    assert len(again) - 4 <= len(cdr) <= len(again) + 3  # nothing invented, nothing passed over but padding


@pytest.mark.parametrize(
    ("cdr", "why"),
    [
        (b"", "0 bytes are not a message"),
        (b"\x00\x01\x00", "not a message"),
        (b"\x00\x00\x00\x00" + bytes(48), "big-endian"),
        (b"\x00\x03\x00\x00" + bytes(48), "unknown encapsulation 00 03"),
        (HEADER + bytes(47), "too few"),
        (HEADER + bytes(52), "left over"),
    ],
)
def test_what_is_wrong_is_said(cdr: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why) as caught:
        decode_checked(TWIST, cdr)
    assert TWIST in str(caught.value)
    assert isinstance(caught.value, MicroSimError)


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe\x00", b"ab", b"a\x00b\x00", b""],
    ids=["not UTF-8", "no zero at the end", "a zero inside", "no length"],
)
def test_bad_strings_are_refused(text: bytes) -> None:
    cdr = HEADER + struct.pack("<I", len(text)) + text
    with pytest.raises(WireError):
        decode_checked(STRING, cdr + bytes(-len(cdr) % 4))


def test_a_byte_that_is_no_bool_is_refused() -> None:
    with pytest.raises(WireError, match="neither true nor false"):
        decode_checked("std_srvs/srv/SetBool_Request", HEADER + b"\x02\x00\x00\x00")


def test_a_request_without_the_header_it_should_have_is_refused() -> None:
    body = wire.encode("std_srvs/srv/SetBool_Request", wire.new("std_srvs/srv/SetBool_Request", data=True))
    with pytest.raises(WireError):
        decode_checked("std_srvs/srv/SetBool_Request", HEADER + (HEADER + body[4:])[20:])


@pytest.mark.parametrize(
    "type_name", ["std_msgs/msg/ByteMultiArray", "rcl_interfaces/srv/SetParameters_Request", STRING]
)
def test_a_length_of_four_billion_in_thirty_bytes_allocates_nothing(type_name: str) -> None:
    decode_checked(type_name, filled(type_name))  # what is made once
    cdr = HEADER + b"\xff\xff\xff\xff" + bytes(22)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode_checked(type_name, cdr)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_message_of_another_type_is_refused_or_has_its_shape() -> None:
    with pytest.raises(WireError):
        decode_checked(TWIST, filled("geometry_msgs/msg/TwistStamped"))
    with pytest.raises(WireError):
        decode_checked("geometry_msgs/msg/TwistStamped", filled(TWIST))
