"""Teleports."""

from microsim.messages.inputs.declaration import InputKind
from microsim.messages.ros_inputs import take_pose
from microsim.messages.topics import Qos

INPUT = InputKind(
    "set_pose",
    "/{robot}/set_pose",
    "geometry_msgs/msg/PoseStamped",
    Qos(10),
    "any",
    "teleport, at rest",
    take_pose,
    position=3,
)
