"""The transports by name: a declaration each, `TRANSPORT = TransportKind(...)`, also in other parts and packages.

TRANSPORT = TransportKind("serial", lambda name, arguments: SerialTransport(name, arguments))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from microsim.errors import UsageError, unknown
from microsim.options import option
from microsim.registry import Registry

if TYPE_CHECKING:
    from microsim.parts.ros2.transport import Transport

AUTO = "auto"  # the first that can be used here
NONE = "none"  # of a run


@dataclass(frozen=True)
class TransportKind:
    """One way to reach a ROS 2 network."""

    name: str
    open: Callable[[str, Sequence[str]], Transport]  # node name, arguments as on the command line
    missing: Callable[[], str] = lambda: ""  # why it cannot be used here; empty: it can
    position: int | None = None  # among those that `auto` tries; None: it is used only by its name
    is_network: bool = True  # False: it reaches nothing outside this process


def _rclpy_missing() -> str:
    try:
        import microsim.parts.ros2.transport.rclpy_transport  # noqa: F401
    except ImportError as error:  # no ROS 2 environment, or an incomplete one
        return f"rclpy cannot be imported ({error}); source a ROS 2 installation first"
    return ""


def _rclpy(node_name: str, arguments: Sequence[str]) -> Transport:
    from microsim.parts.ros2.transport.rclpy_transport import RclpyTransport

    return RclpyTransport(node_name, arguments)


def _dds_missing() -> str:
    if find_spec("cyclonedds") is not None:
        return ""
    return (
        "the dds transport needs Cyclone DDS: pip install 'cyclonedds>=11.0,<12' (CPython 3.10 to 3.13; Linux "
        "x86_64, macOS arm64, Windows); elsewhere source a ROS 2 installation, and rclpy is used, or see 'Linux on "
        "arm64' in docs/lookup/ros2_reference.md"
    )


def _dds(node_name: str, arguments: Sequence[str]) -> Transport:
    from microsim.parts.ros2.transport.dds import DdsTransport

    return DdsTransport(node_name, arguments)


def _memory(node_name: str, arguments: Sequence[str]) -> Transport:
    from microsim.parts.ros2.transport.memory import MemoryTransport

    return MemoryTransport(node_name, arguments)


TRANSPORT = (
    TransportKind("dds", _dds, _dds_missing, position=20),
    TransportKind("rclpy", _rclpy, _rclpy_missing, position=10),
    TransportKind("memory", _memory, is_network=False),
)

TRANSPORTS: Registry[TransportKind] = Registry(
    constant="TRANSPORT", package="microsim", in_folders="transports", group="microsim.transports",
    expected="TransportKind(...)", is_one=lambda declared: isinstance(declared, TransportKind),
)  # fmt: skip


def open_transport(kind: str = AUTO, node_name: str = "microsim", ros_args: Sequence[str] = ()) -> Transport:
    """`auto`: rclpy where ROS 2 is sourced, else dds. `ros_args` as on the command line, `--ros-args` in front."""
    arguments = list(ros_args)
    if arguments and "--ros-args" not in arguments:
        arguments.insert(0, "--ros-args")
    for found in _tried(kind):
        why = found.missing()
        if not why:
            return found.open(node_name, arguments)
    raise UsageError(why)


def _tried(kind: str) -> list[TransportKind]:
    if kind != AUTO:
        return [_named(kind)]
    known = [each for each in TRANSPORTS.all() if each.position is not None]
    return sorted(known, key=lambda each: each.position or 0)


def _named(kind: str) -> TransportKind:
    found = TRANSPORTS.find(kind)
    if found is None:
        raise UsageError(unknown("no transport", repr(kind), kind, [AUTO, *TRANSPORTS.names()]))
    return found


def transport_option(text: str, *others: str, is_network: bool = False, **settings: Any) -> Any:
    """`--transport KIND`: `auto`, one of `others`, or the name of a transport; `is_network`: one that reaches one."""

    def checked(name: str) -> str:
        known = [each for each in TRANSPORTS.names() if not is_network or _named(each).is_network]
        if name not in (AUTO, *others, *known):
            raise UsageError(unknown("no transport", repr(name), name, [*others, AUTO, *known]))
        return name

    return option("--transport KIND", text, parser=checked, **settings)
