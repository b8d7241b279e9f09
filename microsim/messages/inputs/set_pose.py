"""Teleports: `geometry_msgs/PoseStamped` in any frame of /tf, and the initial poses of RViz."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from microsim.engine.geometry import yaw_of_quaternion
from microsim.errors import UsageError, unknown
from microsim.messages.inputs import InputKind, InputTarget, stamp_of
from microsim.messages.topics import Qos

_SHORTEST = 1e-3  # length of a quaternion that is a rotation; one of zeros was never filled in


def take_pose(sim: InputTarget, robot: str, message: Any) -> bool:
    """`geometry_msgs/PoseStamped` in a frame that /tf has now; without a frame: map."""
    place, turn = message.pose.position, message.pose.orientation
    x, y, z, *rotation = (place.x, place.y, place.z, turn.x, turn.y, turn.z, turn.w)
    if math.sqrt(sum(part * part for part in rotation)) < _SHORTEST:  # the simulation refuses NaN
        raise UsageError("the orientation is a quaternion of zeros; for a robot that faces east set w to 1")
    frame = str(message.header.frame_id).removeprefix("/")
    if frame not in ("", "map"):
        frames = frames_in_map(sim)
        if frame not in frames:
            raise UsageError(unknown("there is no frame", repr(frame), frame, ("map", *frames)))
        x, y, z, *rotation = composed(frames[frame], (x, y, z, *rotation))
    return sim.set_pose(robot, x=x, y=y, z=z, yaw=yaw_of_quaternion(*rotation), stamp_ns=stamp_of(message))


def frames_in_map(sim: InputTarget) -> dict[str, Sequence[float]]:
    """Pose in the map of every frame that moves: x, y, z and quaternion x, y, z, w."""
    found: dict[str, Sequence[float]] = {}
    for child, (parent, pose) in sim.frame_poses().items():
        found[child] = pose if parent == "map" else composed(found[parent], pose)
    return found


def composed(frame: Sequence[float], pose: Sequence[float]) -> tuple[float, ...]:
    """A pose that is given in `frame`, in the frame in which `frame` is given."""
    (px, py, pz, ax, ay, az, aw), (x, y, z, bx, by, bz, bw) = frame, pose
    # p + q v q*, for a unit quaternion
    tx, ty, tz = 2.0 * (ay * z - az * y), 2.0 * (az * x - ax * z), 2.0 * (ax * y - ay * x)
    return (
        px + x + aw * tx + ay * tz - az * ty,
        py + y + aw * ty + az * tx - ax * tz,
        pz + z + aw * tz + ax * ty - ay * tx,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


class _Stamped:
    """A pose of RViz's *2D Pose Estimate*, without its covariance."""

    def __init__(self, message: Any) -> None:
        self.header, self.pose = message.header, message.pose.pose


def _is_localised(sim: InputTarget, robot: str) -> bool:
    return any(owner == robot and kind.name == "localisation" for owner, _, _, kind in sim.scenario.all_sensors)


INPUT = (
    InputKind(
        "set_pose",
        "/{robot}/set_pose",
        "geometry_msgs/msg/PoseStamped",
        Qos(10),
        "any",
        "teleport, at rest",
        take_pose,
        position=3,
        makes="pose",
    ),
    InputKind(
        "initialpose",
        "/{robot}/initialpose",
        "geometry_msgs/msg/PoseWithCovarianceStamped",
        Qos(10),
        "any",
        "of robots with `localisation`: puts the robot there, at rest",
        lambda sim, robot, message: take_pose(sim, robot, _Stamped(message)),
        meant_for=_is_localised,
        position=5,
        makes="pose",
    ),
)
