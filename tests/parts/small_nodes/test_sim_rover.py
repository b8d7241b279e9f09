"""The node fake_rover_state_controller on a transport: its parameters, topics, commands, joystick, wheels and bytes."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from xacrodoc import XacroDoc

import microsim
from microsim.errors import UsageError
from microsim.messages import decode, encode, new
from microsim.messages.topics import DEFAULT_QOS
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.ros2.transport.standalone import ROSOUT, ROSOUT_QOS
from microsim.parts.small_nodes.rover_node import NODE_NAME, WHEEL_JOINTS, RoverCore, RoverSettings, SimRoverNode
from tests.cli_support import ROOT, environment, run_microsim
from tests.forked_python import forked_python

TWIST, POSE, JOINTS = "geometry_msgs/msg/Twist", "geometry_msgs/msg/Pose2D", "sensor_msgs/msg/JointState"
HZ = 50


class Stage:
    """The node and a peer on one bus; time passes when `go` says so."""

    def __init__(self, *parameters: str) -> None:
        self.bus = Bus()
        arguments = [word for parameter in parameters for word in ("-p", parameter)]
        self.node = SimRoverNode(MemoryTransport(NODE_NAME, ["--ros-args", *arguments], self.bus))
        self.core: Any = self.node.core
        self.peer = MemoryTransport("peer", bus=self.bus)
        self._publishers: dict[str, Any] = {}

    def hear(self, topic: str, type_name: str) -> list[Any]:
        got: list[Any] = []
        self.peer.subscribe(topic, type_name, DEFAULT_QOS, lambda cdr: got.append(decode(type_name, cdr)))
        return got

    def lines(self) -> list[tuple[int, str]]:
        got: list[tuple[int, str]] = []
        log = "rcl_interfaces/msg/Log"

        def take(cdr: bytes) -> None:
            line = decode(log, cdr)
            got.append((int(line.level), line.msg))

        self.peer.subscribe(ROSOUT, log, ROSOUT_QOS, take)
        return got

    def say(self, v: float, omega: float = 0.0, topic: str = "/p0/cmd_vel") -> None:
        if topic not in self._publishers:
            self._publishers[topic] = self.peer.publisher(topic, TWIST, DEFAULT_QOS)
        message = new(TWIST)
        message.linear.x, message.angular.z = v, omega
        self._publishers[topic].publish(encode(TWIST, message))

    def go(self, ticks: int = 1) -> None:
        if not self.node._is_started:
            self.node.start()
        for _ in range(ticks):
            self.node.transport.poll()
            self.node.step()
            self.peer.poll()

    @property
    def pose(self) -> tuple[float, float, float]:
        x, y, yaw = self.core.sim.fleet.state[[0, 1, 3], 0].tolist()
        return x, y, yaw

    @property
    def v(self) -> float:

        return float(self.core.sim.fleet.rows("v")[0, 0])

    def set(self, name: str, value: Any) -> Any:
        kinds = {bool: (1, "bool_value"), float: (3, "double_value"), str: (4, "string_value")}
        kind, field = kinds[type(value)]
        content = new("rcl_interfaces/msg/ParameterValue", type=kind, **{field: value})
        wanted = new("rcl_interfaces/msg/Parameter", name=name, value=content)
        call = f"/{NODE_NAME}/set_parameters", "rcl_interfaces/srv/SetParameters"
        return self.peer.call(*call, {"parameters": [wanted]}).results[0]


# ---- the document's tables


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("robot_id", "p0"),
        ("x", 0.0),
        ("y", 0.0),
        ("t", 0.0),
        ("use_dynamics", True),
        ("mass", 5.0),
        ("response_time", 0.3),
        ("direct_joy_control", False),
        ("inertia", 0.5),
        ("linear_drag", 2.0),
        ("angular_drag", 1.0),
        ("max_force", 20.0),
        ("max_torque", 5.0),
        ("command_timeout", 0.5),
    ],
)
def test_every_parameter_of_the_document_is_declared_with_its_default(name: str, default: Any):
    stage = Stage()
    call = f"/{NODE_NAME}/get_parameters", "rcl_interfaces/srv/GetParameters"
    (value,) = stage.peer.call(*call, {"names": [name]}).values
    fields = {1: "bool_value", 3: "double_value", 4: "string_value"}
    assert getattr(value, fields[value.type]) == default


def test_the_node_and_its_topics_have_the_documents_names_and_types():
    stage = Stage("robot_id:=rover", "direct_joy_control:=true")
    assert stage.node.transport.node_name == "/fake_rover_state_controller"
    assert {topic: kind for topic, (kind, _) in stage.core.sim.topics.items()} == {
        "/rover/joint_states": JOINTS,
        "/rover/pose2D": POSE,
        "/diagnostics": "diagnostic_msgs/msg/DiagnosticArray",
    }
    heard = {(each.topic, each.type_name) for each in stage.bus.subscriptions if each.owner is stage.node.transport}
    assert heard == {("/rover/cmd_vel", TWIST), ("/joy/cmd_vel", TWIST)}


def test_the_start_is_where_the_parameters_say():
    stage = Stage("x:=1.5", "y:=-2", "t:=7.0")
    poses = stage.hear("/p0/pose2D", POSE)
    stage.go(0)
    stage.peer.poll()
    assert [(each.x, each.y) for each in poses] == [(1.5, -2.0)]
    assert poses[0].theta == pytest.approx(7.0 - 2 * math.pi, abs=1e-15)


# ---- commands


def test_with_dynamics_a_step_command_ends_at_the_terminal_velocity():
    stage = Stage()
    poses = stage.hear("/p0/pose2D", POSE)
    for _ in range(20):
        stage.say(1.0)
        stage.go(20)
    assert (poses[-1].x - poses[-2].x) * HZ == pytest.approx(5.0 / 5.6, rel=1e-6)
    assert len(poses) == 401


def test_without_dynamics_speed_is_the_command_at_once():
    stage = Stage("use_dynamics:=false")
    stage.say(1.5)
    stage.go()
    assert stage.pose == (1.5 / HZ, 0.0, 0.0)
    stage.say(0.0)
    stage.go(5)
    assert stage.pose == (1.5 / HZ, 0.0, 0.0)


def test_half_a_second_after_the_last_command_the_target_is_zero_and_the_rover_coasts():
    stage = Stage()
    stage.say(1.0)
    stage.go(25)
    before = stage.v
    stage.go(10)
    assert stage.v == pytest.approx(before * (1 - (1 / 0.3 + 2.0 / 5.0) / HZ) ** 10, rel=1e-12)
    stage.go(300)
    assert stage.v < 1e-9


def test_another_timeout_holds_and_zero_means_never():
    for timeout, ticks in ((0.1, 5), (2.0, 100), (0.0, 200)):
        stage = Stage("use_dynamics:=false", f"command_timeout:={timeout}")
        stage.say(1.0)
        stage.go(200)
        assert stage.pose[0] == pytest.approx(ticks / HZ)


def test_commands_beyond_the_limits_are_clamped():
    stage = Stage("use_dynamics:=false", "max_v:=0.5", "max_omega:=0.25")
    stage.say(9.0, -9.0)
    stage.go()
    assert stage.v == 0.5
    assert stage.pose[2] == -0.25 / HZ


@pytest.mark.parametrize("huge", [1e308, -1e308, 1e300])
@pytest.mark.parametrize("mode", ["true", "false"])
def test_no_finite_command_makes_a_number_that_is_none(huge: float, mode: str):
    stage = Stage(f"use_dynamics:={mode}")
    for _ in range(5):
        stage.say(huge, huge)
        stage.go(20)
    assert np.isfinite(stage.core.sim.fleet.state).all()


@pytest.mark.parametrize("bad", [(math.nan, 0.0), (0.0, math.nan), (math.inf, 0.0), (1.0, -math.inf)])
def test_a_command_that_is_no_number_is_ignored_counted_and_said_as_an_error_once_a_second(bad: tuple[float, float]):
    stage = Stage("use_dynamics:=false", "command_timeout:=0.0")
    lines = stage.lines()
    stage.say(1.0)
    stage.go()
    for _ in range(75):
        stage.say(*bad)
        stage.go()
    assert stage.v == 1.0
    assert stage.node.ignored == {"commands with NaN or infinity on /p0/cmd_vel": 75}
    errors = [text for level, text in lines if level == 40]
    assert errors == [
        "/p0/cmd_vel: NaN or infinity, ignored (1 so far)",
        "/p0/cmd_vel: NaN or infinity, ignored (51 so far)",
    ]


def test_fields_that_a_rover_does_not_use_may_hold_anything():
    stage = Stage("use_dynamics:=false")
    publisher = stage.peer.publisher("/p0/cmd_vel", TWIST, DEFAULT_QOS)
    message = new(TWIST)
    message.linear.x, message.linear.y, message.angular.x = 1.0, math.nan, math.inf
    publisher.publish(encode(TWIST, message))
    stage.go()
    assert stage.v == 1.0


# ---- the joystick


def test_the_joystick_wins_as_long_as_its_command_is_in_force():
    stage = Stage("use_dynamics:=false", "direct_joy_control:=true")
    stage.say(0.2, topic="/joy/cmd_vel")
    stage.go()
    for _ in range(24):  # its 25 ticks
        stage.say(1.0)
        stage.go()
        assert stage.v == 0.2
    stage.say(1.0)
    stage.go()
    assert stage.v == 1.0
    assert stage.node.ignored == {"commands on /p0/cmd_vel, overruled by /joy/cmd_vel": 24}
    assert stage.core.overruled == 24


def test_a_joystick_held_at_zero_holds_the_rover():
    stage = Stage("use_dynamics:=false", "direct_joy_control:=true")
    for _ in range(50):
        stage.say(0.0, topic="/joy/cmd_vel")
        stage.say(1.0)
        stage.go()
    assert stage.pose == (0.0, 0.0, 0.0)


def test_in_one_tick_the_joystick_wins_whichever_came_first():
    for order in ((("/joy/cmd_vel", 0.3), ("/p0/cmd_vel", 1.0)), (("/p0/cmd_vel", 1.0), ("/joy/cmd_vel", 0.3))):
        stage = Stage("use_dynamics:=false", "direct_joy_control:=true")
        for topic, v in order:
            stage.say(v, topic=topic)
            stage.node.transport.poll()
        stage.go()
        assert stage.v == 0.3


def test_the_joystick_drives_every_rover_of_the_process():
    stage = Stage("use_dynamics:=false", "direct_joy_control:=true", "count:=3")
    stage.say(0.5, topic="/joy/cmd_vel")
    stage.go()
    assert stage.core.sim.fleet.state[0].tolist() == [0.01] * 3


def test_without_direct_joy_control_nobody_listens_and_it_can_be_turned_on_and_off():
    stage = Stage("use_dynamics:=false")
    publisher = stage.peer.publisher("/joy/cmd_vel", TWIST, DEFAULT_QOS)
    assert publisher.subscribers == 0
    assert stage.set("direct_joy_control", True).successful
    assert publisher.subscribers == 1
    stage.say(0.5, topic="/joy/cmd_vel")
    stage.go()
    assert stage.v == 0.5
    assert stage.set("direct_joy_control", False).successful
    stage.say(0.7)
    stage.go()
    assert stage.v == 0.7  # at once, though the joystick's command had not run out
    stage.go(50)
    stage.say(0.5, topic="/joy/cmd_vel")
    stage.go()
    assert stage.v == 0.0


# ---- joint states and frames


def urdf_joints() -> dict[str, ET.Element]:
    document = XacroDoc.from_file(ROOT / "urdf" / "rover.urdf.xacro").to_urdf_string()
    return {str(joint.get("name")): joint for joint in ET.fromstring(document).findall("joint[@type='continuous']")}


def test_the_joints_are_those_that_move_in_the_urdf():
    assert set(WHEEL_JOINTS) == set(urdf_joints())


def test_wheels_have_the_place_and_size_of_the_urdf():
    settings = RoverSettings()
    for name, joint in urdf_joints().items():
        origin, axis = joint.find("origin"), joint.find("axis")
        assert origin is not None
        assert axis is not None
        _, y, z = (float(word) for word in str(origin.get("xyz")).split())
        assert z == settings.wheel_radius  # it stands on the ground
        assert y == (0.5 if "left" in name else -0.5) * settings.track_width
        assert axis.get("xyz") == "0 1 0"  # positive is forward


def test_wheels_roll_as_far_as_the_rover_drives_and_turn_against_each_other_on_the_spot():
    stage = Stage("use_dynamics:=false", "command_timeout:=0.0")
    joints = stage.hear("/p0/joint_states", JOINTS)
    stage.say(0.68)
    stage.go(50)
    assert joints[-1].name == list(WHEEL_JOINTS)
    assert joints[-1].position == pytest.approx([10.0] * 4)
    assert joints[-1].velocity == pytest.approx([10.0] * 4)
    stage.say(0.0, 1.0)
    stage.go(50)
    turned = 0.5 * 0.33 / 0.068
    assert joints[-1].position == pytest.approx([10.0 - turned, 10.0 + turned] * 2)
    assert joints[-1].velocity == pytest.approx([-turned, turned] * 2)
    assert len(joints[-1].effort) == 0


def test_joint_states_are_stamped_with_the_time_of_day_and_with_own_time_by_ticks():
    before = time.time()
    stage = Stage()
    joints = stage.hear("/p0/joint_states", JOINTS)
    stage.node.run(1)
    stage.peer.poll()
    assert len(joints) == 2
    assert all(before <= each.header.stamp.sec + 1e-9 * each.header.stamp.nanosec <= time.time() for each in joints)
    stage = Stage("publish_clock:=true")
    joints = stage.hear("/p0/joint_states", JOINTS)
    stage.go(3)
    assert [(each.header.stamp.sec, each.header.stamp.nanosec) for each in joints] == [
        (0, k * 20_000_000) for k in range(4)
    ]
    assert joints[0].header.frame_id == "p0/base_link"


def test_frames_are_published_only_when_asked_for_and_are_the_pose():
    stage = Stage()
    stage.go(3)
    assert "/tf" not in stage.core.sim.topics
    stage = Stage("publish_tf:=true", "use_dynamics:=false", "x:=3.0")
    frames, poses = stage.hear("/tf", "tf2_msgs/msg/TFMessage"), stage.hear("/p0/pose2D", POSE)
    stage.say(1.0, 2.0)
    stage.go(20)
    (transform,), pose = frames[-1].transforms, poses[-1]
    assert (transform.header.frame_id, transform.child_frame_id) == ("odom", "p0/base_link")
    place, turn = transform.transform.translation, transform.transform.rotation
    assert (place.x, place.y, place.z) == (pose.x, pose.y, 0.0)
    assert 2 * math.atan2(turn.z, turn.w) == pytest.approx(pose.theta, abs=1e-12)


# ---- diagnostics


def test_diagnostics_show_every_rover_once_a_second_and_what_was_ignored():
    stage = Stage("publish_clock:=true", "count:=2", "use_dynamics:=false", "direct_joy_control:=true")
    found = stage.hear("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    stage.say(0.5, 0.25)
    stage.go(HZ)
    stage.say(0.5, topic="/joy/cmd_vel")
    stage.go()
    stage.say(1.0)
    stage.go(HZ - 1)
    assert [each.header.stamp.sec for each in found] == [0, 1, 2]
    first, second, node = found[1].status
    assert (first.name, first.message) == ("fake_rover_state_controller: p0", "no command")
    assert second.name == "fake_rover_state_controller: p1"
    assert {pair.key: pair.value for pair in first.values} == {
        "linear_mps": "0.000",
        "angular_rps": "0.000",
        "command_age_s": "1.000",
    }
    assert {pair.key: pair.value for pair in found[2].status[2].values} == {"overruled_commands": "1"}
    assert node.name == "fake_rover_state_controller"


def test_diagnostics_can_be_switched_off_and_show_the_pace_of_wall_time():
    assert "/diagnostics" not in Stage("diagnostics_hz:=0.0").core.sim.topics
    stage = Stage()
    found = stage.hear("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    stage.go(HZ)
    assert {"tick_lag_ms", "stalls"} <= {pair.key for pair in found[-1].status[-1].values}


def test_the_node_logs_what_it_waits_for():
    stage = Stage("direct_joy_control:=true", "count:=3")
    lines = stage.lines()
    stage.go(0)
    stage.peer.poll()
    assert [text for _, text in lines] == ["started; waiting for commands on /p0/cmd_vel … /p2/cmd_vel or /joy/cmd_vel"]


# ---- the same in a scenario


def test_it_moves_as_a_rover_of_a_scenario_bit_for_bit():
    core = RoverCore(RoverSettings(x=30.0, y=30.0, max_v=2.0, max_omega=1.2))
    sim = microsim.Simulation(
        {
            "physics_hz": HZ,
            "robots": {
                "rover": {
                    "dynamics": {},
                    "joint_states": {"hz": HZ},
                    "start": {"map_pose": {"x": 30, "y": 30, "yaw": 0}},
                }
            },
        }
    )
    for tick in range(200):
        if tick % 40 < 20:
            core.command(0, 1.5 - 0.01 * tick, 0.4)
            sim.command("rover", v=1.5 - 0.01 * tick, omega=0.4)
        joints = [each.message for each in core.step() if each.topic == "/p0/joint_states"][-1]
        expected = [each.message for each in sim.step() if each.topic == "/rover/joint_states"][-1]
        assert joints.position.tolist() == expected.position.tolist()
        assert joints.velocity.tolist() == expected.velocity.tolist()
    assert core.sim.rows("p0") == sim.rows("rover")
    assert joints.position[0] != joints.position[1]


def test_a_kinematic_rover_of_a_scenario_has_no_wheels_that_turn():
    with pytest.raises(microsim.ScenarioError, match=r"joint_states.*dynamics"):
        microsim.Simulation({"robots": {"rover": {"joint_states": {}}}})


# ---- noise


def poses_of(core: RoverCore, ticks: int) -> np.ndarray[Any, Any]:
    found = []
    for tick in range(ticks):
        found += [each.message for each in core.step(min(tick, 1)) if each.topic.endswith("pose2D")]
    return np.array([(each.x, each.y, each.theta) for each in found])


def test_without_noise_pose2d_is_exact():
    core = RoverCore(RoverSettings(x=1.25, y=-7.5, t=0.3))
    assert (poses_of(core, 20) == (1.25, -7.5, 0.3)).all()


def test_noise_has_its_sigma_is_white_and_wraps_theta():
    core = RoverCore(RoverSettings(position_noise=0.2, heading_noise=0.05, t=math.pi, seed=4))
    n = 4000
    noise = poses_of(core, n)
    assert (np.abs(noise[:, 2]) <= math.pi).all()
    noise[:, 2] = [math.remainder(theta - math.pi, 2 * math.pi) for theta in noise[:, 2]]
    for column, sigma in enumerate((0.2, 0.2, 0.05)):
        values = noise[:, column]
        assert values.std() == pytest.approx(sigma, rel=4 / math.sqrt(2 * n))
        assert abs(values.mean()) < 4 * sigma / math.sqrt(n)
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 4 / math.sqrt(n)
    assert abs(np.corrcoef(noise.T)[np.triu_indices(3, 1)]).max() < 4 / math.sqrt(n)


def test_another_seed_is_other_noise_and_noise_does_not_move_the_rover():
    first, second = (RoverCore(RoverSettings(position_noise=0.1, seed=seed)) for seed in (1, 2))
    assert (poses_of(first, 5) != poses_of(second, 5))[:, :2].all()
    stage = Stage("position_noise:=5.0", "heading_noise:=1.0")
    quiet = Stage()
    for each in (stage, quiet):
        each.say(1.0, 0.5)
        each.go(30)
    assert stage.pose == quiet.pose


# ---- parameters while it runs


def test_mass_and_mode_may_change_while_it_runs_and_the_rover_goes_on_from_there():
    stage = Stage("command_timeout:=0.0")
    stage.say(1.0)
    stage.go(500)
    pose = stage.pose
    assert stage.set("linear_drag", 20.0).successful
    assert stage.pose == pose
    stage.go(500)
    assert stage.v == pytest.approx(5.0 / (5.0 + 20.0 * 0.3), rel=1e-9)
    assert stage.set("use_dynamics", False).successful
    stage.go()
    assert stage.v == 1.0


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mass", 0.0, "must be from 0.001"),
        ("mass", "heavy", "is of type double"),
        ("x", 3.0, "read-only"),
        ("robot_id", "p1", "read-only"),
        ("update_rate", 10.0, "read-only"),
        ("response_time", 0.001, "would swing for ever"),
    ],
)
def test_a_parameter_that_cannot_be_taken_is_refused_with_the_reason(name: str, value: Any, reason: str):
    stage = Stage()
    answer = stage.set(name, value)
    assert not answer.successful
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("robot_id:=9x", "expected a namespace such as p0 or fleet/p0, found '9x'"),
        ("robot_id:=a//b", "expected a namespace"),
        ("mass:=-1.0", "mass: expected a value of at least 0.001, found -1.0"),
        ("use_dynamics:=3", "use_dynamics: expected true or false, found 3"),
        ("count:=0", "count: expected a value of at least 1"),
        ("update_rate:=1.0", "would swing for ever"),
    ],
)
def test_a_wrong_start_is_refused_with_the_reason(parameter: str, reason: str):
    with pytest.raises(UsageError, match=reason.replace(".", r"\.")):
        Stage(parameter)


# ---- many rovers, same bytes


def test_rovers_are_counted_on_from_the_id():
    assert RoverSettings(count=3).robot_ids() == ["p0", "p1", "p2"]
    assert RoverSettings(count=2, robot_id="rover").robot_ids() == ["rover0", "rover1"]
    assert RoverSettings(count=2, robot_id="team1/r9").robot_ids() == ["team1/r9", "team1/r10"]
    assert RoverSettings(robot_id="rover").robot_ids() == ["rover"]


def test_each_of_many_rovers_is_what_it_would_be_alone():
    many = RoverCore(RoverSettings(count=20, update_rate=1000.0, position_noise=0.1))
    alone = RoverCore(RoverSettings(robot_id="p7", y=14.0, update_rate=1000.0, position_noise=0.1))
    of_many: list[tuple[str, bytes]] = []
    of_one: list[tuple[str, bytes]] = []
    for tick in range(300):
        for robot in range(20):
            if (tick + robot) % 40 == 0:
                many.command(robot, 0.1 * robot, 0.05 * robot)
        if (tick + 7) % 40 == 0:
            alone.command(0, 0.1 * 7, 0.05 * 7)
        for core, sent in ((many, of_many), (alone, of_one)):
            sent += [(each.topic, each.cdr) for each in core.step() if each.topic.startswith("/p7/")]
    assert len(of_one) == 602
    assert of_one == of_many


# of PROGRAM; when it was meant to change, say so in CHANGELOG.md, under Digests
GOLDEN = "16bf7a258684fcec0f6cdb4ca208c9a7ba7458af9dd05d0e58fc29b55ff76589"
PROGRAM = """
from tests.parts.small_nodes.test_sim_rover import Stage
noise = "position_noise:=0.1", "heading_noise:=0.01", "seed:=5"
stage = Stage("publish_clock:=true", "count:=3", "publish_tf:=true", *noise)
for tick in range(200):
    if tick % 20 < 10:
        stage.say(1.0 - 0.01 * tick, 0.3, f"/p{tick % 3}/cmd_vel")
    if tick == 77:
        stage.say(float("nan"))
        stage.set("mass", 7.5)
    stage.go()
