"""The parts of the live tools, without a network: values, types from files, transforms, nodes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim import messages as wire
from microsim.documents.yaml_text import read_yaml
from microsim.errors import UsageError
from microsim.messages.mappings import field_at, to_plain
from microsim.messages.type_files import add_types, find_type, no_type
from microsim.parts.live_tools.live import json_text, yaml_text

pytest.importorskip("cyclonedds")

from microsim.parts.live_tools.client.transform_buffer import (
    STATIC,
    FrameHistory,
    Transform,
    between,
    combined,
    inverse,
)
from microsim.parts.ros2.transport.graph_view import read_nodes

TWIST, IMAGE = "geometry_msgs/msg/Twist", "sensor_msgs/msg/Image"

# ---- values


@pytest.mark.parametrize(
    ("type_name", "values", "expected"),
    [
        (TWIST, {"linear": {"x": "fast"}}, r"Twist: linear.x: expected float64, found 'fast'"),
        (TWIST, {"linear": 5}, r"linear: expected a mapping with x, y, z \(geometry_msgs/msg/Vector3\), found 5"),
        (TWIST, {"linaer": {}}, r"Twist has no field 'linaer'; did you mean 'linear'\? there are: linear, angular"),
        ("std_msgs/msg/Int8", {"data": 200}, r"data: expected int8 \(-128 to 127\), found 200"),
        ("std_msgs/msg/Int8", {"data": 1.5}, r"data: expected int8, found 1.5"),
        ("std_msgs/msg/Bool", {"data": "yes"}, r"data: expected bool, found 'yes'"),
        ("std_msgs/msg/String", {"data": [1]}, r"data: expected string, found \[1\]"),
        (IMAGE, {"data": "not base64!"}, r"data: expected a list of bytes, or Base64, found 'not base64!'"),
        ("geometry_msgs/msg/PoseWithCovariance", {"covariance": [1.0]}, r"covariance: expected 36 values of float64"),
        ("tf2_msgs/msg/TFMessage", {"transforms": [{"header": {"stamp": {"sec": "x"}}}]},
         r"transforms\[0\].header.stamp.sec: expected int32, found 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_with_its_path_and_type(type_name: str, values: object, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        wire.from_mapping(type_name, values)  # type: ignore[arg-type]


def test_all_wrong_fields_are_reported_at_once() -> None:
    with pytest.raises(UsageError, match=r"(?s)2 problems:.*linear.x.*angular.z"):
        wire.from_mapping(TWIST, {"linear": {"x": "a"}, "angular": {"z": None}})


def test_values_are_taken_as_ros2_takes_them() -> None:
    assert wire.from_mapping("std_msgs/msg/String", {"data": 5}).data == "5"
    assert wire.from_mapping("std_msgs/msg/Int32", {"data": 2.0}).data == 2
    assert math.isnan(wire.from_mapping("std_msgs/msg/Float64", {"data": ".nan"}).data)
    stamped = wire.from_mapping("geometry_msgs/msg/PoseStamped", {"header": "auto"}, defaults=True)
    assert stamped.header.stamp.sec > 10**9
    assert stamped.pose.orientation.w == 1.0
    assert wire.from_mapping("geometry_msgs/msg/Pose", {}).orientation.w == 0.0


def test_json_and_yaml_of_a_message_are_accepted_as_values_again() -> None:
    values = {"height": 1, "width": 2, "encoding": "on", "step": 6, "data": list(range(6))}
    message = wire.from_mapping(IMAGE, values)
    as_json, as_yaml = json_text(to_plain(message, in_base64=True)), yaml_text(to_plain(message))
    for text in (as_json, as_yaml):
        assert wire.encode(IMAGE, wire.from_mapping(IMAGE, read_yaml(text, "x").data)) == wire.encode(IMAGE, message)
    assert isinstance(json.loads(as_json)["data"], str)


leaves = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=8))
names = st.from_regex(r"f[a-z]{1,4}", fullmatch=True)
plain_data = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(names, plain_data, min_size=1, max_size=3))
def test_what_is_printed_as_yaml_reads_as_the_same(data: dict[str, object]) -> None:
    assert read_yaml(yaml_text(data), "x").data == data


def test_long_lists_are_cut_and_say_by_how_much() -> None:
    plain = to_plain(wire.new("sensor_msgs/msg/LaserScan", ranges=np.zeros(200, np.float32)), longest=128)
    assert len(plain["ranges"]) == 129
    assert plain["ranges"][-1] == "... 72 more"


def test_a_field_is_found_by_its_path() -> None:
    message = wire.from_mapping("tf2_msgs/msg/TFMessage", {"transforms": [{"child_frame_id": "a"}]})
    assert field_at(message, "transforms[0].child_frame_id") == "a"
    with pytest.raises(UsageError, match=r"transforms has 1 elements, no \[1\]"):
        field_at(message, "transforms[1]")
    with pytest.raises(UsageError, match=r"has no field 'child_frame'; did you mean 'child_frame_id'"):
        field_at(message, "transforms[0].child_frame")


# ---- types


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        path = folder / "demo_msgs" / suffix.replace("idl", "msg") / f"{stem}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_messages_services_actions_and_idl_are_read_from_a_folder(tmp_path: Path) -> None:
    idl = '#include "std_msgs/msg/Header.idl"\nmodule demo_msgs { module msg { struct Other { double a; }; }; };'
    files = {"Point2_msg": "int32 X=1\nfloat64 x\nfloat64 y 1.0\n", "Go_srv": "Point2 to\n---\nbool ok\n"}
    found = add_types(write(tmp_path, **files, Count_action="int32 n\n---\nint32 sum\n---\nint32 at\n", Other_idl=idl))
    assert {"demo_msgs/msg/Point2", "demo_msgs/srv/Go_Request", "demo_msgs/msg/Other"} <= set(found)
    assert find_type("demo_msgs/srv/Go")
    assert find_type("demo_msgs/action/Count")
    message = wire.from_mapping("demo_msgs/srv/Go_Request", {"to": {"x": 2.0}})
    cdr = wire.encode("demo_msgs/srv/Go_Request", message)
    assert wire.decode_checked("demo_msgs/srv/Go_Request", cdr).to.x == 2.0


def test_types_of_other_versions_of_ros2_are_found() -> None:
    assert find_type("nav_msgs/msg/Goals")  # new in Kilted
    assert not find_type("nav_msgs/msg/Nothing")


def test_a_type_that_cannot_be_read_does_not_hide_the_others_of_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of it may be newer than this program."""
    definitions = {
        "srv/Add.srv": "int64 a\n---\nint64 sum\n",
        "msg/Wide.msg": "wstring[] texts\n",
        "msg/Holder.msg": "Broken part\n",
        "msg/Broken.msg": "int32\n",
    }
    for name, text in definitions.items():
        path = tmp_path / "share" / "odd_interfaces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert find_type("odd_interfaces/srv/Add")
    assert find_type("odd_interfaces/msg/Wide")
    for name, why in (("Holder", "not defined"), ("Broken", "not a valid .msg")):
        with pytest.raises(UsageError, match=why):
            find_type(f"odd_interfaces/msg/{name}")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"Bad_msg": "int32\n"}, r"Bad.msg: not a valid .msg file"),
        ({"Half_srv": "int32 a\n"}, r"Half.srv: expected 2 parts separated by ---, found 1"),
        ({"Needs_msg": "other_msgs/Thing thing\n"}, r"Needs needs other_msgs/msg/Thing: .* is not defined"),
        ({}, r"contains no .msg, .srv, .action, .idl file"),
    ],
)
def test_a_folder_that_cannot_be_used_is_explained(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        add_types(write(tmp_path, **files))


def test_an_unknown_type_suggests_the_nearest() -> None:
    assert "did you mean 'geometry_msgs/msg/Twist'?" in str(no_type("geometry_msgs/msg/Twst"))
    assert "did you mean 'geometry_msgs/msg/Twist'?" in str(no_type("Twist"))
    assert "--types" in str(no_type("nobody_msgs/msg/Cell"))


# ---- transforms


def turned(angle: float, x: float = 0.0, time_ns: int = STATIC, target: str = "a", source: str = "b") -> Transform:
    rotation = (0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))
    return Transform(target, source, time_ns, (x, 0.0, 0.0), rotation)


