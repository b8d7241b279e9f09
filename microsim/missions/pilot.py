"""`MissionPilot`: a mission at the controls of a simulation.

What it does at a tick depends on the tick, the state and the messages only, and goes through the public API: the same
mission, scenario and seed give the same run, and a recording holds every command.
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
from microsim.missions.actions import (
    AnyAction,
    CommandAction,
    PauseAction,
    RadioAction,
    SetAction,
    TeleportAction,
    WaypointsAction,
)
from microsim.missions.binding import changed, check, payload
from microsim.missions.follower import FOLLOW_HZ, Follower, Goal, Pose, steer_for
from microsim.missions.judge import Judge
from microsim.missions.models import Mission
from microsim.simulation import Simulation


@dataclass
class Voyage:
    """A waypoints entry under way."""

    index: int  # of the entry
    follower: Follower
    deadline: int | None  # tick
    is_counted: bool = False  # done and told, or given up


@dataclass
class Packets:
    """What a radio entry has sent, until one of them arrives."""

    sender: str
    payloads: set[bytes] = field(default_factory=set)


class MissionPilot:
    """Call it with each tick's messages; it commands for the next tick. Raises MissionError before the start."""

    def __init__(self, sim: Simulation, mission: Mission) -> None:
        check(mission, sim)
        self.sim, self.mission = sim, mission
        self.on_pause: Callable[[float], None] | None = None  # told to let wall time pass [s]
        self.judge = Judge(sim, mission)
        self.end = self.judge.end  # tick
        self._agenda: list[tuple[int, int, int, int]] = []  # (tick, entry, repetition, tick it is counted from)
        self._voyages: dict[str, Voyage] = {}  # by robot
        self._packets: dict[int, Packets] = {}  # by entry
        self._delivered: dict[tuple[str, str], int] = {}  # packets, by direction, when it last looked
        self._waiting: dict[str, list[int]] = {}  # name of an entry -> entries to start when it is done
        self._ears = {TOPICS["radio_rx"].of(robot): robot for robot in sim.robots}
        self._trouble: list[tuple[int, str]] = []  # (entry, what went wrong)
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
        """A sentence for all that was not as the mission wants it."""
        return [*(text for _, text in sorted([*self._trouble, *self._unreached()])), *self.judge.complaints()]

    def undecided(self) -> int:
        """Expectations that could not be judged, because the run ended before the mission."""
        return self.judge.undecided()

    def _unreached(self) -> list[tuple[int, str]]:
        if not self.is_over:
            return []
        under_way = [voyage for voyage in self._voyages.values() if not voyage.is_counted]
        late = [(each.index, self._not_reached(each, "by the end of the mission")) for each in under_way]
        return late + [
            (index, f"{self._place(index)}: never began, because {self.mission.do[index].after!r} was never done")
            for indices in self._waiting.values()
            for index in indices
        ]

    def _not_reached(self, voyage: Voyage, when: str) -> str:
        entry, follower = self.mission.do[voyage.index], voyage.follower
        assert isinstance(entry, WaypointsAction)
        number, count = follower.reached + 1, len(follower.goals)
        return f"{self._place(voyage.index)}: {entry.robot} did not reach waypoint {number} of {count} {when}"

    def _place(self, index: int) -> str:
        return self.mission._places.problem("", ("do", index)).place or f"do[{index}]"

    @property
    def waypoints(self) -> dict[str, tuple[tuple[float, float, float], ...]]:
        """Where robots are sent now, for those who draw it."""
        ground = self.sim.world.ground
        return {
            robot: tuple(
                (goal.x, goal.y, ground(goal.x, goal.y) + 0.2 if goal.z is None else goal.z)
                for goal in voyage.follower.goals
            )
            for robot, voyage in self._voyages.items()
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
        if self._voyages and tick >= self._next_look:
            self._next_look = self._follow.next_tick(tick + 1)
            for robot in list(self._voyages):
                self._steer(robot)
        self.judge.look(messages)

    def _enter(self, index: int, base: int) -> None:
        """An entry may begin: its times count from tick `base`."""
        entry = self.mission.do[index]
        if isinstance(entry, RadioAction):
            self._packets[index] = Packets(entry.robot)
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
            self._take_over(entry.robot)
            sim.command(entry.robot, **entry.command)
        elif isinstance(entry, TeleportAction):
            self._take_over(entry.robot)
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
            self._set_off(index, entry)

    # ---- radio -------------------------------------------------------------------------------------------------------

    def _hear(self, messages: Sequence[Message]) -> None:
        before, self._delivered = self._delivered, self._deliveries()
        for message in messages:
            receiver = self._ears.get(message.topic)
            if receiver is not None:
                spoke = {link[0] for link, count in self._delivered.items() if count > before.get(link, 0)}
                self._arrived(receiver, bytes(message.message.data), spoke)

    def _arrived(self, receiver: str, packet: bytes, spoke: set[str]) -> None:
        """`spoke`: of whom something has arrived in this tick; others may send the same text."""
        for index, packets in list(self._packets.items()):
            if packets.sender in spoke - {receiver} and packet in packets.payloads:
                del self._packets[index]
                self._done(index)

    def _deliveries(self) -> dict[tuple[str, str], int]:
        """How many packets have arrived in each direction."""
        radio = self.sim.radio
        return {} if radio is None else {(link.sender, link.receiver): link.delivered for link in radio.links}

    # ---- waypoints ---------------------------------------------------------------------------------------------------

    def _set_off(self, index: int, entry: WaypointsAction) -> None:
        self._take_over(entry.robot)
        model = self.sim.model(entry.robot)
        steer = steer_for(model, self.sim.drawn.robots[entry.robot])
        assert steer is not None  # `check` has seen to it
        goals = _goals(entry, self._pose(entry.robot), model.is_ground_bound)
        follower = Follower(steer, goals, entry.speed, entry.tolerance)
        deadline = None
        if entry.timeout is not None:
            deadline = self.sim.tick + self.sim.clock.ticks_in(Fraction(str(entry.timeout)))
        self._voyages[entry.robot] = Voyage(index, follower, deadline)
        self._next_look = self.sim.tick

    def _take_over(self, robot: str) -> None:
        """Another entry takes the controls; a voyage that is not at its end will not get there."""
        voyage = self._voyages.pop(robot, None)
        if voyage is not None and not voyage.is_counted:
            when = f"before another entry took over at {self.sim.time_ns / 1e9:.3f} s"
            self._trouble.append((voyage.index, self._not_reached(voyage, when)))

    def _steer(self, robot: str) -> None:
        voyage = self._voyages[robot]
        self.sim.command(robot, **voyage.follower.command(self._pose(robot)))
        if voyage.is_counted:
            return
        if voyage.follower.is_done:
            voyage.is_counted = True
            self._done(voyage.index)
        elif voyage.deadline is not None and self.sim.tick >= voyage.deadline:
            when = f"in time, which was over at {self.sim.time_ns / 1e9:.3f} s"
            self._trouble.append((voyage.index, self._not_reached(voyage, when)))
            del self._voyages[robot]
            self.sim.command(robot)

    def _pose(self, robot: str) -> Pose:
        rows = self.sim.rows(robot)
        pose = Pose(rows[X], rows[Y], rows[Z], rows[YAW])
        if not {"vx", "vy", "vz"} <= set(self.sim.model(robot).state):
            return pose
        own = self.sim.state(robot)  # through the air, in its own axes
        sin, cos = exact.sin(pose.yaw), exact.cos(pose.yaw)
        return pose._replace(
            drift_x=rows[VELOCITY_X] - (cos * own.vx - sin * own.vy),
            drift_y=rows[VELOCITY_Y] - (sin * own.vx + cos * own.vy),
            drift_z=rows[VELOCITY_Z] - own.vz,
        )


def _goals(entry: WaypointsAction, start: Pose, is_ground_bound: bool) -> list[Goal]:
    """A waypoint without z keeps the height of the one before it, at first that of the start."""
    goals: list[Goal] = []
    height = start.z
    for waypoint in entry.waypoints:
        x, y = waypoint[0], waypoint[1]
        if entry.relative:
            x, y = x + start.x, y + start.y
        if len(waypoint) > 2:
            height = waypoint[2] + (start.z if entry.relative else 0.0)
        yaw = waypoint[3] if len(waypoint) > 3 else None
        goals.append(Goal(x, y, None if is_ground_bound else height, yaw))
    return goals
