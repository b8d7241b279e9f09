"""Services and actions as types: what a ROS 2 node of another make would announce and send."""

import numpy as np
import pytest

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.checked import modernised
from microsim.messages.types import DEFINITIONS, definitions

# as rosidl prints them in the packages' own *.json files and generated sources
HASHES = {
    "builtin_interfaces/msg/Time": "b106235e25a4c5ed35098aa0a61a3ee9c9b18d197f398b0e4206cea9acf9c197",
    "std_msgs/msg/Header": "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01",
    "std_msgs/msg/ByteMultiArray": "972fec7f50ab3c1d06783c228e79e8a9a509021708c511c059926261ada901d4",
    "std_msgs/msg/String": "df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18",
    "rosgraph_msgs/msg/Clock": "692f7a66e93a3c83e71765d033b60349ba68023a8c689a79e48078bcb5c58564",
    "sensor_msgs/msg/Range": "b42b62562e93cbfe9d42b82fe5994dfa3d63d7d5c90a317981703f7388adff3a",
    "std_srvs/srv/Empty_Request": "458eaf200a3f63d9cc53d19436edebc0c140ef4c93ca75d5bd4ce19fd7759e35",
    "std_srvs/srv/SetBool_Request": "c62fbb99d94e1b25e8ef9e109f9581956bb1b3361a45a4e5810c36a90d29932e",
    "std_srvs/srv/SetBool_Response": "d0814e7f7b4880ab77e9c57426c7aa1562ab69f11eef8e2e968812f9cbd0b059",
    "std_srvs/srv/Trigger_Response": "2d946c21e2fc3f1e9ca6986a8191d85fcc70097a8bb7771a053564bc47009cdf",
    "action_msgs/srv/CancelGoal_Response": "35e682cf3f510e83c70a82a4aac888496dedee56773bf9d8e5e0aa81f9e1c960",
    "rcl_interfaces/srv/SetParameters_Request": "130d46386b7e84ea9ecf60608a4d83cbe5e5cb7c6cc5b712b7a4e3a6c254e932",
    "rcl_interfaces/srv/ListParameters_Response": "31b937b82de3612426be79f231e386259f97e8dc843e3f2845288b4bfa296bdd",
    "rcl_interfaces/srv/GetParameterTypes_Response": "ac1335dce67c478e669434f6ac2fbff34fcd529580f272d3006785ba8b54e47f",
    "simulation_interfaces/msg/Result": "cf43a306adff3337a0a47143d8f5689933bc70a30478f13b077dc1fe3bc5ad17",
    "simulation_interfaces/srv/StepSimulation_Request": (
        "cda33f6887815f3dce0f90e61fd8efd39bda13ae264ddede15c33fbad890630e"
    ),
    "simulation_interfaces/srv/StepSimulation_Response": (
        "5b4acf2d0ce7c3fc125d0bef2acb9b5a81377e80db6b696b81beeffb9824fb5c"
    ),
}


@pytest.mark.parametrize("type_name", HASHES)
def test_type_hashes_are_those_of_ros_2(type_name: str) -> None:
    assert wire.type_hash(type_name) == f"RIHS01_{HASHES[type_name]}"


@pytest.mark.parametrize("type_name", definitions())
def test_every_type_goes_to_bytes_and_back(type_name: str) -> None:
    message = wire.new(type_name)
    cdr = wire.encode(type_name, message)
    assert cdr[:4] == b"\x00\x01\x00\x00"
    assert len(cdr) % 4 == 0
    assert wire.encode(type_name, wire.decode_checked(type_name, cdr)) == cdr


def test_every_file_of_the_folder_is_read() -> None:
    files = [path for path in DEFINITIONS.rglob("*") if path.is_file()]
    assert len(files) == 73
    known = definitions()
    for path in files:
        name = "/".join(path.relative_to(DEFINITIONS).with_suffix("").parts)
        ends = {".msg": ("",), ".srv": ("_Request", "_Response"), ".action": ("_Goal", "_Result", "_Feedback")}
        assert all(f"{name}{end}" in known for end in ends[path.suffix]), path
        assert path.suffix[1:] == path.parent.name


