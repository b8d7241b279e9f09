"""Single-beam range sensor (PRD 4.2.3): first occupied cell ahead; REP-117 for what is out of range."""

import math
from dataclasses import dataclass

from microsim.sim.geometry import Vector, distance_to_occupied
from microsim.sim.motion import COS_YAW, SIN_YAW, Motion, X, Y, mounted_at
from microsim.sim.noise import normals, uniforms
from microsim.sim.world import World

_NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside


def measured(distance: float, noise: float, min_m: float, max_m: float) -> float:
    """REP-117: -inf is too near to measure, +inf is nothing within reach."""
    value = distance + noise
    return -math.inf if value < min_m else math.inf if value > max_m else value


def is_behind_wall(world: World, motion: Motion, x: float, y: float) -> bool:
    """True when something occupied lies between the robot's centre and its sensor at (x, y).

    A robot stops when its centre reaches an occupied cell: the sensor ahead of it may be in the wall, or through it.
    """
    dx, dy = x - motion[X], y - motion[Y]
    length = math.sqrt(dx * dx + dy * dy)
    if length == 0.0:
        return False
    start_x, start_y = motion[X] - world.west, motion[Y] - world.south
    free = distance_to_occupied(
        world.clearance, world.cell_m, start_x, start_y, dx / length, dy / length, length, False
    )
    return bool(free < math.inf)


@dataclass(frozen=True)
class Range:
    world: World
    mount: Vector  # [m] base_link -> sensor
    heading: tuple[float, float]  # cos, sin of the beam's yaw in base_link
    min_m: float
    max_m: float
    sigma_m: float
    dropout_probability: float
    key: int

    def sample(self, motion: Motion, tick: int) -> float:
        """Distance [m], +inf, -inf, or NaN for a dropout."""
        world = self.world
        x, y, _ = mounted_at(motion, self.mount)
        sine, cosine = motion[SIN_YAW], motion[COS_YAW]
        ahead, aside = self.heading
        dx, dy = cosine * ahead - sine * aside, sine * ahead + cosine * aside
        reach = self.max_m + _NOISE_REACH * self.sigma_m
        distance = 0.0
        if not is_behind_wall(world, motion, x, y):
            distance = distance_to_occupied(
                world.clearance, world.cell_m, x - world.west, y - world.south, dx, dy, reach, False
            )
        if self.dropout_probability > 0.0 and uniforms(self.key, tick, 1)[0] < self.dropout_probability:
            return math.nan
        return measured(distance, self.sigma_m * normals(self.key, tick, 0)[0], self.min_m, self.max_m)
