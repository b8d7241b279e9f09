"""The state of a car for Autoware, and its commands to the car."""

import numpy as np
import pytest

import microsim
from microsim.messages.inputs.drive_commands import take_control
from microsim.messages.types import new
from tests.support import bare, decoded

START = {"map_pose": {"x": 20.0, "y": 30.0, "yaw": 0.5}}
HZ = 60


def world(**changes):
    car = bare(model="bicycle", start=START, joint_states=None, cmd_timeout_s=None, autoware={"hz": 30})
    return {"name": "street", "map": {"size_xy_cells": [200, 60]}, "robots": {"ego": {**car, **changes}}}


def control(velocity=0.0, acceleration=None, steering=0.0, rate=None):
    message = new("autoware_control_msgs/msg/Control")
    message.lateral.steering_tire_angle = steering
    if rate is not None:
        message.lateral.steering_tire_rotation_rate = rate
        message.lateral.is_defined_steering_tire_rotation_rate = True
    message.longitudinal.velocity = velocity
    if acceleration is not None:
        message.longitudinal.acceleration = acceleration
        message.longitudinal.is_defined_acceleration = True
    return message


def drive(sim, message, seconds):
    assert take_control(sim, "ego", message)
    return sim.step(round(seconds * HZ))


def newest(messages, topic):
    return decoded(messages, topic)[-1]


def test_the_topics_tell_the_true_state():
    sim = microsim.Simulation(world())
    messages = drive(sim, control(4.0, steering=0.2), 2.0)
    state = sim.state("ego")
    velocity = newest(messages, "/vehicle/status/velocity_status")
    assert velocity.longitudinal_velocity == np.float32(state.speed) == 4.0
    assert velocity.lateral_velocity == 0.0
    assert velocity.heading_rate == np.float32(state.yaw_rate)
    assert velocity.header.frame_id == "base_link"
    steering = newest(messages, "/vehicle/status/steering_status")
    assert steering.steering_tire_angle == np.float32(state.steering) == np.float32(0.2)
    assert steering.stamp == velocity.header.stamp  # its stamp is not in a header
    assert steering.stamp.sec * 1_000_000_000 + steering.stamp.nanosec == sim.time_ns
    assert newest(messages, "/vehicle/status/control_mode").mode == 1
    pose = newest(messages, "/localization/kinematic_state")
    place = pose.pose.pose.position
    assert (pose.header.frame_id, pose.child_frame_id) == ("map", "base_link")
    assert (place.x, place.y, place.z) == (state.x, state.y, state.z)
    turn = pose.pose.pose.orientation
    assert 2.0 * np.arctan2(turn.z, turn.w) == pytest.approx(state.yaw, abs=1e-12)
    assert (pose.twist.twist.linear.x, pose.twist.twist.angular.z) == (state.speed, state.yaw_rate)
    acceleration = newest(messages, "/localization/acceleration").accel.accel.linear
    assert acceleration.x == pytest.approx(0.0, abs=0.02)  # on a circle only across
    assert acceleration.y == pytest.approx(state.speed * state.yaw_rate, rel=0.01)


@pytest.mark.parametrize(
    ("velocity", "acceleration", "speed"),
    [(10.0, 1.5, 3.0), (10.0, 99.0, 6.0), (-10.0, -1.0, -2.0), (-10.0, 1.0, 0.0), (10.0, -1.0, 0.0), (1.0, 0.0, 0.0)],
)
def test_a_defined_acceleration_is_followed(velocity, acceleration, speed):
    """From rest for two seconds; the car's own limit is 3 m/s². Against the way it drives it is the brake."""
    sim = microsim.Simulation(world())
    messages = drive(sim, control(velocity, acceleration), 2.0)
    assert sim.state("ego").speed == pytest.approx(speed, abs=1e-6)
    assert newest(messages, "/vehicle/status/gear_status").report == (20 if speed < 0.0 else 2)


