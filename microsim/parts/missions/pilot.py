"""`MissionPilot`: checks a mission against a simulation, and runs it there.

What it does at a tick depends only on the tick, the state and the messages, and uses the public API: the same mission,
scenario and seed give the same run, and a recording contains every command.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from microsim.documents.values import show
from microsim.engine import exact
from microsim.engine.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, X, Y, Z
from microsim.engine.timekeeper import Trigger
from microsim.errors import MissionError, ScenarioError, UsageError, unknown
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS
from microsim.parts.missions.follower import FOLLOW_HZ, FollowedPose, Follower, FollowerGoal, steer_for
from microsim.parts.missions.judge import DERIVED, TOPIC_VALUES, FieldPath, Judge, MissionVerdict
from microsim.parts.missions.mission_file import (
    AnyAction,
    CommandAction,
    Mission,
    PauseAction,
    RadioAction,
    RadioExpectation,
    RobotAction,
    RobotExpectation,
    SetAction,
    TeleportAction,
    TopicExpectation,
    WaypointsAction,
)
from microsim.scenario import Scenario
from microsim.scenario.files import in_order
from microsim.scenario.loading import SettingError, with_values
from microsim.simulation import Simulation

# ---- before the start: everything that cannot work is reported -------------------------------------------------------

Loc: TypeAlias = tuple[str | int, ...]
Found: TypeAlias = Iterator[tuple[str, Loc]]  # what is wrong, and where in the mission


def check(mission: Mission, sim: Simulation) -> None:
    """Raises MissionError with every reason why this simulation cannot run the mission."""
    found = [*_actions(mission, sim), *_settings(mission, sim), *_expectations(mission, sim)]
    if found:
        raise MissionError(in_order(mission._places.problem(message, loc) for message, loc in found))


def _actions(mission: Mission, sim: Simulation) -> Found:
    for index, entry in enumerate(mission.do):
        if not isinstance(entry, RobotAction):
            continue
        if entry.robot not in sim.robots:
            yield _no_robot(sim, entry.robot), ("do", index, "robot")
            continue
        for message, loc in _action(entry, sim):
            yield message, ("do", index, *loc)


def _no_robot(sim: Simulation, name: str) -> str:
    return unknown(f"the scenario {sim.scenario.name!r} has no robot", repr(name), name, sim.robots)


def _action(entry: RobotAction, sim: Simulation) -> Found:
    if isinstance(entry, CommandAction):
        inputs = sim.model(entry.robot).inputs
        for name in entry.command:
            if name not in inputs:
                yield unknown(f"{entry.robot} has no command", repr(name), name, inputs), ("command", name)
    elif isinstance(entry, TeleportAction):
        yield from _teleport(entry, sim)
    elif isinstance(entry, RadioAction):
        yield from _radio(entry, sim)
    elif isinstance(entry, WaypointsAction):
        yield from _waypoints(entry, sim)


def _teleport(entry: TeleportAction, sim: Simulation) -> Found:
    place, world = entry.teleport, sim.world
    if sim.resolved.robots[entry.robot].follows_path:
        yield f"{entry.robot} follows its own path and cannot be put elsewhere", ("teleport",)
    if not sim.model(entry.robot).is_ground_bound:
        return
    if not world.is_inside(place.x, place.y):
        width, height = world.size_m
        yield f"({place.x:g}, {place.y:g}) is off the map of {width:g} m × {height:g} m", ("teleport",)
    elif world.is_occupied(place.x, place.y):
        yield f"({place.x:g}, {place.y:g}) is in an occupied cell", ("teleport",)


def _radio(entry: RadioAction, sim: Simulation) -> Found:
    if sim.radio is None:
        yield f"the scenario {sim.scenario.name!r} has no radio between robots", ("radio",)
    limit, size = sim.scenario.radio.max_payload_bytes, len(payload(entry, entry.times - 1))
    if size > limit:
        yield f"expected at most {limit} bytes (radio.max_payload_bytes), found {size}", ("radio",)


def _waypoints(entry: WaypointsAction, sim: Simulation) -> Found:
    model = sim.model(entry.robot)
    if steer_for(model, sim.resolved.robots[entry.robot]) is None:
        inputs = ", ".join(model.inputs) or "none"
        yield f"{entry.robot} cannot follow waypoints, which needs other inputs; it has: {inputs}", ("waypoints",)
    for index, waypoint in enumerate(entry.waypoints):
        if model.is_ground_bound and len(waypoint) > 2:
            message = f"{entry.robot} is a ground robot: expected [x, y], found {show(waypoint)}"
            yield message, ("waypoints", index)


def payload(entry: RadioAction, repetition: int) -> bytes:
    return entry.radio.replace("{n}", str(repetition)).encode()


def changed(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario with changed values; SettingError: a key that cannot change, ScenarioError: a wrong value."""
    for path in changes:
        if path.split(".")[0] in _FIXED:
            raise SettingError(f"{path.split('.')[0]} cannot change during a run", path)
    return with_values(scenario, changes)


