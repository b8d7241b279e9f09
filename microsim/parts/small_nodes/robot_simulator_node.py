"""The node `robot_simulator`: `/cmd_vel` in, `/odom` and `/amcl_pose` out, for navigation tests.

`RobotSimulator` puts the document's states around the robots of a `Simulation`, as a function of ticks and inputs;
`RobotSimulatorNode` puts it on a transport.

IDLE ──first /active_target, or /initialpose──▶ ACTIVE ──no command for cmd_timeout_sec──▶ TIMEOUT_STOP
                                                  ▲──────a command (auto_resume)───────────────┘
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from microsim.bare_simulation import BareRun, BareSimulation, Diagnostics, OffsetClock, Statuses
from microsim.documents.values import MAX_LENGTH_M
from microsim.engine import exact
from microsim.engine.components import YAW, X, Y, Z
from microsim.engine.geometry import Array
from microsim.engine.timekeeper import NS_PER_S, Trigger, exact_rate
from microsim.engine.world import World
from microsim.engine.worlds import Fleet
from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS, Qos
from microsim.parts.ros2.node_parameters import read_settings
from microsim.parts.ros2.transport import LogLevel, Transport
from microsim.parts.small_nodes import discs
from microsim.parts.small_nodes import robot_maps as maps
from microsim.parts.small_nodes.node_scenario import OK, WARN, node_scenario
from microsim.parts.small_nodes.paced_node import PacedNode, node_clock
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings
from microsim.robots.navigation_robot import exact_speeds
from microsim.runner import WallClock
from microsim.scenario import Scenario
from microsim.sensors import localisation, odometry

NAME = "robot_simulator"
COMMAND_QOS = Qos(10)  # §9: reliable, keep last 10; so are targets and external poses
MAP_QOS = Qos(1, latched=True)  # as map_server offers it
IDLE, ACTIVE, TIMEOUT_STOP = range(3)
REST = (0.0, 0.0)  # as a command: the timeout counts from it
STATES = ("IDLE", "ACTIVE", "TIMEOUT_STOP")
DEGREE = exact.PI / 180.0
FASTEST = 1e6  # [m/s, rad/s] no command is meant to be faster; beyond it a position would soon not be a number
REMEMBERED_S = 2.0  # a localiser that is later than this is taken as of now
STALE_S = 10.0  # a pose stamped less than this before an /initialpose is of before it
WAITING_S = 5.0  # how often a node that waits for a first target says so

_COUNTED = (
    *("commands", "clipped_commands", "bad_commands", "early_commands", "late_commands", "timeouts"),
    *("targets", "external_poses", "initial_poses", "bad_poses", "stale_poses"),
)
_HELD = ("/odom", "/tf", "/amcl_pose", "/scan")  # not sent before the first target
_ODOM_POSE, _ODOM_TRUE = slice(0, 4), slice(4, 8)  # in the memory of odometry: x, y, z, yaw there and in the map


Say: TypeAlias = Callable[[LogLevel, str, str], None]  # level, text, kind: of one kind not too often
Speeds: TypeAlias = tuple[float, float]  # [m/s, rad/s]


class PlanarPose(NamedTuple):
    """Planar, in the map frame."""

    x: float  # [m]
    y: float  # [m]
    yaw: float  # [rad]

    def __str__(self) -> str:
        return f"({self.x:.3f}, {self.y:.3f}), {self.yaw / DEGREE:.1f}°"


def topic_of(robot: str, name: str) -> str:
    """A robot without a name has the document's topics; others have them below their names."""
    return f"/{robot}{name}" if robot else name


