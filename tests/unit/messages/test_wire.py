"""Messages as bytes: every type there and back, templates equal to real encoding, type hashes as ROS 2 has them."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.interfaces import Nodetype

from microsim.messages import RawTemplate, Template, decode, encode, fields_of, is_known, new, type_hash
from microsim.messages.template import layout
from microsim.messages.topics import table
from tests.support import many

TYPES = sorted({topic.type for topic in table()} | {"geometry_msgs/msg/TwistStamped", "sensor_msgs/msg/PointCloud2"})
LIMITS = {
    "byte": (0, 127),  # the library packs a single byte as signed; a level of a diagnostic is 0 to 3
    "char": (0, 255),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}


def base_values(base):
    if base == "string":
        return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
    if base == "float32":
        return st.floats(width=32)
    if base == "float64":
        return st.floats()
    if base == "bool":
        return st.booleans()
    return st.integers(*LIMITS[base])


def values(kind):
    node, detail = kind
    if node == Nodetype.BASE:
        return base_values(detail[0])
    if node == Nodetype.NAME:
        return messages(detail)
    element, length = detail
    size = (0, 4) if node == Nodetype.SEQUENCE else (length, length)
    items = st.lists(values(element), min_size=size[0], max_size=size[1])
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        like = new_array_type(element[1][0])
        return items.map(lambda numbers: np.array(numbers, like))
    return items


def new_array_type(base):
    return {"bool": np.bool_, "byte": np.uint8, "char": np.uint8, "octet": np.uint8}.get(base) or np.dtype(base)


def messages(type_name):
    return st.fixed_dictionaries({name: values(kind) for name, kind in fields_of(type_name)}).map(
        lambda fields: new(type_name, **fields)
    )


@pytest.mark.parametrize("type_name", TYPES)
@settings(max_examples=many(25))
@given(st.data())
def test_what_is_decoded_encodes_to_the_same_bytes(type_name, data):
    blob = encode(type_name, data.draw(messages(type_name)))
    assert blob[:4] == b"\x00\x01\x00\x00"
    assert len(blob) % 4 == 0
    assert encode(type_name, decode(type_name, blob)) == blob


@pytest.mark.parametrize("type_name", TYPES)
@settings(max_examples=many(25))
@given(st.data())
def test_the_layout_finds_every_number_where_real_encoding_puts_it(type_name, data):
    message = data.draw(messages(type_name))
    blob = encode(type_name, message)
    for path, place in layout(type_name, message).items():
        found = struct.unpack_from(f"<{place.count}{place.code}", blob, place.offset)
        value = at(message, path)
        expected = np.asarray(value).ravel().tolist() if isinstance(value, np.ndarray) else [value]
        expected = [np.float32(x).item() for x in expected] if place.code == "f" else expected
        assert all(same(a, b) for a, b in zip(found, expected, strict=True)), path


def at(message, path):
    for part in path.split("."):
        name, _, index = part.partition("[")
        message = getattr(message, name)
        if index:
            message = message[int(index[:-1])]
    return message


def same(a, b):
    return a == b or (a != a and b != b)


@settings(max_examples=many(100))
@given(st.lists(st.floats(), min_size=13, max_size=13), st.integers(0, 2**31 - 1), st.integers(0, 999_999_999))
def test_a_template_gives_the_bytes_of_real_encoding(numbers, sec, nanosec):
    type_name = "nav_msgs/msg/Odometry"
    message = new(type_name, child_frame_id="drone/base_link")
    message.header.frame_id = "odom"
    message.pose.covariance[::7] = 0.25
    template = Template(
        type_name, message, ("header.stamp.sec", 2), ("pose.pose.position.x", 7), ("twist.twist.linear.x", 6)
    )
    built = template.encode((sec, nanosec), numbers[:7], numbers[7:])
    message.header.stamp.sec, message.header.stamp.nanosec = sec, nanosec
    p, q = message.pose.pose.position, message.pose.pose.orientation
    p.x, p.y, p.z, q.x, q.y, q.z, q.w = numbers[:7]
    a, b = message.twist.twist.linear, message.twist.twist.angular
    a.x, a.y, a.z, b.x, b.y, b.z = numbers[7:]
    assert built == encode(type_name, message)


def test_a_template_does_not_remember_what_it_wrote_before():
    template = Template("sensor_msgs/msg/Range", new("sensor_msgs/msg/Range"), ("header.stamp.sec", 2), ("range", 1))
    first = template.encode((1, 2), (3.5,))
    template.encode((9, 9), (math.inf,))
    assert template.encode((1, 2), (3.5,)) == first


def test_bytes_given_out_do_not_change_with_the_next_message():
    message = new("sensor_msgs/msg/Image", data=np.zeros(6, np.uint8))
    template = RawTemplate("sensor_msgs/msg/Image", message, "data")
    first = template.encode((1, 0), bytes([1, 2, 3, 4, 5, 6]))
    template.encode((2, 0), bytes(6))
    assert decode("sensor_msgs/msg/Image", first).data.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_raw_template_gives_the_bytes_of_real_encoding():
    message = new("sensor_msgs/msg/LaserScan", ranges=np.zeros(5, np.float32), angle_min=-1.0)
    message.header.frame_id = "scan"
    ranges = np.array([1.5, math.inf, -math.inf, math.nan, 0.0], np.float32)
    built = RawTemplate("sensor_msgs/msg/LaserScan", message, "ranges").encode((7, 8), ranges.tobytes())
    message.ranges, message.header.stamp.sec, message.header.stamp.nanosec = ranges, 7, 8
    assert built == encode("sensor_msgs/msg/LaserScan", message)


def test_numbers_that_do_not_lie_side_by_side_are_refused():
    with pytest.raises(ValueError, match="do not lie side by side"):
        Template("sensor_msgs/msg/NavSatFix", new("sensor_msgs/msg/NavSatFix"), ("header.stamp.sec", 3))


def test_a_new_message_has_every_field_at_zero():
    message = new("nav_msgs/msg/Odometry")
    assert message.child_frame_id == ""
    assert message.pose.covariance.tolist() == [0.0] * 36
    assert message.pose.pose.position.x == 0.0
    assert new("visualization_msgs/msg/MarkerArray").markers == []


def test_an_unknown_field_is_named_with_those_there_are():
    with pytest.raises(TypeError, match=r"no field rnage; there are: header.*range"):
        new("sensor_msgs/msg/Range", rnage=1.0)


def test_known_types_are_known():
    assert all(is_known(type_name) for type_name in TYPES)
    assert not is_known("sensor_msgs/msg/Altimeter")


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("std_msgs/msg/String", "RIHS01_df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"),
        ("builtin_interfaces/msg/Time", "RIHS01_b106235e25a4c5ed35098aa0a61a3ee9c9b18d197f398b0e4206cea9acf9c197"),
        ("std_msgs/msg/Header", "RIHS01_f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01"),
        ("geometry_msgs/msg/Twist", "RIHS01_9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a"),
    ],
)
def test_type_hashes_are_those_of_ros_2(type_name, value):
    """As `ros2 topic info --verbose` shows them."""
    assert type_hash(type_name) == value
