"""Running one of the two small nodes, with the options that both commands have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

import typer

from microsim.cli.options import flag, seconds
from microsim.cli.precompile import compiling, precompile
from microsim.cli.terminal import GOOD, interrupts_end_the_run
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
        help="Connect to ROS 2 through rclpy, through our own dds, or not at all (memory). auto: rclpy if it can be "
        "imported, else dds."
    ),
]
DurationOption = Annotated[
    float | None,
    typer.Option(parser=seconds, metavar="S", help="Run for this long, in the node's time; default: until Ctrl-C."),
]
DigestOption = Annotated[
    bool,
    flag("--digest", "Print the SHA-256 over every message, alone on the last line; requires publish_clock."),
]


def run_node(
    name: str,
    make: Callable[[Transport], SmallNode],
    kind: NodeTransport = NodeTransport.auto,
    ros_args: tuple[str, ...] = (),
    duration: float | None = None,
    digest: bool = False,
) -> int:
    """Run the node that `make` creates on a transport, until its time is over or Ctrl-C; the exit code."""
    from microsim.ros2.transport import open_transport

    with interrupts_end_the_run() as interrupts:
        try:
            _precompile(name, make, ros_args)
            transport = open_transport(kind.value, name, ros_args)
            try:
                node = interrupts.runner = make(transport)
                if digest and not node.is_deterministic:
                    raise UsageError(
                        "--digest requires --ros-args -p publish_clock:=true: with other stamps every run differs"
                    )
                node.run(None if duration is None else node.ticks.ticks_in(Fraction(str(duration))))
            finally:
                transport.close()
        except KeyboardInterrupt:
            return GOOD
    for reason, count in node.ignored.items():
        print(f"{name}: ignored {count} {reason}", file=sys.stderr)
    if digest:
        print(node.core.outbox.digest.hex())
    return GOOD


def _precompile(name: str, make: Callable[[Transport], SmallNode], ros_args: tuple[str, ...]) -> None:
    """Compile, so that it is not part of the run."""
    from microsim.ros2.transport import open_transport

    def first_cycle() -> None:
        quietly = (*(ros_args or ("--ros-args",)), "--log-level", "fatal")  # the run itself will warn
        node = make(open_transport("memory", name, quietly))
        node.start()
        node.step()

    with compiling():
        precompile(name, first_cycle)