def test_it_brakes_coasts_and_stops():
    sim = microsim.Simulation(world())
    drive(sim, control(6.0, 3.0), 2.0)
    drive(sim, control(6.0, 0.0), 1.0)
    assert sim.state("ego").speed == pytest.approx(6.0, abs=1e-6)
    drive(sim, control(0.0, -2.0), 1.0)
    assert sim.state("ego").speed == pytest.approx(4.0, abs=1e-6)
    drive(sim, control(0.0, -2.0), 3.0)
    assert sim.state("ego").speed == 0.0


def test_without_an_acceleration_the_velocity_is_followed():
    sim = microsim.Simulation(world())
    drive(sim, control(5.0, steering=0.3, rate=0.1), 1.0)
    assert sim.state("ego").speed == pytest.approx(3.0)  # at the car's own acceleration
    assert sim.state("ego").steering == pytest.approx(0.1)  # at the rate that was asked for
    drive(sim, control(5.0), 1.0)
    assert sim.state("ego").speed == pytest.approx(5.0)


def test_the_stamp_of_a_command_is_its_own():
    from microsim.messages.inputs import stamp_of

    message = control()
    message.stamp.sec, message.stamp.nanosec = 3, 5
    assert stamp_of(message) == 3_000_000_005


def test_two_cars_cannot_both_be_autowares():
    source = world()
    source["robots"]["other"] = {**source["robots"]["ego"], "start": {"map_pose": {"x": 60.0, "y": 30.0}}}
    found = r"robots\.other\.autoware: robots\.ego\.autoware already sends on /localization/kinematic_state"
    with pytest.raises(microsim.ScenarioError, match=found):
        microsim.Simulation(source)


def test_other_robots_have_no_such_key():
    with pytest.raises(
        microsim.ScenarioError, match=r"robots\.rover\.autoware: 'autoware' is a key of the model bicycle"
    ):
        microsim.Simulation({"robots": {"rover": {"autoware": {}}}})


PLUGIN = """
from microsim.engine.compiled import kernel
from microsim.messages.types import new
from microsim.messages.topics import Qos
from microsim.sensors.sensor import MessageForm, KernelSensor, SensorBlock

TYPE = "std_msgs/msg/%s"

@kernel
def sample(settings, motion, memory, scene, key, tick, reading):
    memory[0] += 1.0
    reading[0] = memory[0]

SENSOR = KernelSensor("counter", SensorBlock, sample, reading={"value": ""}, memory=("count",), messages=(
    MessageForm(TYPE, "/{robot}/{sensor}", Qos(5), "its readings", lambda context: new(TYPE), {"data": "value"}),
    MessageForm(TYPE, "/{robot}/{sensor}/again", Qos(5), "the same", lambda context: new(TYPE), {"data": "value"}),
))
"""


@pytest.mark.parametrize("kind", ["UInt8", "Float32", "Float64"])
def test_a_reading_fills_numbers_of_these_kinds_in_several_messages(tmp_path, kind):
    (tmp_path / "counter.py").write_text(PLUGIN % kind)
    robot = bare(sensors={"counter": {"type": "counter", "hz": 60}})
    sim = microsim.Simulation({"plugins": [str(tmp_path)], "robots": {"rover": robot}})
    messages = sim.step(3)
    for topic in ("/rover/counter", "/rover/counter/again"):
        assert [message.data for message in decoded(messages, topic)] == [1, 2, 3, 4], "once a tick"


def test_a_reading_cannot_fill_other_whole_numbers(tmp_path):
    (tmp_path / "counter.py").write_text(PLUGIN % "Int32")
    robot = bare(sensors={"counter": {"type": "counter", "hz": 60}})
    with pytest.raises(microsim.PluginError, match="data: a reading can fill float64, float32 and uint8"):
        microsim.Simulation({"plugins": [str(tmp_path)], "robots": {"rover": robot}})