class RobotSimulator:
    """All robots of a node. Inputs are taken between two ticks, by number of the robot."""

    def __init__(
        self,
        settings: RobotSimulatorSettings,
        say: Say,
        world: World | None = None,
        obstacles: Sequence[maps.Obstacle] = (),
        clock: OffsetClock | None = None,
    ) -> None:
        self.robots, self.settings = settings.robots, settings
        self.clock = clock or OffsetClock(settings.cycle_hz)
        self.moving = maps.MovingObstacles(obstacles, settings.seed, self.clock.dt)
        self.counters = [Counter[str]() for _ in self.robots]
        self.pace: Callable[[], Mapping[str, str]] = dict
        self._say = say
        self._mode = np.zeros(len(self.robots), np.int64)
        self._reminder = Trigger(min(Fraction(1, int(WAITING_S)), exact_rate(settings.cycle_hz)), settings.cycle_hz)
        self._next_reminder = 0  # tick
        self._next_timeout = 0  # no robot can time out before this tick
        self._diagnostics: Diagnostics | None = None
        self.history = PoseHistory(settings)
        held = [topic_of(robot, name) for robot in self.robots for name in _HELD]
        scene = world or maps.NOWHERE, self.clock, settings.publish_clock
        self.sim = BareSimulation(self._scenario(), *scene, self._compose, held)
        for robot in self.robots:
            start = settings.x0, settings.y0, 0.0, exact.wrap_angle(settings.yaw0_deg * DEGREE)
            self._memory(robot, "odom")[_ODOM_POSE] = start

    @property
    def tick(self) -> int:
        return self.sim.tick

    # ---- what the simulation is made of ------------------------------------------------------------------------------

    def configure(self, settings: RobotSimulatorSettings) -> None:
        """From the next tick on. What may not change is as it was."""
        self.settings = settings
        self._next_timeout = 0
        self.sim.reconfigure(self._scenario())

    def _scenario(self) -> Scenario:
        robots = dict.fromkeys(self.robots, self.settings.robot())
        return node_scenario(NAME, self.settings.cycle_hz, self.settings.seed, robots)

    def _compose(self, run: BareRun) -> None:
        if self.settings.publish_tf:
            for robot in self.robots:
                self._add_frames(run, robot)
        run.alter("odom", exact_speeds, np.zeros(1), reads_state=True)
        if len(self.moving):
            run.alter("scan", discs.shorten_ranges, self.moving.discs.reshape(-1))
        self._diagnostics = run.add_diagnostics(self.settings.diagnostics_hz, self._statuses)

    def _add_frames(self, run: BareRun, robot: str) -> None:
        """/tf of a robot, as `tf_tree` says."""
        settings, odom = self.settings, run.sensing[f"{robot}/odom"].memories[0]
        correction, drifts = run.sensing[f"{robot}/amcl_pose"].memories[0], np.ones(1)
        top, middle, base = settings.frame_map, settings.frame_odom, settings.frame_base
        frames = []
        if settings.tf_tree == "map_base":
            frames.append((top, base, run.frame_call(localisation.map_to_base, robot, correction, odom)))
        if settings.tf_tree == "map_odom_base":
            frames.append((top, middle, run.frame_call(localisation.map_to_odom, robot, correction, odom)))
        if settings.tf_tree != "map_base":
            frames.append((middle, base, run.frame_call(odometry.odom_to_base, robot, odom, drifts)))
        run.add_transforms(replace(TOPICS["tf"], name=topic_of(robot, "/tf")), settings.odom_hz, frames)

    def _memory(self, robot: str, sensor: str) -> Array:
        return self.sim.memory_of(f"{robot}/{sensor}")

    # ---- inputs -----------------------------------------------------------------------------------------------------

    def command(self, robot: int, v: float, omega: float) -> None:
        topic, counters, mode = self._topic(robot, "/cmd_vel"), self.counters[robot], self._mode[robot]
        if not (abs(v) <= FASTEST and abs(omega) <= FASTEST):  # false for a NaN
            counters["bad_commands"] += 1
            text = f"{topic}: linear.x {v}, angular.z {omega} is not a velocity; ignored"
            self._say("error", text, f"{robot} bad command")
        elif mode == IDLE:
            counters["early_commands"] += 1
            self._say(
                "info",
                f"{topic}: ignored: waiting for a first {self._topic(robot, '/active_target')}",
                f"{robot} early",
            )
        elif mode == TIMEOUT_STOP and not self.settings.auto_resume:
            counters["late_commands"] += 1
            text = f"{topic}: ignored after the timeout (auto_resume is false) until a new /active_target comes"
            self._say("info", text, f"{robot} late")
        else:
            counters["commands"] += 1
            limits = self.settings
            is_beyond = abs(v) > limits.max_linear_mps or abs(omega) > limits.max_angular_rps
            counters["clipped_commands"] += limits.enable_cmd_limit and is_beyond
            self.sim.fleet.take(robot, (v, omega))
            if mode == TIMEOUT_STOP:
                self._activate(robot)
                self._say("info", f"{topic}: commands come again; {self._named(robot)}ACTIVE", f"{robot} resumed")

    def target(self, robot: int, pose: PlanarPose) -> None:
        """`/active_target`: the first one says where the robot is; later ones are only noted."""
        topic, mode = self._topic(robot, "/active_target"), self._mode[robot]
        if not self._is_usable(robot, topic, pose):
            return
        self.counters[robot]["targets"] += 1
        if mode == IDLE:
            self._put(robot, pose)
            self._activate(robot)
            self._say("info", f"{topic}: the robot starts at {pose}; {self._named(robot)}ACTIVE", "")
            return
        if mode == TIMEOUT_STOP and not self.settings.auto_resume:
            self.sim.fleet.take(robot, REST)
            self._activate(robot)
            self._say("info", f"{topic}: a new target; {self._named(robot)}ACTIVE", f"{robot} resumed")
        x, y, _ = self.pose(robot)
        way = math.sqrt((pose.x - x) * (pose.x - x) + (pose.y - y) * (pose.y - y))
        self._say("info", f"{topic}: {pose}, {way:.2f} m from here", f"{robot} target")

    def external_pose(self, robot: int, pose: PlanarPose, stamp_ns: int = 0) -> None:
        """`/amcl_pose` of another node: moves the odom frame so that the robot was there at that time.

        Without a stamp: is there now. Its real place stays. A pose of before it was put somewhere does not count.
        """
        topic = self._topic(robot, "/amcl_pose")
        if not self._is_usable(robot, topic, pose):
            return
        if self._mode[robot] == IDLE:
            self._say(
                "info",
                f"{topic}: ignored: waiting for a first {self._topic(robot, '/active_target')}",
                f"{robot} early pose",
            )
            return
        if self.history.is_stale(robot, stamp_ns):
            self.counters[robot]["stale_poses"] += 1
            self._say("info", f"{topic}: ignored: it is of before the robot was put elsewhere", f"{robot} stale")
            return
        self.counters[robot]["external_poses"] += 1
        speeds = self.velocity(robot)
        then = self.history.pose_at(robot, stamp_ns, self.place(robot), speeds)
        yaw = exact.wrap_angle(pose.yaw)
        self._memory(self.robots[robot], "amcl_pose")[:] = localisation.correction_for(pose.x, pose.y, yaw, *then)
        self._say("info", f"{topic}: localised at {pose}", f"{robot} localised")

    def initial_pose(self, robot: int, pose: PlanarPose) -> None:
        """`/initialpose`: the robot is put there, at rest, and is ACTIVE."""
        topic = self._topic(robot, "/initialpose")
        if not self._is_usable(robot, topic, pose):
            return
        self.counters[robot]["initial_poses"] += 1
        self._put(robot, pose)
        self._activate(robot)
        self._say("info", f"{topic}: the robot is put at {pose}; {self._named(robot)}ACTIVE", f"{robot} put")

    def _is_usable(self, robot: int, topic: str, pose: PlanarPose) -> bool:
        if abs(pose.x) <= MAX_LENGTH_M and abs(pose.y) <= MAX_LENGTH_M and math.isfinite(pose.yaw):  # false for a NaN
            return True
        self.counters[robot]["bad_poses"] += 1
        self._say(
            "error", f"{topic}: x {pose.x}, y {pose.y}, yaw {pose.yaw} is not a pose; ignored", f"{robot} bad pose"
        )
        return False

    def _put(self, robot: int, pose: PlanarPose) -> None:
        """There, at rest, and known to be there; the odometry stays continuous."""
        name = self.robots[robot]
        self.sim.place(name, *pose)
        self._memory(name, "amcl_pose")[:] = 0.0
        self._memory(name, "odom")[_ODOM_TRUE] = self.sim.fleet.state[[X, Y, Z, YAW], robot]
        self.history.put_at[robot] = self.clock.time_ns(self.tick)
        self.sim.fleet.take(robot, REST)

    def _activate(self, robot: int) -> None:
        if self._mode[robot] != ACTIVE:
            if self._mode[robot] == IDLE:
                self.sim.release([self._topic(robot, name) for name in _HELD])
            self._mode[robot] = ACTIVE
            self._next_timeout = 0
            self._tell_at_once(robot)

    def _tell_at_once(self, robot: int) -> None:
        """A change of state is sent with the next tick, whether /odom is due or not."""
        self.sim.send_next([self._topic(robot, name) for name in ("/odom", "/tf")])
        if self._diagnostics is not None:
            self._diagnostics.due = 0

    # ---- the tick ---------------------------------------------------------------------------------------------------

    def step(self, ticks: int = 1) -> Sequence[Message]:
        """Advance; gives the messages of these ticks. The first call also gives tick 0's."""
        self.after_ticks()  # of tick 0; of others it has been called
        sent: list[Sequence[Message]] = []
        for _ in range(ticks):
            self.before_tick()
            sent.append(self.sim.step(1))
            self.after_ticks()
        if len(sent) == 1:
            return sent[0]
        return [message for messages in (sent or [self.sim.step(0)]) for message in messages]

    def before_tick(self) -> None:
        """The last that happens before a tick, when all inputs have come."""
        if self.tick >= self._next_timeout:
            self._stop_the_silent()
        if len(self.moving):
            self._move_obstacles()

    def after_ticks(self, messages: Sequence[Message] = ()) -> None:
        tick = self.tick
        if tick:
            self.history.note(tick, self.clock.time_ns(tick), self.sim.fleet.state)
        if tick >= self._next_reminder:
            self._remind()

    def _stop_the_silent(self) -> None:
        """Robots whose command runs out in the next tick; and when that can next happen."""
        limit = max(int(exact_rate(self.settings.cmd_timeout_sec) * self.clock.rate), 1)
        (ages,) = self.sim.fleet.rows("command_age")
        for robot in np.flatnonzero((self._mode == ACTIVE) & (ages >= limit)).tolist():
            self._mode[robot] = TIMEOUT_STOP
            self.sim.fleet.take(robot, REST)
            self._tell_at_once(robot)
            self.counters[robot]["timeouts"] += 1
            silence = f"{self._topic(robot, '/cmd_vel')}: nothing for {self.settings.cmd_timeout_sec:g} s"
            self._say("warn", f"{silence}; {self._named(robot)}TIMEOUT_STOP", f"{robot} timeout")
        oldest = ages[self._mode == ACTIVE].max(initial=0.0)
        self._next_timeout = self.tick + limit - int(oldest)

    def _move_obstacles(self) -> None:
        """Robots see where they are before the tick, scans where they are after it."""
        fleet = self.sim.fleet
        radii = np.full(len(self.robots), self.settings.robot_radius_m)
        ahead, astern = (
            fleet.parameters[fleet.model.parameter_names.index(f"others_{way}")] for way in ("ahead", "astern")
        )
        discs.ways_to_discs(self.moving.discs, fleet.state[X : YAW + 1], radii, ahead, astern)
        self.moving.advance(self.tick, self.sim.world)

    def _remind(self) -> None:
        self._next_reminder = self._reminder.next_tick(self.tick + 1)
        idle = [self.robots[robot] for robot in np.flatnonzero(self._mode == IDLE)]
        if idle:
            named = f" ({len(idle)} robots: {', '.join(idle[:5])}{', …' if len(idle) > 5 else ''})"
            self._say("info", f"waiting for a first /active_target or /initialpose{named if idle != [''] else ''}", "")

    def _statuses(self, fleet: Fleet, tick: int) -> Statuses:
        found = {}
        for robot, name in enumerate(self.robots):
            state = self.state(robot)
            title = f"robot_simulator: {name}" if name else "robot_simulator"
            found[title] = (WARN if state == "TIMEOUT_STOP" else OK, state, self.figures(robot, fleet))
        return found

    # ---- what is so -------------------------------------------------------------------------------------------------

    def state(self, robot: int = 0) -> str:
        return STATES[self._mode[robot]]

    def velocity(self, robot: int = 0) -> tuple[float, float]:
        """Linear and angular [m/s, rad/s]."""
        v, omega = self.sim.fleet.rows("v", "yaw_rate")[:, robot].tolist()
        return v, omega

    def odometry(self, robot: int = 0) -> PlanarPose:
        """In the odom frame."""
        x, y, _, yaw = self._memory(self.robots[robot], "odom")[_ODOM_POSE].tolist()
        return PlanarPose(x, y, yaw)

    def pose(self, robot: int = 0) -> PlanarPose:
        """Where localisation believes the robot to be: what /tf says."""
        x, y, yaw = self._memory(self.robots[robot], "amcl_pose").tolist()
        return PlanarPose(*localisation.compose(x, y, yaw, *self.place(robot)))

    def place(self, robot: int = 0) -> PlanarPose:
        """Where it is: what its scanner sees."""
        return PlanarPose(*self.sim.fleet.state[[X, Y, YAW], robot].tolist())

    def figures(self, robot: int = 0, fleet: Fleet | None = None) -> dict[str, str]:
        """What /diagnostics says of a robot."""
        rows = (fleet or self.sim.fleet).rows("v", "yaw_rate", "command_age", "ahead")
        v, omega, age, ahead = rows[:, robot].tolist()
        age_s = f"{age * self.clock.dt:.3f}" if self.state(robot) == "ACTIVE" else ""
        return {
            "state": self.state(robot),
            "linear_mps": f"{v:.3f}",
            "angular_rps": f"{omega:.3f}",
            "command_age_s": age_s,
            "free_way_m": f"{ahead:.3f}",
            **{name: str(self.counters[robot][name]) for name in _COUNTED},
            **self.pace(),
        }

    def digest(self) -> str:
        """SHA-256 over every message so far."""
        return self.sim.digest()

    def _topic(self, robot: int, name: str) -> str:
        return topic_of(self.robots[robot], name)

    def _named(self, robot: int) -> str:
        return f"{self.robots[robot]} is " if self.robots[robot] else "now "


