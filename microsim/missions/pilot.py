"""`MissionPilot`: runs a mission in a simulation.

What it does at a tick depends only on the tick, the state and the messages, and uses the public API: the same mission,
scenario and seed give the same run, and a recording contains every command.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from microsim.engine import exact
from microsim.engine.components import VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, X, Y, Z
from microsim.engine.timekeeper import Trigger
from microsim.messages.outbox import Message
from microsim.messages.topics import TOPICS
from microsim.missions.follower import FOLLOW_HZ, FollowedPose, Follower, FollowerGoal, steer_for
from microsim.missions.judge import Judge
from microsim.missions.mission_check import changed, check, payload
from microsim.missions.mission_file import (
    AnyAction,
    CommandAction,
    Mission,
    PauseAction,
    RadioAction,
    SetAction,
    TeleportAction,
    WaypointsAction,
)
from microsim.simulation import Simulation


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
        steer = steer_for(model, self.sim.drawn.robots[entry.robot])
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
        self.sim.command(robot, **route.follower.command(self._pose(robot)))
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
        rows = self.sim.rows(robot)
        pose = FollowedPose(rows[X], rows[Y], rows[Z], rows[YAW])
        if not {"vx", "vy", "vz"} <= set(self.sim.model(robot).state):
            return pose
        own = self.sim.state(robot)  # relative to the air, in its own axes
        sin, cos = exact.sin(pose.yaw), exact.cos(pose.yaw)
        return pose._replace(
            drift_x=rows[VELOCITY_X] - (cos * own.vx - sin * own.vy),
            drift_y=rows[VELOCITY_Y] - (sin * own.vx + cos * own.vy),
            drift_z=rows[VELOCITY_Z] - own.vz,
        )


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