_FIXED = ("name", "seed", "physics_hz", "map", "world", "obstacles", "features", "randomize", "plugins")


def _settings(mission: Mission, sim: Simulation) -> Found:
    """Changes in the order of time, each on top of those before it."""
    entries = [(index, entry) for index, entry in enumerate(mission.do) if isinstance(entry, SetAction)]
    scenario, twin = sim.scenario, None
    for index, entry in sorted(entries, key=lambda item: (item[1].after is not None, item[1].at, item[0])):
        try:
            scenario = changed(scenario, entry.set)
            twin = twin or sim.fork()
            twin.reconfigure(scenario)
        except ScenarioError as error:
            for problem in error.problems:
                key = next((path for path in entry.set if problem.path.startswith(path)), None)
                message = problem.message if key == problem.path else f"{problem.path}: {problem.message}"
                yield message, ("do", index, "set", *([key] if key else []))
        except SettingError as error:
            yield str(error), ("do", index, "set", error.path)
        except UsageError as error:
            yield str(error), ("do", index, "set")


def _expectations(mission: Mission, sim: Simulation) -> Found:
    is_open = any(isinstance(entry, SetAction) for entry in mission.do)  # a topic may appear later
    for index, entry in enumerate(mission.expect):
        if isinstance(entry, RobotExpectation):
            found = _about_robot(entry, sim)
        elif isinstance(entry, TopicExpectation):
            found = _about_topic(entry, sim, is_open)
        else:
            found = _about_radio(entry, sim)
        for message, key in found:
            yield message, ("expect", index, *key)


def _about_robot(entry: RobotExpectation, sim: Simulation) -> Found:
    if entry.robot not in sim.robots:
        yield _no_robot(sim, entry.robot), ("robot",)
        return
    values: Sequence[str] = [*sim.model(entry.robot).state, *DERIVED]
    if entry.value not in values:
        yield unknown(f"{entry.robot} has no value", repr(entry.value), entry.value, values), ("value",)


def _about_topic(entry: TopicExpectation, sim: Simulation, is_open: bool) -> Found:
    if entry.topic not in sim.topics:
        if not is_open:
            yield unknown("there is no topic", repr(entry.topic), entry.topic, sim.topics), ("topic",)
    elif entry.value not in TOPIC_VALUES:
        type_name = sim.topics[entry.topic][0]
        problem = FieldPath(entry.value).problem(type_name)
        if problem:
            yield f"{problem}; there are also: {', '.join(TOPIC_VALUES)}", ("value",)


def _about_radio(entry: RadioExpectation, sim: Simulation) -> Found:
    for position, name in enumerate(entry.radio):
        if name not in sim.robots:
            yield _no_robot(sim, name), ("radio", position)
    if sim.radio is None:
        yield f"the scenario {sim.scenario.name!r} has no radio between robots", ("radio",)
    elif entry.radio[0] == entry.radio[1]:
        yield "expected two robots: [sender, receiver]", ("radio",)


# ---- the run ---------------------------------------------------------------------------------------------------------


@dataclass
class ActiveRoute:
    """A waypoints entry in progress."""

    index: int  # of the entry
    follower: Follower
    deadline: int | None  # tick
    is_counted: bool = False  # done and reported


@dataclass
class SentPackets:
    """What a radio entry has sent, until one packet arrives."""

    sender: str
    payloads: set[bytes] = field(default_factory=set)


