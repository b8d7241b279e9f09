"""`microsim robot-simulator`, and how both of the small nodes run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, NamedTuple

from microsim.cli.command import ROS_ARGS, Command, PluginsOption, seconds
from microsim.cli.precompile import compiling, precompile
from microsim.cli.terminal import ExitCode, interrupts_end_the_run
from microsim.errors import UsageError
from microsim.options import flag, option
from microsim.parts.ros2.transports import AUTO, transport_option

if TYPE_CHECKING:
    from microsim.parts.ros2.transport import Transport
    from microsim.parts.small_nodes.paced_node import PacedNode


_TRANSPORT = (
    "Connect to ROS 2 through rclpy or the built-in dds; memory: do not connect. auto: rclpy if it can be imported, "
    "else dds."
)
_DURATION = "Run for this long, in the node's time; default: until Ctrl-C."
_DIGEST = "Print the SHA-256 over every message, alone on the last line; requires publish_clock."


class NodeOptions(NamedTuple):
    transport: Annotated[str, transport_option(_TRANSPORT)] = AUTO
    duration: Annotated[float | None, option("--duration S", _DURATION, parser=seconds)] = None
    digest: Annotated[bool, flag("--digest", _DIGEST)] = False
    plugins: PluginsOption = None


def robot_simulator(options: NodeOptions) -> int:
    """Run a robot for navigation tests as a ROS 2 node.

    The node robot_simulator subscribes to /cmd_vel and publishes /odom,
    /amcl_pose and /tf. The first /active_target or /initialpose sets the pose;
    until then the robot is IDLE. Everything else is a parameter: `ros2 param
    list /robot_simulator`.

    \b
    Examples:
      microsim robot-simulator
      microsim robot-simulator --ros-args -p cycle_hz:=50.0
      microsim robot-simulator --ros-args -p map:=office.yaml -p scan_hz:=10.0
      microsim robot-simulator --ros-args -p "robots:=['alpha', 'beta']"
      microsim robot-simulator --transport memory --duration 10 --digest \\
          --ros-args -p publish_clock:=true
    """
    from microsim.parts.small_nodes.robot_simulator_node import NAME, RobotSimulatorNode

    return run_node(NAME, RobotSimulatorNode, options)


COMMAND = Command(robot_simulator, panel="ROS 2 nodes", position=720)


def run_node(name: str, make: Callable[[Transport], PacedNode], options: NodeOptions) -> int:
    """Run the node that `make` creates on a transport, until its time is over or Ctrl-C; the exit code."""
    from microsim.parts.ros2.transports import open_transport

    def first_cycle() -> None:
        quietly = (*(ROS_ARGS or ("--ros-args",)), "--log-level", "fatal")  # the run itself will warn
        node = make(open_transport("memory", name, quietly))
        node.start()
        node.step()

    with interrupts_end_the_run() as interrupts:
        try:
            with compiling():
                precompile(name, first_cycle)
            transport = open_transport(options.transport, name, ROS_ARGS)
            try:
                node = make(transport)
                interrupts.runner = node.runner
                if options.digest and not node.is_deterministic:
                    raise UsageError(
                        "--digest requires --ros-args -p publish_clock:=true: with other stamps every run differs"
                    )
                ticks = None if options.duration is None else node.ticks.ticks_in(Fraction(str(options.duration)))
                node.run(ticks)
            finally:
                transport.close()
        except KeyboardInterrupt:
            return ExitCode.GOOD
    for reason, count in node.ignored.items():
        print(f"{name}: ignored {count} {reason}", file=sys.stderr)
    if options.digest:
        print(node.sim.digest())
    return ExitCode.GOOD
