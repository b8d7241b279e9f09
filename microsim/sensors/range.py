"""Single-beam range sensor (PRD 4.2.3): first occupied cell ahead; REP-117 for what is out of range."""

import math
from dataclasses import dataclass

from microsim.engine import geometry, noise
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Grid, Vector
from microsim.engine.motion import COS_YAW, SIN_YAW, Motion, X, Y, mounted_at
from microsim.engine.world import World

_distance_to_occupied = geometry.distance_to_occupied
_normals = noise.normals
_uniforms = noise.uniforms

NOISE_REACH = 10.0  # sigmas beyond max_m within which a hit may still be measured inside


@kernel
def measured(distance: float, noise: float, min_m: float, max_m: float) -> float:
    """REP-117: -inf is too near to measure, +inf is nothing within reach."""
    value = distance + noise
    return -math.inf if value < min_m else math.inf if value > max_m else value


@kernel
def is_behind_wall(
    clearance: Grid, cell: float, west: float, south: float, robot_x: float, robot_y: float, x: float, y: float
) -> bool:
    """True when something occupied lies between the robot's centre and its sensor at (x, y).

    A robot stops when its centre reaches an occupied cell: the sensor ahead of it may be in the wall, or through it.
    """
    dx, dy = x - robot_x, y - robot_y
    length = math.sqrt(dx * dx + dy * dy)
    if length == 0.0:
        return False
    start_x, start_y = robot_x - west, robot_y - south
    free = _distance_to_occupied(clearance, cell, start_x, start_y, dx / length, dy / length, length, False)
    return free < math.inf


@kernel
def beam(
    clearance: Grid,
    cell: float,
    west: float,
    south: float,
    robot_x: float,
    robot_y: float,
    x: float,
    y: float,
    sine: float,
    cosine: float,
    ahead: float,
    aside: float,
    min_m: float,
    max_m: float,
    sigma_m: float,
    dropout_probability: float,
    key: int,
    tick: int,
) -> float:
    """Distance [m], +inf, -inf, or NaN for a dropout; the sensor is at (x, y), (ahead, aside) is its heading."""
    distance = 0.0
    if not is_behind_wall(clearance, cell, west, south, robot_x, robot_y, x, y):
        dx, dy = cosine * ahead - sine * aside, sine * ahead + cosine * aside
        reach = max_m + NOISE_REACH * sigma_m
        distance = _distance_to_occupied(clearance, cell, x - west, y - south, dx, dy, reach, False)
    if dropout_probability > 0.0 and _uniforms(key, tick, 1)[0] < dropout_probability:
        return math.nan
    return measured(distance, sigma_m * _normals(key, tick, 0)[0], min_m, max_m)


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
        return beam(
            world.clearance,
            world.cell_m,
            world.west,
            world.south,
            motion[X],
            motion[Y],
            x,
            y,
            motion[SIN_YAW],
            motion[COS_YAW],
            *self.heading,
            self.min_m,
            self.max_m,
            self.sigma_m,
            self.dropout_probability,
            self.key,
            tick,
        )