def test_bytes_are_octets() -> None:
    """`byte` is an octet in IDL; a signed one would give a radio packet of [200] as -56."""
    payload = bytes(range(256))
    kind = "std_msgs/msg/ByteMultiArray"
    cdr = wire.encode(kind, wire.new(kind, data=np.frombuffer(payload, np.uint8)))
    decoded = wire.decode(kind, cdr).data
    assert decoded.tolist() == list(payload)
    assert bytes(decoded) == payload
    status = wire.new("diagnostic_msgs/msg/DiagnosticStatus", level=200)
    assert wire.decode(status.__msgtype__, wire.encode(status.__msgtype__, status)).level == 200


def test_an_empty_request_carries_one_byte_padded_to_four() -> None:
    assert wire.encode("std_srvs/srv/Empty_Request", wire.new("std_srvs/srv/Empty_Request")) == bytes(
        [0, 1, 0, 0] + [0] * 4
    )


def test_a_set_bool_request_has_the_bytes_ros_2_sends() -> None:
    request = wire.new("std_srvs/srv/SetBool_Request", data=True)
    assert wire.encode("std_srvs/srv/SetBool_Request", request) == bytes([0, 1, 0, 0, 1, 0, 0, 0])


def test_the_standard_result_codes_are_there() -> None:
    codes = wire.constants_of("simulation_interfaces/msg/Result")
    assert (codes["RESULT_OK"], codes["RESULT_NOT_FOUND"], codes["RESULT_INCORRECT_STATE"]) == (1, 2, 3)
    assert wire.constants_of("simulation_interfaces/srv/ResetSimulation_Request")["SCOPE_ALL"] == 255


def test_an_action_gives_the_types_of_its_topics_and_services() -> None:
    action = "simulation_interfaces/action/SimulateSteps"
    assert [name for name, _ in wire.fields_of(f"{action}_SendGoal_Request")] == ["goal_id", "goal"]
    assert [name for name, _ in wire.fields_of(f"{action}_SendGoal_Response")] == ["accepted", "stamp"]
    assert [name for name, _ in wire.fields_of(f"{action}_GetResult_Response")] == ["status", "result"]
    assert [name for name, _ in wire.fields_of(f"{action}_FeedbackMessage")] == ["goal_id", "feedback"]
    assert not wire.is_known(action)


def test_a_request_is_made_from_a_plain_mapping() -> None:
    request = wire.from_mapping(
        "rcl_interfaces/srv/SetParameters_Request",
        {"parameters": [{"name": "a", "value": {"type": 8, "double_array_value": [1, 2.5]}}]},
    )
    again = wire.decode("rcl_interfaces/srv/SetParameters_Request", wire.encode(request.__msgtype__, request))
    assert again.parameters[0].name == "a"
    assert again.parameters[0].value.double_array_value.tolist() == [1.0, 2.5]


def test_an_unknown_field_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"has no field 'dat'; did you mean 'data'\?"):
        wire.from_mapping("std_srvs/srv/SetBool_Request", {"dat": True})


@pytest.mark.parametrize("speed", [0.0, -0.0, 1.5])
def test_a_request_of_simulation_interfaces_1_is_read_as_one_of_2(speed: float) -> None:
    kind = "simulation_interfaces/srv/SetEntityState_Request"
    request = wire.new(kind, entity="rover")
    request.state.pose.position.x, request.state.twist.angular.z = 3.0, speed
    first = wire.encode(kind, request)[:-4]  # without set_pose, set_twist, set_acceleration and padding
    with pytest.raises(wire.WireError):
        wire.decode_checked(kind, first)
    second = modernised(kind, first)
    assert second is not None
    read = wire.decode_checked(kind, second)
    assert (read.entity, read.state.pose.position.x) == ("rover", 3.0)
    assert (read.set_pose, read.set_twist, read.set_acceleration) == (True, speed != 0.0, False)
    assert modernised("std_srvs/srv/SetBool_Request", first) is None
