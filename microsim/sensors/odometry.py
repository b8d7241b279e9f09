"""Odometry: pose in the odom frame and velocity over ground; exact, or drifting as wheels and flow sensors do."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from microsim.engine import exact, noise
from microsim.engine.compiled import kernel, plain
from microsim.engine.exact import cos, sin
from microsim.engine.geometry import Array, quaternion_from_rpy
from microsim.engine.motion import (
    FORWARD,
    LEFT,
    PITCH,
    PITCHING,
    QUATERNION_W,
    QUATERNION_X,
    QUATERNION_Y,
    QUATERNION_Z,
    ROLL,
    ROLLING,
    TURN,
    UP,
    YAW,
    Motion,
    X,
    Y,
    Z,
    is_level,
)

_sincos = exact.sincos
_six_normals = noise.six_normals
_wrap_angle = exact.wrap_angle

POSE_VARIANCE = 1e-4  # [m^2], [rad^2] without drift: a centimetre, half a degree
TWIST_VARIANCE = 1e-4  # [(m/s)^2], [(rad/s)^2]


@kernel
def misjudge(
    pose: Array, seen: Array, now: Array, position_per_m: float, yaw_per_rad: float, key: int, tick: int
) -> tuple[float, float, float, float, float, float]:
    """The drifting pose x, y, z, yaw after the true step from `seen` to `now`, and that step's length and turn."""
    dx, dy, dz, turn = now[0] - seen[0], now[1] - seen[1], now[2] - seen[2], _wrap_angle(now[3] - seen[3])
    a, b, c, d, _, _ = _six_normals(key, tick)
    length = math.sqrt(dx * dx + dy * dy + dz * dz)
    slip = position_per_m * math.sqrt(length)
    sine, cosine = _sincos(pose[3] - seen[3])  # how far the odom frame has turned against the map by now
    return (
        pose[0] + (cosine * dx - sine * dy + slip * a),
        pose[1] + (sine * dx + cosine * dy + slip * b),
        pose[2] + (dz + slip * c),
        _wrap_angle(pose[3] + turn + yaw_per_rad * math.sqrt(abs(turn)) * d),
        length,
        abs(turn),
    )


_misjudge: Callable[..., tuple[float, float, float, float, float, float]] = plain(misjudge)


@dataclass
class Drift:
    """An odometry frame that slides: every step's length and turn is misjudged by a random share of it."""

    position_per_m: float  # [m/sqrt(m)] standard deviation after one metre
    yaw_per_rad: float  # [rad/sqrt(rad)] standard deviation after one radian turned
    key: int
    pose: list[float] = field(default_factory=list)  # x, y, z, yaw in the odom frame
    seen: list[float] = field(default_factory=list)  # the same in the map frame, at the last tick
    distance_m: float = 0.0
    turned_rad: float = 0.0

    def start(self, motion: Motion) -> None:
        self.seen = [motion[X], motion[Y], motion[Z], motion[YAW]]
        self.pose = list(self.seen)
        self.distance_m = self.turned_rad = 0.0

    def update(self, motion: Motion, tick: int) -> None:
        """Turn the true step since the last tick into the odometry's, with its errors."""
        now = [motion[X], motion[Y], motion[Z], motion[YAW]]
        *pose, length, turn = _misjudge(
            self.pose, self.seen, now, self.position_per_m, self.yaw_per_rad, self.key, tick
        )
        self.pose, self.seen = pose, now
        self.distance_m += length
        self.turned_rad += turn


@dataclass
class Odometry:
    drift: Drift | None = None

    def pose(self, motion: Motion) -> tuple[float, float, float, float, float, float, float]:
        """x, y, z [m] and the quaternion x, y, z, w, in the odom frame."""
        if self.drift is not None:
            x, y, z, yaw = self.drift.pose
            if is_level(motion):
                return x, y, z, 0.0, 0.0, sin(0.5 * yaw), cos(0.5 * yaw)
            return x, y, z, *quaternion_from_rpy(motion[ROLL], motion[PITCH], yaw)
        return (
            motion[X],
            motion[Y],
            motion[Z],
            motion[QUATERNION_X],
            motion[QUATERNION_Y],
            motion[QUATERNION_Z],
            motion[QUATERNION_W],
        )

    def twist(self, motion: Motion) -> tuple[float, float, float, float, float, float]:
        """Velocity [m/s] and turn rate [rad/s] in the body's axes."""
        return motion[FORWARD], motion[LEFT], motion[UP], motion[ROLLING], motion[PITCHING], motion[TURN]

    def pose_variance(self) -> tuple[float, float]:
        """(position [m^2], yaw [rad^2]): grows with the way when drifting."""
        if self.drift is None:
            return POSE_VARIANCE, POSE_VARIANCE
        drift = self.drift
        return (
            POSE_VARIANCE + drift.position_per_m * drift.position_per_m * drift.distance_m,
            POSE_VARIANCE + drift.yaw_per_rad * drift.yaw_per_rad * drift.turned_rad,
        )

    def memory(self) -> object:
        drift = self.drift
        return drift and (list(drift.pose), list(drift.seen), drift.distance_m, drift.turned_rad)

    def recall(self, memory: object) -> None:
        if self.drift is not None and isinstance(memory, tuple):
            pose, seen, self.drift.distance_m, self.drift.turned_rad = memory
            self.drift.pose, self.drift.seen = list(pose), list(seen)
