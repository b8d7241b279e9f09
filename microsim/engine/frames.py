"""The tree of frames: map -> odom -> base_link -> sensors (REP-105)."""

from collections.abc import Mapping, Sequence

from microsim.engine.exact import cos, sin, wrap_angle
from microsim.engine.motion import YAW, Motion, X, Y, Z
from microsim.sensors.odometry import Odometry

IDENTITY = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


class Frames:
    """Which transforms `/tf` carries and what is in them. One shared odom frame, or one for each robot."""

    def __init__(self, base_frames: Mapping[str, str], odometry: Mapping[str, Odometry], per_robot_odom: bool) -> None:
        """base_frames: robot -> its base_link."""
        self.robots = tuple(base_frames)
        self.base_frames = base_frames
        self.odometry = odometry
        self.per_robot_odom = per_robot_odom

    def odom_frame(self, robot: str) -> str:
        return f"{robot}/odom" if self.per_robot_odom else "odom"

    def pairs(self) -> list[tuple[str, str]]:
        """(parent, child) in the order of `poses`."""
        odom_frames = [self.odom_frame(robot) for robot in self.robots] if self.per_robot_odom else ["odom"]
        roots = [("map", frame) for frame in odom_frames]
        return roots + [(self.odom_frame(robot), self.base_frames[robot]) for robot in self.robots]

    def poses(self, motions: Mapping[str, Motion]) -> list[Sequence[float]]:
        """x, y, z and quaternion x, y, z, w of every pair."""
        roots: list[Sequence[float]] = [IDENTITY]
        if self.per_robot_odom:
            roots = [self._odom_in_map(robot, motions[robot]) for robot in self.robots]
        for robot in self.robots:
            roots.append(self.odometry[robot].pose(motions[robot]))
        return roots

    def _odom_in_map(self, robot: str, motion: Motion) -> Sequence[float]:
        """Where the odom frame must lie so that map -> odom -> base_link is the true pose."""
        drift = self.odometry[robot].drift
        if drift is None:
            return IDENTITY
        x, y, z, yaw = drift.pose
        turn = wrap_angle(motion[YAW] - yaw)
        cosine, sine = cos(turn), sin(turn)
        place = (motion[X] - (cosine * x - sine * y), motion[Y] - (sine * x + cosine * y), motion[Z] - z)
        return (*place, 0.0, 0.0, sin(0.5 * turn), cos(0.5 * turn))
