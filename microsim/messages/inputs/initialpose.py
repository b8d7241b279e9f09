"""Initial poses, as RViz's *2D Pose Estimate* sends them."""

from typing import Any

from microsim.messages.inputs import InputKind, InputTarget
from microsim.messages.inputs.set_pose import take_pose
from microsim.messages.topics import Qos


class _Stamped:
    """The pose without its covariance."""

    def __init__(self, message: Any) -> None:
        self.header, self.pose = message.header, message.pose.pose


def _is_localised(sim: InputTarget, robot: str) -> bool:
    return any(owner == robot and kind.name == "localisation" for owner, _, _, kind in sim.scenario.all_sensors)


INPUT = InputKind(
    "initialpose",
    "/{robot}/initialpose",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    Qos(10),
    "any",
    "of robots with `localisation`: puts the robot there, at rest",
    lambda sim, robot, message: take_pose(sim, robot, _Stamped(message)),
    meant_for=_is_localised,
    position=5,
    makes="pose",
)
