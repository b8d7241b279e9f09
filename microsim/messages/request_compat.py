"""Requests in the layout of an older version of their type, brought to that of the version MicroSim speaks."""

from __future__ import annotations

import struct

_TWIST_AND_ACCELERATION = struct.Struct("<12d")  # how a simulation_interfaces/msg/EntityState ends


def modernised(type_name: str, cdr: bytes) -> bytes | None:
    """None where no older version is known. Whether it is one is for the decoder to say.

    simulation_interfaces 1.x, which ROS 2 Jazzy has, sets the whole state of an entity; 2.x says which
    parts of it. LoadWorld, the other request that changed, has kept its bytes.
    """
    if type_name != "simulation_interfaces/srv/SetEntityState_Request" or len(cdr) < _TWIST_AND_ACCELERATION.size:
        return None
    numbers = _TWIST_AND_ACCELERATION.unpack_from(cdr, len(cdr) - _TWIST_AND_ACCELERATION.size)
    return cdr + bytes((True, any(numbers[:6]), any(numbers[6:]), 0))  # set_pose, set_twist, set_acceleration, padding
