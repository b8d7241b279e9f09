"""`microsim sim-rover`."""

from __future__ import annotations

from microsim.cli.command import Command
from microsim.parts.small_nodes.commands.robot_simulator import NodeOptions, run_node


def sim_rover(options: NodeOptions) -> int:
    """Run a rover with mass and drag as a ROS 2 node.

    The node fake_rover_state_controller subscribes to /<robot_id>/cmd_vel and
    publishes /<robot_id>/joint_states and /<robot_id>/pose2D. Everything else
    is a parameter: robot_id, x, y, t, use_dynamics, mass, response_time,
    direct_joy_control and more.

    \b
    Examples:
      microsim sim-rover
      microsim sim-rover --ros-args -p robot_id:=rover -p x:=1.0 -p y:=2.0
      microsim sim-rover --ros-args -p count:=100 -p update_rate:=1000.0
      microsim sim-rover --transport memory --duration 2 --digest \\
          --ros-args -p publish_clock:=true
    """
    from microsim.parts.small_nodes.rover_node import NODE_NAME, SimRoverNode

    return run_node(NODE_NAME, SimRoverNode, options)


COMMAND = Command(sim_rover, panel="ROS 2 nodes", position=710)