print(stage.core.sim.digest())
"""


def test_the_same_seed_and_commands_give_the_same_bytes_in_every_process():
    digests = set()
    for variables in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2", "NUMBA_DISABLE_JIT": "1"}):
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            command, env=environment(**variables), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())
    assert digests == {GOLDEN}


# ---- the command line


def test_the_command_runs_for_its_time_and_prints_the_digest():
    own_time = ("--ros-args", "-p", "publish_clock:=true", "-p", "speed_factor:=50.0")
    words = ["-c", "from microsim.cli import sim_rover; sim_rover()", "--transport", "memory"]
    command = [*forked_python(environment()), *words]
    command += ["--duration", "2", "--digest", *own_time]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    stage = Stage("publish_clock:=true")
    stage.go(2 * HZ)
    assert done.stdout.strip() == stage.core.sim.digest()


def test_a_digest_of_wall_clock_stamps_is_refused_and_so_is_a_wrong_parameter():
    done = run_microsim("sim-rover", "--transport", "memory", "--duration", "1", "--digest")
    assert done.returncode == 2
    assert "publish_clock:=true" in done.stderr
    done = run_microsim("sim-rover", "--transport", "memory", "--ros-args", "-p", "mass:=0.0")
    assert done.returncode == 2
    assert "mass: expected a value of at least 0.001, found 0.0" in done.stderr
