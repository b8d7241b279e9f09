"""Which transport a node gets."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, TypeAlias

from microsim.errors import UsageError, unknown
from microsim.ros2.transport import Transport

Kind: TypeAlias = Literal["auto", "dds", "rclpy", "memory"]
KINDS: tuple[Kind, ...] = ("auto", "dds", "rclpy", "memory")


def open_transport(kind: Kind = "auto", node_name: str = "microsim", ros_args: Sequence[str] = ()) -> Transport:
    """`auto`: rclpy where ROS 2 is sourced, else dds. `ros_args` as on the command line, `--ros-args` in front."""
    if kind not in KINDS:
        raise UsageError(unknown("no transport", repr(kind), kind, KINDS))
    arguments = list(ros_args)
    if arguments and "--ros-args" not in arguments:
        arguments.insert(0, "--ros-args")
    if kind == "rclpy" or (kind == "auto" and find_spec("rclpy") is not None):
        try:
            from microsim.ros2.transport.rclpy_transport import RclpyTransport

            return RclpyTransport(node_name, arguments)
        except ImportError as error:  # half a ROS 2 environment is none
            if kind == "rclpy":
                raise UsageError(f"rclpy does not import ({error}); source a ROS 2 installation first") from error
    if kind == "memory":
        from microsim.ros2.transport.memory import MemoryTransport

        return MemoryTransport(node_name, arguments)
    if find_spec("cyclonedds") is None:
        raise UsageError(
            "the dds transport needs Cyclone DDS: pip install 'cyclonedds>=11.0,<12' (CPython 3.10 to 3.13; Linux "
            "x86_64, macOS arm64, Windows); elsewhere source a ROS 2 installation, and rclpy is used"
        )
    from microsim.ros2.transport.dds import DdsTransport

    return DdsTransport(node_name, arguments)
