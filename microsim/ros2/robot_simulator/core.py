"""The core of `robot_simulator`: states, and what is said and sent. A pure function of ticks, inputs and stamps.

IDLE ──first /active_target, or /initialpose──▶ ACTIVE ──no command for cmd_timeout_sec──▶ TIMEOUT_STOP
                                                  ▲──────a command (auto_resume)───────────────┘
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

from microsim.engine.nav_robots import ACTIVE, IDLE, TIMEOUT_STOP
from microsim.engine.noise import stream_key
from microsim.engine.timekeeper import Clock, Trigger, exact_rate
from microsim.messages import encoders
from microsim.messages.outbox import Outbox
from microsim.messages.topics import TOPICS
from microsim.ros2.robot_simulator.fleet import NOWHERE, Fleet, Pose
from microsim.ros2.robot_simulator.grids import GridMap
from microsim.ros2.robot_simulator.moving import MovingObstacles, Obstacle
from microsim.ros2.robot_simulator.scanner import Scanner
from microsim.ros2.robot_simulator.sending import Sending, topic_of
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings
from microsim.ros2.transport import LogLevel

STATES = ("IDLE", "ACTIVE", "TIMEOUT_STOP")  # by the modes of sim/nav_robots.py
FASTEST = 1e6  # [m/s, rad/s] no command is meant to be faster; beyond it a position would soon be no number
WAITING_S = 5.0  # how often somebody who waits for a first target is reminded of it

_OK, _WARN = 0, 1  # levels of diagnostic_msgs/DiagnosticStatus
_COUNTED = (
    *("commands", "clipped_commands", "bad_commands", "early_commands", "late_commands", "timeouts"),
    *("targets", "external_poses", "initial_poses", "bad_poses"),
)


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
        self.robots = settings.robots
        self.outbox = Outbox()
        self.clock = Clock(settings.cycle_hz)
        self.tick = 0
        self.grid = grid
        self.moving = MovingObstacles(obstacles, settings.seed, self.clock.dt)
        self.counters = [Counter[str]() for _ in self.robots]
        self._say = say
        self._fleet = Fleet(settings, self.clock)
        self._is_stopped = np.zeros(len(self.robots), np.bool_)  # by a timeout that was told
        self._changed: list[int] = []  # robots whose state has changed since the last tick was sent
        self._scanner = Scanner(settings) if settings.scan_hz else None
        self._scan_keys = [stream_key(settings.seed, f"{robot}/scan") for robot in self.robots]
        self.sending = [Sending(robot, settings, self.outbox, self._scanner) for robot in self.robots]
        diagnostics = TOPICS["diagnostics"]
        self._send_diagnostics = self.outbox.sender(diagnostics.name, diagnostics.type, diagnostics.qos)
        self._encode_diagnostics = encoders.diagnostics()
        self._scan_due = _trigger(settings.scan_hz, settings)
        self._diagnostics_due = _trigger(settings.diagnostics_hz, settings)
        self._waiting_due = _trigger(1.0 / WAITING_S, settings)
        self.configure(settings)

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def configure(self, settings: RobotSimulatorSettings) -> None:
        """From the next tick on. What may not change is as it was."""
        self.settings = settings
        self._odom_due = _trigger(Fraction(1000, settings.timer_publish_odom_ms), settings)
        self._fleet.configure(settings)
        for sending in self.sending:
            sending.configure(settings)

    def use_map(self, grid: GridMap) -> None:
        self.grid = grid

    def command(self, robot: int, v: float, omega: float) -> None:
        """`/cmd_vel`."""
        topic, counters, mode = self._topic(robot, "/cmd_vel"), self.counters[robot], self._fleet.mode[robot]
        if not (abs(v) <= FASTEST and abs(omega) <= FASTEST):  # false for a NaN
            counters["bad_commands"] += 1
            text = f"{topic}: linear.x {v}, angular.z {omega} is no velocity; ignored"
            self._say("error", text, f"{robot} bad command")
        elif mode == IDLE:
            counters["early_commands"] += 1
            self._say("info", f"{topic}: ignored: {self._waiting_for(robot)}", f"{robot} early")
        elif mode == TIMEOUT_STOP and not self.settings.auto_resume:
            counters["late_commands"] += 1
            text = f"{topic}: ignored after the timeout (auto_resume is false) until a new /active_target comes"
            self._say("info", text, f"{robot} late")
        else:
            counters["commands"] += 1
            counters["clipped_commands"] += self._fleet.command(robot, v, omega, self.tick)
            if mode == TIMEOUT_STOP:
                self._activate(robot)
                self._say("info", f"{topic}: commands come again; {self._named(robot)}ACTIVE", f"{robot} resumed")

    def target(self, robot: int, pose: Pose) -> None:
        """`/active_target`: the first one says where the robot is; later ones are only noted."""
        topic, mode = self._topic(robot, "/active_target"), self._fleet.mode[robot]
        if not self._is_usable(robot, topic, pose):
            return
        self.counters[robot]["targets"] += 1
        if mode == IDLE:
            self._fleet.put(robot, pose, self.tick)
            self._activate(robot)
            self._say("info", f"{topic}: the robot starts at {pose}; {self._named(robot)}ACTIVE", "")
            return
        if mode == TIMEOUT_STOP and not self.settings.auto_resume:
            self._fleet.halt(robot, self.tick)
            self._activate(robot)
            self._say("info", f"{topic}: a new target; {self._named(robot)}ACTIVE", f"{robot} resumed")
        x, y, _ = self.pose(robot)
        way = math.sqrt((pose.x - x) * (pose.x - x) + (pose.y - y) * (pose.y - y))
        self._say("info", f"{topic}: {pose}, {way:.2f} m from here", f"{robot} target")

    def external_pose(self, robot: int, pose: Pose, stamp_ns: int = 0) -> None:
        """`/amcl_pose` of somebody else: moves the odom frame so that the robot was there at that time.

        Without a stamp: is there now. Its real place stays.
        """
        topic = self._topic(robot, "/amcl_pose")
        if not self._is_usable(robot, topic, pose):
            return
        if self._fleet.mode[robot] == IDLE:
            self._say("info", f"{topic}: ignored: {self._waiting_for(robot)}", f"{robot} early pose")
            return
        self.counters[robot]["external_poses"] += 1
        self._fleet.localise(robot, pose, stamp_ns)
        self._say("info", f"{topic}: localised at {pose}", f"{robot} localised")

    def initial_pose(self, robot: int, pose: Pose) -> None:
        """`/initialpose`: the robot is put there, at rest, and is ACTIVE."""
        topic = self._topic(robot, "/initialpose")
        if not self._is_usable(robot, topic, pose):
            return
        self.counters[robot]["initial_poses"] += 1
        self._fleet.put(robot, pose, self.tick)
        self._activate(robot)
        self._say("info", f"{topic}: the robot is put at {pose}; {self._named(robot)}ACTIVE", f"{robot} put")

    def _is_usable(self, robot: int, topic: str, pose: Pose) -> bool:
        if pose.is_usable():
            return True
        self.counters[robot]["bad_poses"] += 1
        self._say("error", f"{topic}: x {pose.x}, y {pose.y}, yaw {pose.yaw} is no pose; ignored", f"{robot} bad pose")
        return False

    def _activate(self, robot: int) -> None:
        if self._fleet.mode[robot] != ACTIVE:
            self._fleet.mode[robot] = ACTIVE
            self._is_stopped[robot] = False
            self._changed.append(robot)

    # ---- the tick ---------------------------------------------------------------------------------------------------

    def move(self, tick: int) -> None:
        """From tick to tick + 1."""
        stopped = self._fleet.advance(tick, self.grid, self.moving)
        self.tick = tick + 1
        if stopped:
            self._note_timeouts()

    def _note_timeouts(self) -> None:
        for robot in np.flatnonzero((self._fleet.mode == TIMEOUT_STOP) & ~self._is_stopped).tolist():
            self._is_stopped[robot] = True
            self._fleet.halt(robot, self.tick)
            self._changed.append(robot)
            self.counters[robot]["timeouts"] += 1
            silence = f"{self._topic(robot, '/cmd_vel')}: nothing for {self.settings.cmd_timeout_sec:g} s"
            self._say("warn", f"{silence}; {self._named(robot)}TIMEOUT_STOP", f"{robot} timeout")

    def send(self, tick: int, stamp_ns: int) -> None:
        """What is due at this tick. A robot that is IDLE knows of no place, and sends nothing."""
        rows, modes, changed = self._fleet.observed(tick, stamp_ns), self._fleet.mode.tolist(), self._changed
        is_odom_due, is_scan_due = _is_due(self._odom_due, tick), _is_due(self._scan_due, tick)
        for robot, sending in enumerate(self.sending):
            if modes[robot] == IDLE:
                continue
            try:
                if is_odom_due or robot in changed:  # a stop is told at once
                    sending.odom_and_tf(stamp_ns, rows[robot])
                sending.pose(stamp_ns, rows[robot])
                if is_scan_due:
                    self._scan(robot, tick, stamp_ns)
            except (ValueError, struct.error) as error:
                self._say("error", f"a message could not be made: {error}", "message")
        if _is_due(self._diagnostics_due, tick) or (changed and self._diagnostics_due is not None):
            self._diagnose(stamp_ns)
        changed.clear()
        if IDLE in modes and _is_due(self._waiting_due, tick):
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
        idle = [self.robots[robot] for robot, mode in enumerate(modes) if mode == IDLE]
        who = f" ({len(idle)} robots: {', '.join(idle[:5])}{', …' if len(idle) > 5 else ''})" if idle != [""] else ""
        self._say("info", f"waiting for a first /active_target or /initialpose{who}", "")

    # ---- what is so -------------------------------------------------------------------------------------------------

    def state(self, robot: int = 0) -> str:
        return STATES[self._fleet.mode[robot]]

    def velocity(self, robot: int = 0) -> tuple[float, float]:
        """Linear and angular [m/s, rad/s]."""
        return self._fleet.velocity(robot)

    def odometry(self, robot: int = 0) -> Pose:
        """In the odom frame."""
        return self._fleet.odometry(robot)

    def pose(self, robot: int = 0) -> Pose:
        """Where localisation believes the robot to be: what /tf says."""
        return self._fleet.pose(robot)

    def place(self, robot: int = 0) -> Pose:
        """Where it is: what its scanner sees."""
        return self._fleet.place(robot)

    def facts(self, robot: int = 0) -> dict[str, str]:
        """What /diagnostics says of a robot."""
        v, omega = self.velocity(robot)
        age_s = (self.tick - int(self._fleet.since[robot])) * self.clock.dt
        return {
            "state": self.state(robot),
            "linear_mps": f"{v:.3f}",
            "angular_rps": f"{omega:.3f}",
            "command_age_s": f"{age_s:.3f}" if self.state(robot) == "ACTIVE" else "",
            "free_way_m": f"{self._fleet.free_way(robot):.3f}",
            **{name: str(self.counters[robot][name]) for name in _COUNTED},
        }

    def digest(self) -> str:
        """SHA-256 over every message so far."""
        return self.outbox.digest.hex()

    def _topic(self, robot: int, name: str) -> str:
        return topic_of(self.robots[robot], name)

    def _named(self, robot: int) -> str:
        return f"{self.robots[robot]} is " if self.robots[robot] else "now "

    def _waiting_for(self, robot: int) -> str:
        return f"waiting for a first {self._topic(robot, '/active_target')}"


def _trigger(hz: float | Fraction, settings: RobotSimulatorSettings) -> Trigger | None:
    """At that rate, or at every tick where the cycle is slower; None: never."""
    return Trigger(min(hz, exact_rate(settings.cycle_hz)), settings.cycle_hz) if hz > 0 else None


def _is_due(trigger: Trigger | None, tick: int) -> bool:
    return trigger is not None and trigger.next_tick(tick) == tick


def rehearse(settings: RobotSimulatorSettings, obstacles: Sequence[Obstacle]) -> None:
    """Compile, or fetch from the cache, all that a run needs: afterwards its first ticks are as quick as later ones."""
    robots = RobotSimulator(settings, lambda level, text, kind: None, NOWHERE, obstacles)
    robots.send(0, 0)
    robots.initial_pose(0, Pose(0.0, 0.0, 0.0))
    robots.external_pose(0, Pose(0.0, 0.0, 0.0))
    robots.command(0, 0.1, 0.1)
    robots.move(0)
    robots.send(0, 0)
