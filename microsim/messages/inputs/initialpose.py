"""Initial poses, as RViz's *2D Pose Estimate* sends them."""

from microsim.messages.inputs.declaration import InputKind
from microsim.messages.ros_inputs import take_pose
from microsim.messages.topics import Qos

INPUT = InputKind(
    "initialpose",
    "/{robot}/initialpose",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    Qos(10),
    "any",
    "of robots with `localisation`: puts the robot there, at rest",
    lambda sim, robot, message: take_pose(sim, robot, message.pose),
    applies=lambda sim, robot: any(
        owner == robot and kind.name == "localisation" for owner, _, _, kind in sim.scenario.all_sensors
    ),
    position=5,
)