class PoseHistory:
    """Where the robots were at the latest ticks, by stamp."""

    def __init__(self, settings: RobotSimulatorSettings) -> None:
        count, ticks = len(settings.robots), math.ceil(REMEMBERED_S * settings.cycle_hz) + 2
        self._period_ns = 1e9 / float(settings.cycle_hz)
        self._stamps = np.full(ticks, -1, np.int64)  # [ns], a ring
        self._poses = np.zeros((ticks, YAW + 1, count))  # x, y, z, yaw at these ticks
        self.put_at = np.full(count, -1, np.int64)  # [ns] when a robot was last put somewhere

    def note(self, tick: int, stamp_ns: int, state: Array) -> None:
        slot = tick % len(self._stamps)
        self._stamps[slot], self._poses[slot] = stamp_ns, state[: YAW + 1]

    def is_stale(self, robot: int, stamp_ns: int) -> bool:
        """Whether a stamp is of before the robot was put where it is; one of another clock is not."""
        return stamp_ns > 0 and 0 <= int(self.put_at[robot]) - stamp_ns < STALE_S * 1e9

    def pose_at(self, robot: int, stamp_ns: int, now: PlanarPose, speeds: Speeds) -> PlanarPose:
        """Interpolated between ticks, extrapolated up to a tick after the latest; now, where the stamp is not ours."""
        known = np.flatnonzero((self._stamps > self.put_at[robot]) & (self._stamps >= 0))
        stamps = self._stamps[known]
        if stamp_ns <= 0 or not known.size or stamp_ns < stamps.min():
            return now
        before = known[np.argmax(np.where(stamps <= stamp_ns, stamps, -1))]
        since_ns = stamp_ns - int(self._stamps[before])
        later = known[stamps > stamp_ns]
        if later.size:
            after = later[np.argmin(self._stamps[later])]
            share = since_ns / int(self._stamps[after] - self._stamps[before])
            (x, y, yaw), (end_x, end_y, end_yaw) = self._poses[[before, after]][:, [X, Y, YAW], robot].tolist()
            turned = exact.wrap_angle(yaw + share * exact.wrap_angle(end_yaw - yaw))
            return PlanarPose(x + share * (end_x - x), y + share * (end_y - y), turned)
        if since_ns > self._period_ns:
            return now
        (v, omega), ahead_s = speeds, since_ns / 1e9
        sine, cosine = exact.sincos(now.yaw)
        x, y = now.x + v * cosine * ahead_s, now.y + v * sine * ahead_s
        return PlanarPose(x, y, exact.wrap_angle(now.yaw + omega * ahead_s))


