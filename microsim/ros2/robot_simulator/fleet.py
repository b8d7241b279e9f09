"""The robots of a `robot_simulator` as columns of numbers: commands, places, and one kernel call a tick for all."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from microsim.documents.values import MAX_LENGTH_M
from microsim.engine import exact
from microsim.engine import nav_robots as nav
from microsim.engine.noise import stream_key
from microsim.engine.timekeeper import Clock
from microsim.ros2.robot_simulator.grids import GridMap
from microsim.ros2.robot_simulator.moving import MovingObstacles
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings

DEGREE = exact.PI / 180.0
REMEMBERED_S = 2.0  # a localiser that is later than this is taken as of now
NOWHERE = GridMap(1.0, (0.0, 0.0, 0.0), np.zeros((1, 1), np.uint8))  # no map: one free cell


class Pose(NamedTuple):
    """Planar, in the map frame."""

    x: float  # [m]
    y: float  # [m]
    yaw: float  # [rad]

    def is_usable(self) -> bool:
        return all(map(math.isfinite, self)) and abs(self.x) <= MAX_LENGTH_M and abs(self.y) <= MAX_LENGTH_M

    def __str__(self) -> str:
        return f"({self.x:.3f}, {self.y:.3f}), {self.yaw / DEGREE:.1f}°"


class Fleet:
    """Moves when told to; decides nothing but timeouts."""

    def __init__(self, settings: RobotSimulatorSettings, clock: Clock) -> None:
        count = len(settings.robots)
        self._clock = clock
        self._state = np.zeros((nav.ROWS, count))
        self._state[nav.X], self._state[nav.Y] = settings.x0, settings.y0
        self._state[nav.YAW] = exact.wrap_angle(settings.yaw0_deg * DEGREE)
        self._state[nav.AHEAD] = math.inf
        self.mode = np.zeros(count, np.int64)  # IDLE, ACTIVE, TIMEOUT_STOP of sim/nav_robots.py
        self.since = np.zeros(count, np.int64)  # tick from which the timeout counts: of the latest command
        self._wanted = np.zeros((2, count))  # as commanded
        self._command = np.zeros((2, count))  # within the limits
        self._observed = np.zeros((count, nav.FIELDS))
        keys = [stream_key(settings.seed, f"{robot}/amcl_pose") for robot in settings.robots]
        self._pose_keys = np.array(keys, np.int64)
        ticks = math.ceil(REMEMBERED_S * settings.cycle_hz) + 1
        self._stamps = np.full(ticks, -1, np.int64)  # [ns] of the latest ticks, a ring
        self._odometry = np.zeros((ticks, 3, count))  # at these ticks

    def configure(self, settings: RobotSimulatorSettings) -> None:
        """From the next tick on."""
        self._settings = settings
        self._timeout_ticks = int(Fraction(str(settings.cmd_timeout_sec)) * self._clock.rate)
        self._sigma = settings.pose_noise_std_m, settings.yaw_noise_std_deg * DEGREE
        parameters = self._parameters = np.zeros(nav.PARAMETERS)
        parameters[nav.DT] = self._clock.dt
        parameters[nav.MAX_V] = settings.max_linear_mps
        parameters[nav.SLOW_M] = settings.slow_distance_m if settings.enable_slow_down else 0.0
        parameters[nav.STOP_M] = settings.stop_distance_m
        parameters[nav.RADIUS_M] = settings.robot_radius_m
        parameters[nav.MIN_TURN_M] = settings.min_turn_radius_m
        parameters[nav.MAX_ACCEL], parameters[nav.MAX_JERK] = settings.max_linear_accel, settings.max_linear_jerk
        parameters[nav.MAX_ALPHA] = settings.max_angular_accel
        parameters[nav.MAX_ANGULAR_JERK] = settings.max_angular_jerk
        for robot in range(len(settings.robots)):
            self._clip(robot)

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def command(self, robot: int, v: float, omega: float, tick: int) -> bool:
        """Held from now on; gives whether it was beyond the limits."""
        self._wanted[:, robot] = v, omega
        self.since[robot] = tick
        return self._clip(robot)

    def halt(self, robot: int, tick: int) -> None:
        """No command, and the timeout counts from now."""
        self.command(robot, 0.0, 0.0, tick)

    def put(self, robot: int, pose: Pose, tick: int) -> None:
        """There, at rest, and known to be there."""
        self.localise(robot, pose)
        self._state[nav.WORLD_X : nav.WORLD_YAW + 1, robot] = self._state[nav.MAP_X : nav.MAP_YAW + 1, robot]
        self._state[[nav.V, nav.OMEGA, nav.ACCEL, nav.ALPHA], robot] = 0.0
        self.halt(robot, tick)

    def localise(self, robot: int, pose: Pose, stamp_ns: int = 0) -> None:
        """Move the odom frame so that the robot seems to have been there at that time; 0: to be there now."""
        yaw, odometry = exact.wrap_angle(pose.yaw), self._odometry_at(robot, stamp_ns)
        self._state[nav.MAP_X : nav.MAP_YAW + 1, robot] = nav.origin_for(pose.x, pose.y, yaw, *odometry)

    def _odometry_at(self, robot: int, stamp_ns: int) -> Pose:
        """Of the latest tick that was not stamped later; now, where the stamp is none of ours."""
        before = np.where(self._stamps <= stamp_ns, self._stamps, -1)
        if stamp_ns <= 0 or before.max() < 0:
            return self.odometry(robot)
        return Pose(*self._odometry[before.argmax(), :, robot].tolist())

    def _clip(self, robot: int) -> bool:
        wanted = v, omega = tuple(self._wanted[:, robot].tolist())
        if self._settings.enable_cmd_limit:
            most_v, most_omega = self._settings.max_linear_mps, self._settings.max_angular_rps
            v, omega = min(max(v, -most_v), most_v), min(max(omega, -most_omega), most_omega)
        self._command[:, robot] = v, omega
        return (v, omega) != wanted

    # ---- the tick ---------------------------------------------------------------------------------------------------

    def advance(self, tick: int, grid: GridMap | None, moving: MovingObstacles) -> int:
        """From tick to tick + 1; gives how many robots timed out."""
        ground = grid or NOWHERE
        stopped = nav.advance(
            self._state,
            self.mode,
            self.since,
            self._command,
            self._parameters,
            self._timeout_ticks,
            tick,
            grid is not None,
            ground.clearance,
            ground.cell_m,
            ground.frame,
            moving.discs,
        )
        if len(moving):
            moving.advance(tick, ground)
        return stopped

    def observed(self, tick: int, stamp_ns: int) -> list[list[float]]:
        """A row of `nav_robots.observe` for each robot; its odometry is remembered with the stamp for a while."""
        slot = tick % len(self._stamps)
        self._stamps[slot], self._odometry[slot] = stamp_ns, self._state[nav.X : nav.YAW + 1]
        nav.observe(self._state, self._pose_keys, tick, *self._sigma, self._observed)
        rows: list[list[float]] = self._observed.tolist()
        return rows

    # ---- what is so -------------------------------------------------------------------------------------------------

    def velocity(self, robot: int) -> tuple[float, float]:
        """Linear and angular [m/s, rad/s]."""
        v, omega = self._state[nav.V : nav.OMEGA + 1, robot].tolist()
        return v, omega

    def free_way(self, robot: int) -> float:
        """Before it, in the direction of its command, as far as it looks [m]."""
        return float(self._state[nav.AHEAD, robot])

    def odometry(self, robot: int) -> Pose:
        """In the odom frame."""
        return Pose(*self._state[nav.X : nav.YAW + 1, robot].tolist())

    def pose(self, robot: int) -> Pose:
        """Where localisation believes the robot to be."""
        return self._in_map(robot, nav.MAP_X)

    def place(self, robot: int) -> Pose:
        """Where it is."""
        return self._in_map(robot, nav.WORLD_X)

    def _in_map(self, robot: int, origin: int) -> Pose:
        x, y, yaw = self._state[origin : origin + 3, robot].tolist()
        return Pose(*nav.compose(x, y, yaw, *self.odometry(robot)))
