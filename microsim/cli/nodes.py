"""The commands of the small nodes: `microsim sim-rover` and its siblings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from microsim.cli.values import flag, seconds
from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.ros2.paced_node import SmallNode
    from microsim.ros2.transport import Transport


class NodeTransport(str, Enum):
    auto = "auto"
    dds = "dds"
    rclpy = "rclpy"
    memory = "memory"


TransportOption = Annotated[
    NodeTransport,
    typer.Option(
        help="ROS 2 through rclpy, through our own dds, or none (memory). auto: rclpy where it imports, else dds."
    ),
]
DurationOption = Annotated[
    float | None,
    typer.Option(parser=seconds, metavar="S", help="Seconds of the node's time; default: until Ctrl-C."),
]
DigestOption = Annotated[
    bool,
    flag("--digest", "Print the SHA-256 over every message, alone on the last line; wants publish_clock."),
]


def run_node(
    name: str,
    make: Callable[[Transport], SmallNode],
    kind: NodeTransport = NodeTransport.auto,
    ros_args: tuple[str, ...] = (),
    duration: float | None = None,
    digest: bool = False,
) -> int:
    """Run the node that `make` puts on a transport, until its time is over or Ctrl-C; the exit code."""
    from microsim.cli.run import Interrupts
    from microsim.ros2.transport import open_transport

    with Interrupts() as interrupts:
        try:
            _rehearse(name, make, ros_args)
            transport = open_transport(kind.value, name, ros_args)
            try:
                node = interrupts.runner = make(transport)
                if digest and not node.is_deterministic:
                    raise UsageError("--digest wants --ros-args -p publish_clock:=true: other stamps differ every time")
                node.run(None if duration is None else node.ticks.ticks_in(Fraction(str(duration))))
            finally:
                transport.close()
        except KeyboardInterrupt:
            return 0
    for reason, count in node.ignored.items():
        print(f"{name}: ignored {count} {reason}", file=sys.stderr)
    if digest:
        print(node.core.outbox.digest.hex())
    return 0


def _rehearse(name: str, make: Callable[[Transport], SmallNode], ros_args: tuple[str, ...]) -> None:
    """Compile, so that it is not part of the run."""
    from microsim.cli.rehearsal import compiling, rehearse_once
    from microsim.ros2.transport import open_transport

    def rehearsal() -> None:
        quietly = (*(ros_args or ("--ros-args",)), "--log-level", "fatal")  # what it warns of, the run will
        node = make(open_transport("memory", name, quietly))
        node.start()
        node.step()

    with compiling():
        rehearse_once(name, rehearsal)


def register(app: typer.Typer, ros_args: list[str]) -> None:
    """Add the commands; `ros_args` will hold what stands after `--ros-args`."""

    @app.command(name="sim-rover")
    def sim_rover(
        transport: TransportOption = NodeTransport.auto,
        duration: DurationOption = None,
        digest: DigestOption = False,
    ) -> None:
        """A rover with mass and drag: the ROS 2 node fake_rover_state_controller.

        It takes /<robot_id>/cmd_vel and publishes /<robot_id>/joint_states and
        /<robot_id>/pose2D. All else are parameters: robot_id, x, y, t, use_dynamics,
        mass, response_time, direct_joy_control and more.

        \b
        Examples:
          microsim sim-rover
          microsim sim-rover --ros-args -p robot_id:=rover -p x:=1.0 -p y:=2.0
          microsim sim-rover --ros-args -p count:=100 -p update_rate:=1000.0
          microsim sim-rover --transport memory --duration 2 --digest \\
              --ros-args -p publish_clock:=true
        """
        from microsim.ros2.sim_rover import NODE_NAME
        from microsim.ros2.sim_rover import sim_rover as make

        raise typer.Exit(run_node(NODE_NAME, make, transport, tuple(ros_args), duration, digest))

    @app.command(name="robot-simulator")
    def robot_simulator(
        transport: TransportOption = NodeTransport.auto,
        duration: DurationOption = None,
        digest: DigestOption = False,
    ) -> None:
        """A robot for navigation tests: the ROS 2 node robot_simulator.

        It takes /cmd_vel and publishes /odom, /amcl_pose and /tf. A first
        /active_target, or an /initialpose, says where the robot is; until then it is
        IDLE. All else are parameters: `ros2 param list /robot_simulator`.

        \b
        Examples:
          microsim robot-simulator
          microsim robot-simulator --ros-args -p cycle_hz:=50.0
          microsim robot-simulator --ros-args -p map:=office.yaml -p scan_hz:=10.0
          microsim robot-simulator --ros-args -p "robots:=['alpha', 'beta']"
          microsim robot-simulator --transport memory --duration 10 --digest \\
              --ros-args -p publish_clock:=true
        """
        from microsim.ros2.robot_simulator.node import NAME, RobotSimulatorNode

        raise typer.Exit(run_node(NAME, RobotSimulatorNode, transport, tuple(ros_args), duration, digest))