class RobotSimulatorNode(PacedNode):
    core: RobotSimulator

    def __init__(
        self, transport: Transport, settings: RobotSimulatorSettings | None = None, clock: WallClock | None = None
    ) -> None:
        """Settings that are not given are read from the transport's --ros-args."""
        chosen = settings if settings is not None else read_settings(transport, RobotSimulatorSettings)
        obstacles = maps.read_obstacles(chosen.obstacles) if chosen.obstacles else ()
        world = maps.load_map(chosen.map, chosen.map_occupied_min) if chosen.map else None
        core = RobotSimulator(chosen, self.say, world, obstacles, node_clock(chosen, chosen.cycle_hz))
        super().__init__(transport, core, chosen, clock)
        self.runner.overrides.append(core.before_tick)
        self.runner.listen(messages=core.after_ticks)
        for number, robot in enumerate(chosen.robots):
            self._listen(number, robot, chosen)
        if chosen.map_topic:
            self.subscribe(chosen.map_topic, "nav_msgs/msg/OccupancyGrid", self._on_map, MAP_QOS)
        self.declare(chosen, core.configure)

    def waits_for(self) -> str:
        topics = ", ".join(topic_of(robot, "/active_target") for robot in self.core.robots[:3])
        more = ", …" if len(self.core.robots) > 3 else ""
        return f"a first pose on {topics}{more} or /initialpose; until then commands are ignored"

    def _listen(self, number: int, robot: str, settings: RobotSimulatorSettings) -> None:
        def subscribe(name: str, type_name: str, take: Callable[[int, Any], None], from_others: bool = False) -> None:
            topic = topic_of(robot, name)
            self.subscribe(topic, type_name, lambda message: take(number, message), COMMAND_QOS, from_others)

        twist = "TwistStamped" if settings.stamped_cmd_vel else "Twist"
        subscribe("/cmd_vel", f"geometry_msgs/msg/{twist}", self._on_cmd_vel)
        subscribe("/active_target", "geometry_msgs/msg/PoseStamped", self._on_active_target)
        subscribe("/amcl_pose", localisation.POSE_TYPE, self._on_amcl_pose, from_others=True)
        subscribe("/initialpose", localisation.POSE_TYPE, self._on_initial_pose)

    def _on_cmd_vel(self, robot: int, message: Any) -> None:
        twist = message.twist if self.core.settings.stamped_cmd_vel else message
        self.core.command(robot, float(twist.linear.x), float(twist.angular.z))

    def _on_active_target(self, robot: int, message: Any) -> None:
        if self._is_in_map_frame(robot, "/active_target", message):
            self.core.target(robot, _pose(message.pose))

    def _on_amcl_pose(self, robot: int, message: Any) -> None:
        stamp = message.header.stamp
        if self._is_in_map_frame(robot, "/amcl_pose", message):
            self.core.external_pose(robot, _pose(message.pose.pose), stamp.sec * NS_PER_S + stamp.nanosec)

    def _on_initial_pose(self, robot: int, message: Any) -> None:
        if self._is_in_map_frame(robot, "/initialpose", message):
            self.core.initial_pose(robot, _pose(message.pose.pose))

    def _is_in_map_frame(self, robot: int, name: str, message: Any) -> bool:
        """A frame that was not filled in counts as the map's."""
        frame, expected = message.header.frame_id, self.core.settings.frame_map
        if frame in ("", expected):
            return True
        topic = topic_of(self.core.robots[robot], name)
        self.ignore(f"poses in other frames on {topic}", "warn", f"{topic}: in frame {frame!r}, expected {expected!r}")
        return False

    def _on_map(self, message: Any) -> None:
        topic = self.core.settings.map_topic
        try:
            self.core.sim.use_world(maps.world_of_message(message, self.core.settings.map_occupied_min))
        except UsageError as error:
            self.ignore(f"maps on {topic}", "error", f"{topic}: ignored: {error}")
        else:
            self.say("info", f"{topic}: a map of {message.info.width} by {message.info.height} cells", "map")


def _pose(message: Any) -> PlanarPose:
    return PlanarPose(float(message.position.x), float(message.position.y), maps.heading(message.orientation))
