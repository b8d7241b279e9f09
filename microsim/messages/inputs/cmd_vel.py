"""Velocity commands."""

from microsim.messages.inputs.declaration import InputKind
from microsim.messages.ros_inputs import take_twist
from microsim.messages.topics import Qos

INPUT = InputKind(
    "cmd_vel",
    "/{robot}/cmd_vel",
    "geometry_msgs/msg/Twist",
    Qos(10),
    "≤ 60 Hz",
    "body-frame velocity, held until the next or, where a robot has one, its timeout",
    take_twist,
    stamped_type="geometry_msgs/msg/TwistStamped",
    position=1,
)