class MissionPilot:
    """Call it with each tick's messages; it commands for the next tick. Raises MissionError before the start."""

    def __init__(self, sim: Simulation, mission: Mission) -> None:
        check(mission, sim)
        self.sim, self.mission = sim, mission
        self.on_pause: Callable[[float], None] | None = None  # called to let wall time pass [s]
        self.judge = Judge(sim, mission)
        self.end = self.judge.end  # tick
        self._agenda: list[tuple[int, int, int, int]] = []  # (tick, entry, repetition, tick it is counted from)
        self._routes: dict[str, ActiveRoute] = {}  # by robot
        self._packets: dict[int, SentPackets] = {}  # by entry
        self._delivered: dict[tuple[str, str], int] = {}  # packets by direction, at the last look
        self._waiting: dict[str, list[int]] = {}  # name of an entry -> entries to start when it is done
        self._radio_topics = {TOPICS["radio_rx"].of(robot): robot for robot in sim.robots}
        self._trouble: list[tuple[int, str]] = []  # (entry, what is wrong)
        self._follow = Trigger(min(FOLLOW_HZ, sim.scenario.physics_hz), sim.scenario.physics_hz)
        self._next_look = 0
        for index, entry in enumerate(mission.do):
            if entry.after is None:
                self._enter(index, 0)
            else:
                self._waiting.setdefault(entry.after, []).append(index)

    # ---- the outcome -------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self.judge.tick >= self.end

    def violations(self) -> list[str]:
        """A sentence for everything that was not as the mission expects."""
        return [*(text for _, text in sorted([*self._trouble, *self._unreached()])), *self.judge.complaints()]

    def verdicts(self) -> list[MissionVerdict]:
        """On each entry that must be done, and on each expectation."""
        trouble = dict([*self._trouble, *self._unreached()])
        done = [
            MissionVerdict(self._title(index), trouble.get(index, ""), not self.is_over and index not in trouble)
            for index, entry in enumerate(self.mission.do)
            if isinstance(entry, WaypointsAction) or index in trouble
        ]
        return [*done, *self.judge.verdicts()]

    def _title(self, index: int) -> str:
        entry = self.mission.do[index]
        if isinstance(entry, WaypointsAction):
            count = len(entry.waypoints)
            return f"{entry.robot} reaches {count} waypoint{'s' if count > 1 else ''} (do[{index}])"
        return entry.name or f"do[{index}]"

    def undecided(self) -> int:
        """Expectations that could not be judged because the run ended before the mission."""
        return self.judge.undecided()

    def _unreached(self) -> list[tuple[int, str]]:
        if not self.is_over:
            return []
        under_way = [route for route in self._routes.values() if not route.is_counted]
        late = [(each.index, self._not_reached(each, "by the end of the mission")) for each in under_way]
        return late + [
            (index, f"{self._place(index)}: never started, because {self.mission.do[index].after!r} was never done")
            for indices in self._waiting.values()
            for index in indices
        ]

    def _not_reached(self, route: ActiveRoute, when: str) -> str:
        entry, follower = self.mission.do[route.index], route.follower
        assert isinstance(entry, WaypointsAction)
        number, count = follower.reached + 1, len(follower.goals)
        return f"{self._place(route.index)}: {entry.robot} did not reach waypoint {number} of {count} {when}"

    def _place(self, index: int) -> str:
        return self.mission._places.problem("", ("do", index)).place or f"do[{index}]"

    @property
    def waypoints(self) -> dict[str, tuple[tuple[float, float, float], ...]]:
        """Where robots are going, for displays."""
        ground = self.sim.world.ground
        return {
            robot: tuple(
                (goal.x, goal.y, ground(goal.x, goal.y) + 0.2 if goal.z is None else goal.z)
                for goal in route.follower.goals
            )
            for robot, route in self._routes.items()
        }

    # ---- a tick ------------------------------------------------------------------------------------------------------

    def __call__(self, messages: Sequence[Message]) -> None:
        tick = self.sim.tick
        if self._packets:
            self._hear(messages)
        while self._agenda and self._agenda[0][0] <= tick:
            _, index, repetition, base = heapq.heappop(self._agenda)
            self._perform(index, self.mission.do[index], repetition)
            self._plan(index, repetition + 1, base)
        if self._routes and tick >= self._next_look:
            self._next_look = self._follow.next_tick(tick + 1)
            for robot in list(self._routes):
                self._steer(robot)
        self.judge.look(messages)

    def ticks_to_run(self, at_most: int) -> int:
        """Ticks until it must be called again, with all their messages: meanwhile it has nothing to do or to judge."""
        tick = self.sim.tick
        if self._packets:
            return 1
        due = [tick + at_most, self.judge.next_tick(tick)]
        if self._agenda:
            due.append(self._agenda[0][0])
        if self._routes:
            due.append(self._next_look)
        return max(int(min(due)) - tick, 1)

    def _enter(self, index: int, base: int) -> None:
        """Start an entry: its times count from tick `base`."""
        entry = self.mission.do[index]
        if isinstance(entry, RadioAction):
            self._packets[index] = SentPackets(entry.robot)
        self._plan(index, 0, base)

    def _plan(self, index: int, repetition: int, base: int) -> None:
        entry = self.mission.do[index]
        if repetition < entry.times:
            seconds = Fraction(str(entry.at)) + repetition * Fraction(str(entry.every or 0))
            tick = base + self.sim.clock.ticks_in(seconds)
            heapq.heappush(self._agenda, (tick, index, repetition, base))
        elif not isinstance(entry, (WaypointsAction, RadioAction)):
            self._done(index)

    def _done(self, index: int) -> None:
        name = self.mission.do[index].name
        for follower in self._waiting.pop(name, []) if name is not None else []:
            self._enter(follower, self.sim.tick)

    def _perform(self, index: int, entry: AnyAction, repetition: int) -> None:
        sim = self.sim
        if isinstance(entry, CommandAction):
            self._end_route(entry.robot)
            sim.command(entry.robot, **entry.command)
        elif isinstance(entry, TeleportAction):
            self._end_route(entry.robot)
            place = entry.teleport
            sim.set_pose(entry.robot, place.x, place.y, place.z, place.yaw)
            sim.command(entry.robot)
        elif isinstance(entry, RadioAction):
            packet = payload(entry, repetition)
            sim.radio_send(entry.robot, packet)
            if index in self._packets:
                self._packets[index].payloads.add(packet)
                self._delivered = self._deliveries()
        elif isinstance(entry, SetAction):
            sim.reconfigure(changed(sim.scenario, entry.set))
        elif isinstance(entry, PauseAction):
            if self.on_pause is not None:
                self.on_pause(entry.pause)
        else:
            self._start_route(index, entry)

    # ---- radio -------------------------------------------------------------------------------------------------------

    def _hear(self, messages: Sequence[Message]) -> None:
        before, self._delivered = self._delivered, self._deliveries()
        for message in messages:
            receiver = self._radio_topics.get(message.topic)
            if receiver is not None:
                spoke = {link[0] for link, count in self._delivered.items() if count > before.get(link, 0)}
                self._arrived(receiver, bytes(message.message.data), spoke)

    def _arrived(self, receiver: str, packet: bytes, spoke: set[str]) -> None:
        """`spoke`: the robots whose packets arrived in this tick; others may send the same text."""
        for index, packets in list(self._packets.items()):
            if packets.sender in spoke - {receiver} and packet in packets.payloads:
                del self._packets[index]
                self._done(index)

    def _deliveries(self) -> dict[tuple[str, str], int]:
        """How many packets have arrived in each direction."""
        radio = self.sim.radio
        return {} if radio is None else {(link.sender, link.receiver): link.delivered for link in radio.links}

    # ---- waypoints ---------------------------------------------------------------------------------------------------

    def _start_route(self, index: int, entry: WaypointsAction) -> None:
        self._end_route(entry.robot)
        model = self.sim.model(entry.robot)
        steer = steer_for(model, self.sim.resolved.robots[entry.robot])
        assert steer is not None  # `check` ensures it
        goals = _goals(entry, self._pose(entry.robot), model.is_ground_bound)
        follower = Follower(steer, goals, entry.speed, entry.tolerance)
        deadline = None
        if entry.timeout is not None:
            deadline = self.sim.tick + self.sim.clock.ticks_in(Fraction(str(entry.timeout)))
        self._routes[entry.robot] = ActiveRoute(index, follower, deadline)
        self._next_look = self.sim.tick

    def _end_route(self, robot: str) -> None:
        """Another entry takes control; a route that is not finished never will be."""
        route = self._routes.pop(robot, None)
        if route is not None and not route.is_counted:
            when = f"before another entry took control at {self.sim.time_ns / 1e9:.3f} s"
            self._trouble.append((route.index, self._not_reached(route, when)))

    def _steer(self, robot: str) -> None:
        route = self._routes[robot]
        self.sim.command_values(robot, route.follower.command(self._pose(robot)))
        if route.is_counted:
            return
        if route.follower.is_done:
            route.is_counted = True
            self._done(route.index)
        elif route.deadline is not None and self.sim.tick >= route.deadline:
            when = f"within its timeout, which ended at {self.sim.time_ns / 1e9:.3f} s"
            self._trouble.append((route.index, self._not_reached(route, when)))
            del self._routes[robot]
            self.sim.command(robot)

    def _pose(self, robot: str) -> FollowedPose:
        rows, own = self.sim.rows(robot), self.sim.model(robot).state
        x, y, z, yaw = rows[X], rows[Y], rows[Z], rows[YAW]
        if not ("vx" in own and "vy" in own and "vz" in own):
            return FollowedPose(x, y, z, yaw)
        vx, vy = rows[own["vx"]], rows[own["vy"]]  # relative to the air, in its own axes
        sin, cos = exact.sincos(yaw)
        drift_x, drift_y = rows[VELOCITY_X] - (cos * vx - sin * vy), rows[VELOCITY_Y] - (sin * vx + cos * vy)
        return FollowedPose(x, y, z, yaw, drift_x, drift_y, rows[VELOCITY_Z] - rows[own["vz"]])


def _goals(entry: WaypointsAction, start: FollowedPose, is_ground_bound: bool) -> list[FollowerGoal]:
    """A waypoint without z has the height of the one before it, the first that of the start."""
    goals: list[FollowerGoal] = []
    height = start.z
    for waypoint in entry.waypoints:
        x, y = waypoint[0], waypoint[1]
        if entry.relative:
            x, y = x + start.x, y + start.y
        if len(waypoint) > 2:
            height = waypoint[2] + (start.z if entry.relative else 0.0)
        yaw = waypoint[3] if len(waypoint) > 3 else None
        goals.append(FollowerGoal(x, y, None if is_ground_bound else height, yaw))
    return goals
