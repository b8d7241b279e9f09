"""The state of a car for Autoware: the topics of its planning simulator, with their names and types.

One car of a scenario can have it. It takes `/control/command/control_cmd` as well, see `microsim.messages.inputs`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from microsim.documents.values import Hertz
from microsim.engine import exact, geometry
from microsim.engine.calls import Scene
from microsim.engine.compiled import kernel
from microsim.engine.components import ACCELERATION_X, PITCH, ROLL, YAW, YAW_RATE, X, Y, Z
from microsim.engine.geometry import Array
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, SensorBlock, SensorContext

_sincos = exact.sincos
_quaternion_from_rpy = geometry.quaternion_from_rpy

_DRIVE, _REVERSE = 2, 20  # of autoware_vehicle_msgs/GearReport
_AUTONOMOUS = 1  # of autoware_vehicle_msgs/ControlModeReport


class Autoware(SensorBlock):
    """Vehicle status, velocity, steering, gear, control mode, pose and acceleration as Autoware reads them."""

    hz: Hertz = Field(30, description="Rate of all its topics; at most physics_hz [Hz].")


@kernel
def sample(settings: Array, state: Array, memory: Array, scene: Scene, key: int, tick: int, reading: Array) -> None:
    """The true pose in the map, then speed, turn rate, acceleration in body axes, steering and gear."""
    steering, speed = state[int(settings[0])], state[int(settings[1])]
    reading[0], reading[1], reading[2] = state[X], state[Y], state[Z]
    reading[3], reading[4], reading[5], reading[6] = _quaternion_from_rpy(state[ROLL], state[PITCH], state[YAW])
    sine, cosine = _sincos(state[YAW])
    east, north = state[ACCELERATION_X], state[ACCELERATION_X + 1]
    reading[7], reading[8] = speed, state[YAW_RATE]
    reading[9], reading[10] = east * cosine + north * sine, north * cosine - east * sine
    reading[11] = steering
    reading[12] = _REVERSE if speed < 0.0 else _DRIVE


def _numbers(context: SensorContext) -> tuple[float, ...]:
    rows = context.robot_settings.engine_model.state
    return rows["steering"], rows["speed"]


def _odometry(context: SensorContext) -> Any:
    return new("nav_msgs/msg/Odometry", header=header("map"), child_frame_id=context.base_frame)


def _form(kind: str, name: str, topic: str, about: str, slots: dict[str, str], **fixed: Any) -> MessageForm:
    def prototype(context: SensorContext) -> Any:
        stamped = {} if hasattr(new(name), "stamp") else {"header": header(context.base_frame)}
        return new(name, **stamped, **fixed)

    return MessageForm(name, topic, Qos(1), about, prototype, slots, kind=kind)


SENSOR = KernelSensor(
    "autoware",
    Autoware,
    sample,
    title="Autoware",
    about="state of the car for Autoware",
    omit_if_null=True,
    is_common=False,
    reads="state",
    reading={
        **dict.fromkeys("xyz", "m"),
        **{f"q{axis}": "" for axis in "xyzw"},
        "speed": "m/s",
        "turn_rate": "rad/s",
        **dict.fromkeys(("acceleration_forward", "acceleration_left"), "m/s²"),
        "steering": "rad",
        "gear": "",
    },
    numbers=_numbers,
    messages=(
        MessageForm(
            "nav_msgs/msg/Odometry",
            "/localization/kinematic_state",
            Qos(1),
            "for Autoware: true pose in the map, and velocity",
            _odometry,
            {
                **{f"pose.pose.position.{axis}": axis for axis in "xyz"},
                **{f"pose.pose.orientation.{axis}": f"q{axis}" for axis in "xyzw"},
                "twist.twist.linear.x": "speed",
                "twist.twist.angular.z": "turn_rate",
            },
        ),
        _form(
            "autoware_velocity",
            "autoware_vehicle_msgs/msg/VelocityReport",
            "/vehicle/status/velocity_status",
            "for Autoware: speed and turn rate",
            {"longitudinal_velocity": "speed", "heading_rate": "turn_rate"},
        ),
        _form(
            "autoware_steering",
            "autoware_vehicle_msgs/msg/SteeringReport",
            "/vehicle/status/steering_status",
            "for Autoware: steering angle",
            {"steering_tire_angle": "steering"},
        ),
        _form(
            "autoware_gear",
            "autoware_vehicle_msgs/msg/GearReport",
            "/vehicle/status/gear_status",
            "for Autoware: drive, or reverse while it moves backward",
            {"report": "gear"},
        ),
        _form(
            "autoware_control_mode",
            "autoware_vehicle_msgs/msg/ControlModeReport",
            "/vehicle/status/control_mode",
            "for Autoware: always autonomous",
            {},
            mode=_AUTONOMOUS,
        ),
        _form(
            "autoware_acceleration",
            "geometry_msgs/msg/AccelWithCovarianceStamped",
            "/localization/acceleration",
            "for Autoware: acceleration",
            {"accel.accel.linear.x": "acceleration_forward", "accel.accel.linear.y": "acceleration_left"},
        ),
    ),
    display=Display(
        "{twist.twist.linear.x:.2f} m/s, {twist.twist.angular.z:+.2f} rad/s", plot=("twist.twist.linear.x",)
    ),
    position=22,
)
