"""Drives a robot from waypoint to waypoint. The command depends only on where the robot is.

Proportional control of velocity: full speed between waypoints, slower towards the last, held there. It does not avoid
obstacles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from microsim.engine import exact  # the same bits on every machine, which math does not promise
from microsim.engine.components import RobotModel

FOLLOW_HZ = 20  # how often it sends a command
APPROACH_PER_S = 1.5  # velocity for each remaining metre
TURN_PER_S = 2.0  # turn rate for each remaining radian
TURN_FIRST_RAD = 0.8  # a rover turns on the spot while its heading is further off than this
YAW_TOLERANCE_RAD = 0.1
EASY, TOO_TIGHT = 0.5, 0.95  # curvature of a car's path, as a share of its tightest
LEAST_SHARE = 0.3  # of the speed, in a car's tightest turn


class FollowedPose(NamedTuple):
    x: float  # [m] map frame
    y: float
    z: float
    yaw: float  # [rad]
    drift_x: float = 0.0  # [m/s] map axes: what the wind adds to the robot's own velocity
    drift_y: float = 0.0
    drift_z: float = 0.0


class FollowerGoal(NamedTuple):
    x: float  # [m] map frame
    y: float
    z: float | None  # None: for ground robots
    yaw: float | None  # [rad]; None: any


Steer: TypeAlias = Callable[
    [FollowedPose, FollowerGoal, float, bool], dict[str, float]
]  # pose, goal, speed, is the last -> command


def fly(pose: FollowedPose, goal: FollowerGoal, speed: float, is_last: bool) -> dict[str, float]:
    """Straight to the goal in three dimensions, compensating the wind and turning to the goal's yaw."""
    east, north, up = goal.x - pose.x, goal.y - pose.y, (pose.z if goal.z is None else goal.z) - pose.z
    distance = math.sqrt(east * east + north * north + up * up)
    wanted = _speed(distance, speed, is_last)
    share = wanted / distance if distance > 0.0 else 0.0
    sin, cos = exact.sincos(pose.yaw)
    east, north = share * east - pose.drift_x, share * north - pose.drift_y
    turn = 0.0 if goal.yaw is None else exact.wrap_angle(goal.yaw - pose.yaw)
    return {
        "vx": cos * east + sin * north,
        "vy": cos * north - sin * east,
        "vz": share * up - pose.drift_z,
        "yaw_rate": TURN_PER_S * turn,
    }


def drive(pose: FollowedPose, goal: FollowerGoal, speed: float, is_last: bool) -> dict[str, float]:
    """Towards the goal in the plane; turns on the spot while the goal is far to the side."""
    east, north = goal.x - pose.x, goal.y - pose.y
    distance = math.sqrt(east * east + north * north)
    turn = exact.wrap_angle(exact.atan2(north, east) - pose.yaw)
    ahead = max(exact.cos(turn), 0.0) if abs(turn) < TURN_FIRST_RAD else 0.0
    return {"v": ahead * _speed(distance, speed, is_last), "omega": TURN_PER_S * turn}


class CarSteering:
    """Along the circle that touches the heading and passes through the goal. If that is too tight, it reverses with the
    opposite lock until an easy turn is enough: with a smaller margin, the time its wheels need would make it oscillate.
    """

    def __init__(self, model: RobotModel, settings: Any) -> None:
        assert model.from_twist is not None
        self._from_twist, self._settings = model.from_twist, settings
        sin, cos = exact.sin(settings.max_steering), exact.cos(settings.max_steering)
        self._radius = settings.wheelbase_m * cos / sin
        self._backs_out = False

    def __call__(self, pose: FollowedPose, goal: FollowerGoal, speed: float, is_last: bool) -> dict[str, float]:
        east, north = goal.x - pose.x, goal.y - pose.y
        sin, cos = exact.sincos(pose.yaw)
        ahead, left = cos * east + sin * north, cos * north - sin * east
        square = ahead * ahead + left * left
        tightness = 2.0 * self._radius * abs(left) / square if square > 0.0 else 0.0  # of the circle; 1: full lock
        is_behind, side = ahead <= 0.0, 1.0 if left >= 0.0 else -1.0
        if tightness > (EASY if self._backs_out else TOO_TIGHT) or (self._backs_out and is_behind):
            self._backs_out = True
            return self._driven(-LEAST_SHARE * speed, -side)
        self._backs_out = False
        wanted = _speed(math.sqrt(square), speed, is_last)
        share = LEAST_SHARE if is_behind else max(1.0 - tightness, LEAST_SHARE)
        return self._driven(min(wanted, share * speed), side * (1.0 if is_behind else tightness))

    def _driven(self, speed: float, lock: float) -> dict[str, float]:
        """Lock: -1 is the tightest circle to the right, 1 to the left."""
        return dict(self._from_twist(self._settings, speed, speed * lock / self._radius))


def _speed(distance: float, speed: float, is_last: bool) -> float:
    return min(speed, APPROACH_PER_S * distance) if is_last else speed


def _pure_pursuit(model: RobotModel, settings: Any) -> Steer | None:
    can_steer = model.from_twist is not None and getattr(settings, "max_steering", 0.0) > 0.0
    return CarSteering(model, settings) if can_steer else None


_FOLLOWERS: Mapping[str, tuple[frozenset[str], Callable[[RobotModel, Any], Steer | None]]] = {
    # what a robot declares as its `follower` -> inputs that are commanded, and what commands them
    "fly": (frozenset(("vx", "vy", "vz", "yaw_rate")), lambda model, settings: fly),
    "turn_and_drive": (frozenset(("v", "omega")), lambda model, settings: drive),
    "pure_pursuit": (frozenset(("steering", "speed")), _pure_pursuit),
}


def steer_for(model: RobotModel, settings: Any) -> Steer | None:
    """The follower that a robot declares; None: there is none, or the robot lacks the inputs that it commands."""
    inputs, make = _FOLLOWERS.get(settings.follower, (frozenset(), lambda model, settings: None))
    return make(model, settings) if inputs <= set(model.inputs) else None


class Follower:
    """One robot and its goals."""

    def __init__(self, steer: Steer, goals: Sequence[FollowerGoal], speed: float, tolerance: float) -> None:
        self.steer, self.goals = steer, list(goals)
        self.speed, self.tolerance = speed, tolerance
        self.reached = 0  # waypoints, in order
        self.stands_at_end = steer is not fly  # flying robots hover

    @property
    def is_done(self) -> bool:
        return self.reached == len(self.goals)

    def command(self, pose: FollowedPose) -> dict[str, float]:
        """Until the next look, a twentieth of a second later."""
        while not self.is_done and self._is_at(self.goals[self.reached], pose):
            self.reached += 1
        if self.is_done and self.stands_at_end:
            return {}
        index = min(self.reached, len(self.goals) - 1)
        return self.steer(pose, self.goals[index], self.speed, index == len(self.goals) - 1)

    def _is_at(self, goal: FollowerGoal, pose: FollowedPose) -> bool:
        east, north, up = goal.x - pose.x, goal.y - pose.y, 0.0 if goal.z is None else goal.z - pose.z
        square = east * east + north * north + up * up
        is_turned = goal.yaw is None or abs(exact.wrap_angle(goal.yaw - pose.yaw)) <= YAW_TOLERANCE_RAD
        return square <= self.tolerance * self.tolerance and is_turned
