"""`microsim robot-simulator`."""

from __future__ import annotations

from microsim.cli.command import Command
from microsim.cli.node_run import DigestOption, DurationOption, NodeTransport, TransportOption, run_node
from microsim.cli.options import ROS_ARGS


def robot_simulator(
    transport: TransportOption = NodeTransport.auto,
    duration: DurationOption = None,
    digest: DigestOption = False,
) -> int:
    """A robot for navigation tests: the ROS 2 node robot_simulator.

    It takes /cmd_vel and publishes /odom, /amcl_pose and /tf. A first
    /active_target, or an /initialpose, says where the robot is; until then it is
    IDLE. Everything else is a parameter: `ros2 param list /robot_simulator`.

    \b
    Examples:
      microsim robot-simulator
      microsim robot-simulator --ros-args -p cycle_hz:=50.0
      microsim robot-simulator --ros-args -p map:=office.yaml -p scan_hz:=10.0
      microsim robot-simulator --ros-args -p "robots:=['alpha', 'beta']"
      microsim robot-simulator --transport memory --duration 10 --digest \\
          --ros-args -p publish_clock:=true
    """
    from microsim.ros2.robot_simulator_node import NAME, RobotSimulatorNode

    return run_node(NAME, RobotSimulatorNode, transport, tuple(ROS_ARGS), duration, digest)


COMMAND = Command(robot_simulator, panel="ROS 2 nodes", position=420)
