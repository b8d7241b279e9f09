"""A ROS 2 node for Python programs and the command line, without ROS 2: `microsim.connect()`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.errors import UsageError

SCOUT_S = 0.05  # how long the scout is there before the node; importing takes longer

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode


def connect(name: str = "", *, types: Sequence[str | Path] = (), ros_args: Sequence[str] = ()) -> ClientNode:
    """Join the ROS 2 network as a node, as `ROS_DOMAIN_ID` and the other variables of ROS 2 say; use it with `with`.

    `name`: of the node; by default a hidden one. `types`: folders with .msg, .srv, .action and .idl files, beside all
    types that MicroSim includes. `ros_args`: as after `--ros-args`, for remappings and a namespace.
    """
    if find_spec("cyclonedds") is None:
        platforms = "CPython 3.10 to 3.13; Linux x86_64, macOS arm64, Windows"
        raise UsageError(f"live tools need Cyclone DDS: pip install 'cyclonedds>=11.0,<12' ({platforms})")
    from microsim.parts.ros2.transport.dds_domain import new_scout

    scout, begun_s = new_scout(), time.monotonic()
    from microsim.parts.live_tools.client.client_node import ClientNode

    time.sleep(max(0.0, begun_s + SCOUT_S - time.monotonic()))
    return ClientNode(name, types, ros_args, scout)