@given(st.floats(-3.0, 3.0), st.floats(-9.0, 9.0), st.floats(-9.0, 9.0))
def test_a_transform_and_its_inverse_cancel(angle: float, x: float, y: float) -> None:
    there = turned(angle, x)
    both = combined(inverse(there), there)
    assert both.apply((x, y, 1.0)) == pytest.approx((x, y, 1.0), abs=1e-9)


def test_transforms_are_interpolated_on_the_shorter_arc() -> None:
    half = between(turned(3.0, 0.0, 0), turned(-3.0, 2.0, 100), 50)
    assert half.translation[0] == pytest.approx(1.0)
    assert abs(half.yaw) == pytest.approx(math.pi)


def test_a_history_answers_within_its_times_and_forgets_a_run_that_was_reset() -> None:
    history = FrameHistory()
    for second in range(30):
        history.take(turned(0.0, float(second), second * 10**9))
    assert history.at(25_500_000_000).translation[0] == pytest.approx(25.5)  # type: ignore[union-attr]
    assert history.at(5 * 10**9) is None  # longer ago than ten seconds
    history.take(turned(0.0, -1.0, 0))
    assert history.at(None).translation[0] == -1.0  # type: ignore[union-attr]


# ---- the graph


def discovery_info(gid_size: int) -> bytes:
    def text(value: str) -> bytes:
        raw = value.encode() + b"\0"
        return len(raw).to_bytes(4, "little") + raw + bytes(-len(raw) % 4)

    gids = [bytes([number]) * 16 + bytes(gid_size - 16) for number in (1, 2, 3)]
    nodes = text("/ns") + text("talker") + (1).to_bytes(4, "little") + gids[1] + (1).to_bytes(4, "little") + gids[2]
    return b"\x00\x01\x00\x00" + gids[0] + (1).to_bytes(4, "little") + nodes


@pytest.mark.parametrize("size", [16, 24])
def test_nodes_of_old_and_new_versions_are_read(size: int) -> None:
    cdr = discovery_info(size)
    assert read_nodes(cdr, size) == (b"\x01" * 12, [("/ns/talker", [b"\x02" * 16, b"\x03" * 16])])
    assert read_nodes(cdr, 40 - size) is None  # the other size


@given(st.binary(max_size=80), st.sampled_from([16, 24]))
def test_garbage_is_no_picture_of_nodes(garbage: bytes, size: int) -> None:
    read_nodes(b"\x00\x01\x00\x00" + garbage, size)
