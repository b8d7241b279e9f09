"""The robots of a `robot_simulator`: states, commands, places. A pure function of ticks, inputs and stamps.

IDLE ──first /active_target, or /initialpose──▶ ACTIVE ──no command for cmd_timeout_sec──▶ TIMEOUT_STOP
                                                  ▲──────a command (auto_resume)───────────────┘
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from microsim import encoders
from microsim.node.robot_simulator.grids import GridMap
from microsim.node.robot_simulator.moving import MovingObstacles, Obstacle
from microsim.node.robot_simulator.scanner import Scanner
from microsim.node.robot_simulator.sending import Sending, topic_of
from microsim.node.robot_simulator.settings import RobotSimulatorSettings
from microsim.outbox import Outbox
from microsim.scenario.values import MAX_LENGTH_M
from microsim.sim import exact
from microsim.sim import nav_robots as nav
from microsim.sim.noise import stream_key
from microsim.sim.timekeeper import Clock, Trigger
from microsim.topics import TOPICS
from microsim.transport import LogLevel

STATES = ("IDLE", "ACTIVE", "TIMEOUT_STOP")  # by the modes of sim/nav_robots.py
FASTEST = 1e6  # [m/s, rad/s] no command is meant to be faster; beyond it a position would soon be no number
WAITING_S = 5.0  # how often somebody who waits for a first target is reminded of it
NOWHERE = GridMap(1.0, (0.0, 0.0, 0.0), np.zeros((1, 1), np.uint8))  # no map: one free cell

_OK, _WARN = 0, 1  # levels of diagnostic_msgs/DiagnosticStatus


class Pose(NamedTuple):
    """Planar, in the map frame."""

    x: float  # [m]
    y: float  # [m]
    yaw: float  # [rad]

    def is_usable(self) -> bool:
        return all(map(math.isfinite, self)) and abs(self.x) <= MAX_LENGTH_M and abs(self.y) <= MAX_LENGTH_M

    def __str__(self) -> str:
        return f"({self.x:.3f}, {self.y:.3f}), {self.yaw * (180.0 / exact.PI):.1f}°"


class Say(Protocol):
    def __call__(self, level: LogLevel, text: str, kind: str) -> None:
        """Log; lines of one kind may be left out when they come too often."""


class RobotSimulator:
    """All robots of a node. Inputs are taken between two ticks, by number of the robot."""

    def __init__(
        self,
        settings: RobotSimulatorSettings,
        say: Say,
        grid: GridMap | None = None,
        obstacles: Sequence[Obstacle] = (),
    ) -> None:
        self.settings = settings
        self.robots = settings.robots
        self.outbox = Outbox()
        self.clock = Clock(settings.cycle_hz)
        self.tick = 0
        self.grid = grid
        self.moving = MovingObstacles(obstacles, settings.seed, self.clock.dt)
        self.counters = [Counter[str]() for _ in self.robots]
        self._say = say
        count = len(self.robots)
        self._state = np.zeros((nav.ROWS, count))
        self._state[nav.X], self._state[nav.Y] = settings.x0, settings.y0
        self._state[nav.YAW] = exact.wrap_angle(settings.yaw0_deg * (exact.PI / 180.0))
        self._state[nav.AHEAD] = math.inf
        self._mode = np.zeros(count, np.int64)
        self._since = np.zeros(count, np.int64)  # tick of the latest command
        self._is_stopped = np.zeros(count, np.bool_)  # by a timeout that was told
        self._wanted = np.zeros((2, count))  # as commanded
        self._command = np.zeros((2, count))  # within the limits
        self._observed = np.zeros((count, nav.FIELDS))
        self._changed: list[int] = []  # robots whose state has changed since the last tick was sent
        scanner = self._scanner = Scanner(settings) if settings.scan_hz else None
        self.sending = [Sending(robot, settings, self.outbox, scanner) for robot in self.robots]
        diagnostics = TOPICS["diagnostics"]
        self._send_diagnostics = self.outbox.sender(diagnostics.name, diagnostics.type, diagnostics.qos)
        self._encode_diagnostics = encoders.diagnostics()
        self._pose_keys = self._keys("amcl_pose")
        self._scan_keys = self._keys("scan").tolist()
        self._scan_due = self._trigger(settings.scan_hz)
        self._diagnostics_due = self._trigger(min(settings.diagnostics_hz, settings.cycle_hz))
        self._waiting_due = self._trigger(min(1.0 / WAITING_S, settings.cycle_hz))
        self.configure(settings)

    def _keys(self, stream: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.array([stream_key(self.settings.seed, f"{robot}/{stream}") for robot in self.robots], np.int64)

    def _trigger(self, hz: float) -> Trigger | None:
        return Trigger(hz, self.settings.cycle_hz) if hz > 0.0 else None

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def configure(self, settings: RobotSimulatorSettings) -> None:
        """From the next tick on. What may not change is as it was."""
        self.settings = settings
        odom_hz = min(Fraction(1000, settings.timer_publish_odom_ms), self.clock.rate)
        self._odom_due = Trigger(odom_hz, settings.cycle_hz)
        self._timeout_ticks = int(Fraction(str(settings.cmd_timeout_sec)) * self.clock.rate)
        self._sigma = settings.pose_noise_std_m, settings.yaw_noise_std_deg * (exact.PI / 180.0)
        parameters = self._parameters = np.zeros(nav.PARAMETERS)
        parameters[nav.DT] = self.clock.dt
        parameters[nav.MAX_V] = settings.max_linear_mps
        parameters[nav.SLOW_M] = settings.slow_distance_m if settings.enable_slow_down else 0.0
        parameters[nav.STOP_M] = settings.stop_distance_m
        parameters[nav.RADIUS_M] = settings.robot_radius_m
        parameters[nav.MIN_TURN_M] = settings.min_turn_radius_m
        parameters[nav.MAX_ACCEL], parameters[nav.MAX_JERK] = settings.max_linear_accel, settings.max_linear_jerk
        parameters[nav.MAX_ALPHA] = settings.max_angular_accel
        parameters[nav.MAX_ANGULAR_JERK] = settings.max_angular_jerk
        for sending in self.sending:
            sending.configure(settings)
        for robot in range(len(self.robots)):
            self._clip(robot)

    def use_map(self, grid: GridMap) -> None:
        self.grid = grid

    def command(self, robot: int, v: float, omega: float) -> None:
        """`/cmd_vel`."""
        topic, counters = topic_of(self.robots[robot], "/cmd_vel"), self.counters[robot]
        if not (abs(v) <= FASTEST and abs(omega) <= FASTEST):  # false for a NaN
            counters["bad_commands"] += 1
            text = f"{topic}: linear.x {v}, angular.z {omega} is no velocity; ignored"
            self._say("error", text, f"{robot} bad command")
            return
        if self._mode[robot] == nav.IDLE:
            counters["early_commands"] += 1
            self._say("info", f"{topic}: ignored: {self._waiting_for(robot)}", f"{robot} early")
            return
        if self._mode[robot] == nav.TIMEOUT_STOP and not self.settings.auto_resume:
            counters["late_commands"] += 1
            text = f"{topic}: ignored after the timeout (auto_resume is false) until a new /active_target comes"
            self._say("info", text, f"{robot} late")
            return
        counters["commands"] += 1
        self._wanted[:, robot] = v, omega
        self._since[robot] = self.tick
        if self._clip(robot):
            counters["clipped_commands"] += 1
        if self._mode[robot] == nav.TIMEOUT_STOP:
            self._enter(robot, nav.ACTIVE)
            self._say("info", f"{topic}: commands come again; {self._named(robot)}ACTIVE", f"{robot} resumed")

    def target(self, robot: int, pose: Pose) -> None:
        """`/active_target`: the first one says where the robot is; later ones are only noted."""
        topic = topic_of(self.robots[robot], "/active_target")
        if not pose.is_usable():
            self._refuse(robot, topic, pose)
            return
        self.counters[robot]["targets"] += 1
        if self._mode[robot] == nav.IDLE:
            self._put(robot, pose)
            self._say("info", f"{topic}: the robot starts at {pose}; {self._named(robot)}ACTIVE", "")
            return
        if self._mode[robot] == nav.TIMEOUT_STOP and not self.settings.auto_resume:
            self._halt(robot)
            self._enter(robot, nav.ACTIVE)
            self._say("info", f"{topic}: a new target; {self._named(robot)}ACTIVE", f"{robot} resumed")
        x, y, _ = self.pose(robot)
        way = math.sqrt((pose.x - x) * (pose.x - x) + (pose.y - y) * (pose.y - y))
        self._say("info", f"{topic}: {pose}, {way:.2f} m from here", f"{robot} target")

    def external_pose(self, robot: int, pose: Pose) -> None:
        """`/amcl_pose` of somebody else: moves the odom frame so that the robot is there. Its real place stays."""
        topic = topic_of(self.robots[robot], "/amcl_pose")
        if not pose.is_usable():
            self._refuse(robot, topic, pose)
            return
        if self._mode[robot] == nav.IDLE:
            self._say("info", f"{topic}: ignored: {self._waiting_for(robot)}", f"{robot} early pose")
            return
        self.counters[robot]["external_poses"] += 1
        self._state[nav.MAP_X : nav.MAP_YAW + 1, robot] = self._origin_for(robot, pose)
        self._say("info", f"{topic}: localised at {pose}", f"{robot} localised")

    def initial_pose(self, robot: int, pose: Pose) -> None:
        """`/initialpose`: the robot is put there, at rest, and is ACTIVE."""
        topic = topic_of(self.robots[robot], "/initialpose")
        if not pose.is_usable():
            self._refuse(robot, topic, pose)
            return
        self.counters[robot]["initial_poses"] += 1
        self._put(robot, pose)
        self._say("info", f"{topic}: the robot is put at {pose}; {self._named(robot)}ACTIVE", f"{robot} put")

    def _refuse(self, robot: int, topic: str, pose: Pose) -> None:
        self.counters[robot]["bad_poses"] += 1
        self._say("error", f"{topic}: x {pose.x}, y {pose.y}, yaw {pose.yaw} is no pose; ignored", f"{robot} bad pose")

    def _put(self, robot: int, pose: Pose) -> None:
        origin = self._origin_for(robot, pose)
        self._state[nav.MAP_X : nav.MAP_YAW + 1, robot] = origin
        self._state[nav.WORLD_X : nav.WORLD_YAW + 1, robot] = origin
        self._state[[nav.V, nav.OMEGA, nav.ACCEL, nav.ALPHA], robot] = 0.0
        self._halt(robot)
        self._enter(robot, nav.ACTIVE)

    def _halt(self, robot: int) -> None:
        """No command, and the timeout counts from now."""
        self._wanted[:, robot] = self._command[:, robot] = 0.0
        self._since[robot] = self.tick

    def _origin_for(self, robot: int, pose: Pose) -> tuple[float, float, float]:
        x, y, yaw = self._state[nav.X : nav.YAW + 1, robot].tolist()
        origin: tuple[float, float, float] = nav.origin_for(pose.x, pose.y, exact.wrap_angle(pose.yaw), x, y, yaw)
        return origin

    def _enter(self, robot: int, mode: int) -> None:
        if self._mode[robot] != mode:
            self._mode[robot] = mode
            self._is_stopped[robot] = False
            self._changed.append(robot)

    def _clip(self, robot: int) -> bool:
        """Bring the command within the limits; gives whether it was beyond them."""
        wanted = v, omega = tuple(self._wanted[:, robot].tolist())
        if self.settings.enable_cmd_limit:
            most_v, most_omega = self.settings.max_linear_mps, self.settings.max_angular_rps
            v, omega = min(max(v, -most_v), most_v), min(max(omega, -most_omega), most_omega)
        self._command[:, robot] = v, omega
        return (v, omega) != wanted

    # ---- the tick ---------------------------------------------------------------------------------------------------

    def move(self, tick: int) -> None:
        """From tick to tick + 1."""
        grid = self.grid or NOWHERE
        stopped = nav.advance(
            self._state,
            self._mode,
            self._since,
            self._command,
            self._parameters,
            self._timeout_ticks,
            tick,
            self.grid is not None,
            grid.clearance,
            grid.cell_m,
            grid.frame,
            self.moving.discs,
        )
        if len(self.moving):
            self.moving.advance(tick, grid)
        self.tick = tick + 1
        if stopped:
            self._note_timeouts()

    def _note_timeouts(self) -> None:
        for robot in np.flatnonzero((self._mode == nav.TIMEOUT_STOP) & ~self._is_stopped).tolist():
            self._is_stopped[robot] = True
            self._wanted[:, robot] = self._command[:, robot] = 0.0
            self._changed.append(robot)
            self.counters[robot]["timeouts"] += 1
            silence = f"{topic_of(self.robots[robot], '/cmd_vel')}: nothing for {self.settings.cmd_timeout_sec:g} s"
            self._say("warn", f"{silence}; {self._named(robot)}TIMEOUT_STOP", f"{robot} timeout")

    def send(self, tick: int, stamp_ns: int) -> None:
        """What is due at this tick. A robot that is IDLE knows of no place, and sends nothing."""
        nav.observe(self._state, self._pose_keys, tick, *self._sigma, self._observed)
        is_odom_due = self._odom_due.next_tick(tick) == tick
        is_scan_due = self._scan_due is not None and self._scan_due.next_tick(tick) == tick
        rows, modes, changed = self._observed.tolist(), self._mode.tolist(), self._changed
        for robot, sending in enumerate(self.sending):
            if modes[robot] == nav.IDLE:
                continue
            try:
                if is_odom_due or robot in changed:  # a stop is told at once
                    sending.odom_and_tf(stamp_ns, rows[robot])
                sending.pose(stamp_ns, rows[robot])
                if is_scan_due:
                    self._scan(robot, tick, stamp_ns)
            except (ValueError, struct.error) as error:
                self._say("error", f"a message could not be made: {error}", "message")
        is_due = self._diagnostics_due is not None and self._diagnostics_due.next_tick(tick) == tick
        if is_due or (self._changed and self._diagnostics_due is not None):
            self._diagnose(stamp_ns)
        self._changed.clear()
        if self._waiting_due is not None and self._waiting_due.next_tick(tick) == tick and nav.IDLE in modes:
            self._remind(modes)

    def _scan(self, robot: int, tick: int, stamp_ns: int) -> None:
        assert self._scanner is not None
        grid, sending = self.grid or NOWHERE, self.sending[robot]
        ranges = self._scanner.ranges(self.place(robot), grid, self.moving.discs, self._scan_keys[robot], tick)
        sending.send_scan(stamp_ns, sending.encode_scan(stamp_ns, ranges))

    def _diagnose(self, stamp_ns: int) -> None:
        statuses, verdicts = {}, {}
        for robot, name in enumerate(self.robots):
            title = f"robot_simulator: {name}" if name else "robot_simulator"
            statuses[title] = self.facts(robot)
            state = self.state(robot)
            verdicts[title] = (_WARN if state == "TIMEOUT_STOP" else _OK, state)
        try:
            self._send_diagnostics(stamp_ns, self._encode_diagnostics(stamp_ns, statuses, verdicts))
        except (ValueError, struct.error) as error:
            self._say("error", f"a message could not be made: {error}", "message")

    def _remind(self, modes: Sequence[int]) -> None:
        idle = [self.robots[robot] for robot, mode in enumerate(modes) if mode == nav.IDLE]
        who = f" ({len(idle)} robots: {', '.join(idle[:5])}{', …' if len(idle) > 5 else ''})" if idle != [""] else ""
        self._say("info", f"waiting for a first /active_target or /initialpose{who}", "")

    # ---- what is so -------------------------------------------------------------------------------------------------

    def state(self, robot: int = 0) -> str:
        return STATES[self._mode[robot]]

    def velocity(self, robot: int = 0) -> tuple[float, float]:
        """Linear and angular [m/s, rad/s]."""
        v, omega = self._state[nav.V : nav.OMEGA + 1, robot].tolist()
        return v, omega

    def odometry(self, robot: int = 0) -> Pose:
        return Pose(*self._state[nav.X : nav.YAW + 1, robot].tolist())

    def pose(self, robot: int = 0) -> Pose:
        """Where localisation believes the robot to be: what /tf says."""
        return self._in_map(robot, nav.MAP_X)

    def place(self, robot: int = 0) -> Pose:
        """Where it is: what its scanner sees."""
        return self._in_map(robot, nav.WORLD_X)

    def _in_map(self, robot: int, origin: int) -> Pose:
        x, y, yaw = self._state[origin : origin + 3, robot].tolist()
        return Pose(*nav.compose(x, y, yaw, *self.odometry(robot)))

    def facts(self, robot: int = 0) -> dict[str, str]:
        """What /diagnostics says of a robot."""
        v, omega = self.velocity(robot)
        since, counters = int(self._since[robot]), self.counters[robot]
        is_waiting = self.state(robot) == "ACTIVE"
        age_s = f"{(self.tick - since) * self.clock.dt:.3f}" if is_waiting else ""
        return {
            "state": self.state(robot),
            "linear_mps": f"{v:.3f}",
            "angular_rps": f"{omega:.3f}",
            "command_age_s": age_s,
            "free_way_m": f"{self._state[nav.AHEAD, robot]:.3f}",
            **{name: str(counters[name]) for name in _COUNTED},
        }

    def digest(self) -> str:
        """SHA-256 over every message so far."""
        return self.outbox.digest.hex()

    def _named(self, robot: int) -> str:
        return f"{self.robots[robot]} is " if self.robots[robot] else "now "

    def _waiting_for(self, robot: int) -> str:
        return f"waiting for a first {topic_of(self.robots[robot], '/active_target')}"


def rehearse(settings: RobotSimulatorSettings, obstacles: Sequence[Obstacle]) -> None:
    """Compile, or fetch from the cache, all that a run needs: afterwards its first ticks are as quick as later ones."""
    robots = RobotSimulator(settings, lambda level, text, kind: None, NOWHERE, obstacles)
    robots.send(0, 0)
    robots.initial_pose(0, Pose(0.0, 0.0, 0.0))
    robots.external_pose(0, Pose(0.0, 0.0, 0.0))
    robots.command(0, 0.1, 0.1)
    robots.move(0)
    robots.send(0, 0)


_COUNTED = (
    *("commands", "clipped_commands", "bad_commands", "early_commands", "late_commands", "timeouts"),
    *("targets", "external_poses", "initial_poses", "bad_poses"),
)
