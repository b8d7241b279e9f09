"""`Simulation`: a scenario, a seed and commands in; stamped, encoded ROS 2 messages out.

The composition root: the only module that knows every part.
"""

from __future__ import annotations

import math
from collections import Counter, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.display import display
from microsim.engine.components import RobotModel, X, Z
from microsim.engine.contact_tables import Contact as Contact  # noqa: PLC0414 - parts take it from here
from microsim.engine.digest_chain import digest_chain
from microsim.engine.faults import Health
from microsim.engine.geometry import Array
from microsim.engine.radio import RadioNetwork
from microsim.engine.schedule import CHUNK, Command, Input, Schedule, Teleport, Transmission
from microsim.engine.timekeeper import NS_PER_S, Clock
from microsim.engine.world import World
from microsim.engine.worlds import Fleet
from microsim.errors import UsageError, unknown
from microsim.listening import Listener, Listeners
from microsim.messages.outbox import Messages, Outbox, Transcripts, name_in_transcript
from microsim.messages.topics import Qos
from microsim.outputs.compose import compose
from microsim.outputs.control import Controllers
from microsim.outputs.message_faults import MessageFaults
from microsim.outputs.own_topics import own_topics
from microsim.plugin_errors import plugin_errors
from microsim.scenario import Scenario, live_changes, load_scenario
from microsim.scenario.live_changes import Entity
from microsim.scenario.loading import at_seed
from microsim.scenario.randomised import draw
from microsim.scenario.scene import build_world, checked_number, checked_packet, checked_seed, faults_in_ticks

END_OF_TIME_NS = 2**31 * NS_PER_S  # seconds in stamps are int32


def _reported(chunks: Iterator[Any]) -> Iterator[Any]:
    with plugin_errors():
        yield from chunks


@cache
def _state_type(model: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(f"{model.title().replace('_', '')}State", fields)


def _layout_of(scenario: Scenario) -> tuple[Any, ...]:
    """What makes the world and may differ from seed to seed, or by entities."""
    return scenario.obstacles, scenario.features, scenario.world_seed


@dataclass(frozen=True)
class Reconfiguration:
    """From this tick on the run follows another scenario."""

    scenario: Scenario


@dataclass(frozen=True)
class Snapshot:
    """Everything that decides how a run continues. Made by `Simulation.snapshot`.

    It belongs to simulations that began with the same scenario, whatever has been changed in them since.
    """

    initial_scenario: Scenario
    scenario: Scenario  # with all changes up to then
    seed: int
    next_seed: int
    state: Any
    digest: bytes
    unsent: tuple[bytes, ...]  # transcripts whose messages were not handed out
    counters: Mapping[str, int]
    messages_sent: int
    opening: bytes
    noise_seed: int | None = None  # of all that is drawn from here on; None: `seed`


class Simulation:
    """A world that advances when `step` is called, as fast as the machine allows.

    The same scenario, seed and calls give the same messages, byte for byte, on every machine.
    """

    def __init__(self, scenario: Scenario | str | Path | Mapping[str, Any], seed: int | None = None) -> None:
        written = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        self._next_seed = checked_seed(written.seed if seed is None else seed)
        self.scenario = at_seed(written, self._next_seed)
        self.initial_scenario = self.scenario  # which entities there are after a reset
        self.world: World = build_world(self.scenario)
        self._written_world = self.world
        self.clock = Clock(self.scenario.physics_hz)
        self.counters: Counter[str] = Counter()  # what was ignored, and why
        self.listeners = Listeners()
        self.on_tick: list[Callable[[bytes], None]] = []  # given each tick's transcript; `listen` is more general
        self._assigned = self.listen()
        self._is_deaf = False
        self._is_repeating = False
        self._shared: dict[Any, Any] = {}  # what sensors keep from reset to reset
        self.reset()

    def __repr__(self) -> str:
        robots = ", ".join(self.robots) or "no robots"
        time_s = self.time_ns / 1e9
        return f"<Simulation {self.scenario.name!r}, seed {self.seed}, tick {self.tick} ({time_s:.3f} s): {robots}>"

    def _repr_html_(self) -> str:
        return display().html_of(self)

    def show(self, block: bool | None = None, open_browser: bool | None = None, port: int = 8080) -> Any:
        """Open the web viewer of this simulation (extra `view`); in a notebook, inline.

        In a script it runs in real time until Ctrl-C. In a Python shell or notebook it returns at once: the page then
        follows `sim.step()`, and the returned view's `run()` runs in real time. `block` decides otherwise.
        """
        return display().show(self, block, open_browser, port)

    # ---- running ---------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The current seed."""
        return self._seed

    @property
    def next_seed(self) -> int:
        """The seed of the next reset."""
        return self._next_seed

    @property
    def topics(self) -> Mapping[str, tuple[str, Qos]]:
        """Type and quality of service of every topic it sends on."""
        return self._outbox.topics

    @property
    def messages_sent(self) -> int:
        """Since the last reset."""
        return self._outbox.sent + self._schedule.tables.sent

    @property
    def tick(self) -> int:
        return self._schedule.tick

    @property
    def time_ns(self) -> int:
        """Simulated time."""
        return self.clock.time_ns(self._schedule.tick)

    @property
    def resolved(self) -> Scenario:
        """The current scenario with the random values of `randomize`; without that block, `scenario`."""
        return self._resolved

    @property
    def robots(self) -> tuple[str, ...]:
        return tuple(self.scenario.robots)

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The robots of each model side by side, as the kernels see them: to look at, not to touch."""
        return self._schedule.worlds.fleets

    def trace(self, ticks: int) -> Mapping[str, Array]:
        """Robot -> (ticks, rows): its state after each of the next ticks, written there as they are run."""
        return self._schedule.worlds.trace(self._checked_ticks(ticks))

    @property
    def radio(self) -> RadioNetwork | None:
        return self._schedule.radio

    def reset(self, seed: int | None = None) -> None:
        """Back to tick 0: fresh noise, empty queues, zero commands and counters, entities as first; or another seed.

        With another seed, what generators make without a seed of their own is another world. ScenarioError where a
        robot cannot start in it: then nothing changes.
        """
        wanted = self._next_seed if seed is None else checked_seed(seed)
        start = at_seed(live_changes.at_start(self.initial_scenario, self.scenario), wanted)
        self._seed = self._noise_seed = self._next_seed = wanted
        self._use(start)
        self._draw()
        self.counters.clear()
        self._outbox = Outbox(digest_chain)
        self._schedule = self._compose()
        with plugin_errors():
            self.opening: bytes = self._schedule.start().data  # the transcript of tick 0, which happens here
            self._controllers.hear(Transcripts(self.opening, (len(self.opening),)))
        self.transcript_tick = 0  # of the transcript that listeners were last given; `tick` may be further
        self._hand_on(self.opening)

    # ---- listening -------------------------------------------------------------------------------------------

    def listen(
        self,
        *,
        ticks: Callable[[bytes], None] | None = None,
        inputs: Callable[[int, Any], None] | None = None,
        warnings: Callable[[str], None] | None = None,
    ) -> Listener:
        """Have functions called during the run; `sim.listeners.remove(listener)` ends it.

        `ticks` receives each tick's transcript (its messages as bytes), `inputs` every accepted input with the tick
        that takes it, `warnings` a text when a sensor begins to fail or a robot begins to touch something.
        """
        return self.listeners.add(Listener(ticks, inputs, warnings))

    def _hand_on(self, transcript: bytes) -> None:
        for function in tuple(self.on_tick):  # one may leave
            function(transcript)
        self.listeners.tick(transcript)

    @property
    def on_input(self) -> Callable[[int, Any], None] | None:
        """One function of every input and the tick that takes it; `listen` allows any number."""
        return self._assigned.inputs

    @on_input.setter
    def on_input(self, function: Callable[[int, Any], None] | None) -> None:
        self._assigned.inputs = function

    @property
    def on_warning(self) -> Callable[[str], None] | None:
        """One function of warnings; `listen` allows any number."""
        return self._assigned.warnings

    @on_warning.setter
    def on_warning(self, function: Callable[[str], None] | None) -> None:
        self._assigned.warnings = function

    def _draw(self) -> None:
        """Decide what the scenario leaves to the seed."""
        before = self.world
        self._resolved, self.world = draw(self.scenario, self._written_world, self._seed)
        if self.world is not before:
            self._shared.clear()

    def reconfigure(self, scenario: Scenario) -> None:
        """Continue from here with other limits, noise, rates, wind or radio, as if they were written in the scenario.

        What makes the world (map, features, physics_hz) and the models and odometry drift of robots stay.
        """
        scenario = at_seed(scenario, self._seed)
        live_changes.check_change(self.scenario, scenario)
        self._schedule.tables.make_delayed()  # images under way show the world as it was
        saved, sent = self._save(), self.messages_sent
        self._rebuild(scenario, self._seed, self._noise_seed)
        self._load(saved, sent)
        self.listeners.input(self.tick, Reconfiguration(scenario))

    def _rebuild(self, scenario: Scenario, seed: int, noise_seed: int) -> None:
        """Put the run together for a scenario and seeds; what it did is to be loaded. An error changes nothing."""
        outbox, before = self._outbox, dict(vars(self))
        parts = outbox.alter, dict(outbox.topics)
        try:
            outbox.topics.clear()
            self._seed, self._noise_seed = seed, noise_seed
            self._use(scenario)
            self._draw()
            self._schedule = self._compose()
            self._schedule.worlds.continue_trace(before["_schedule"].worlds)
        except BaseException:  # Ctrl-C too: the run continues as it was
            vars(self).update(before)
            self._shared.clear()  # it may be of the other world
            outbox.alter, topics = parts
            outbox.topics.clear()
            outbox.topics.update(topics)
            raise

    def _save(self) -> Any:
        return (*self._schedule.save(), self._message_faults.save(), self._controllers.save())

    def _load(self, saved: Any, messages_sent: int) -> None:
        *schedule, messages, controllers = saved
        self._schedule.load(schedule)
        self._message_faults.load(messages)
        self._controllers.load(controllers)
        self._outbox.sent = messages_sent - self._schedule.tables.sent

    def _use(self, scenario: Scenario) -> None:
        """In the world that the seed makes."""
        before, self.scenario = self.scenario, at_seed(scenario, self._seed)
        self.initial_scenario = at_seed(self.initial_scenario, self._seed)
        if _layout_of(before) != _layout_of(self.scenario):
            self._written_world = build_world(self.scenario)

    # ---- entities --------------------------------------------------------------------------------------------

    @property
    def entities(self) -> Mapping[str, Entity]:
        """Robots and obstacles by name; obstacles without one are obstacle_0, obstacle_1, ..."""
        return live_changes.entities_of(self.scenario)

    def spawn(self, name: str, entity: Mapping[str, Any] | Entity) -> None:
        """Add a robot, or an obstacle, before the next tick: a block as under `robots:` or `obstacles:`.

        Like every input it is recorded and replayed; a reset removes it.
        """
        self._change_entities(live_changes.with_entity(self.scenario, name, entity))

    def delete(self, name: str) -> None:
        """Remove a robot or an obstacle before the next tick; a reset brings it back, if it was there at the start."""
        self._change_entities(live_changes.without_entity(self.scenario, name))

    def move_obstacle(self, name: str, center: tuple[float, float, float]) -> None:
        """The middle of its base: x, y in the map frame, z above the ground [m]."""
        self._change_entities(live_changes.with_obstacle_at(self.scenario, name, center))

    def _change_entities(self, scenario: Scenario) -> None:
        live_changes.check_room(self.scenario, scenario, lambda robot: self.rows(robot)[X : Z + 1])
        self.reconfigure(scenario)

    def set_seed(self, seed: int) -> None:
        """Takes effect at the next reset. ScenarioError where a robot cannot start in the world of that seed."""
        at_seed(self.initial_scenario, checked_seed(seed))
        self._next_seed = checked_seed(seed)

    def step(self, ticks: int = 1) -> Messages:
        """Advance; gives every message of these ticks in the order of sending. The first call also gives tick 0's."""
        schedule, listeners = self._schedule, self.listeners
        self.transcript_tick = schedule.tick
        for part in self._parts(schedule, ticks):
            for closed in _reported(schedule.step(part, 1 if self.on_tick else CHUNK)):
                self._controllers.hear(closed)
                if self.on_tick or listeners.want_ticks:
                    for transcript in closed.each():
                        self.transcript_tick += 1
                        self._hand_on(transcript)
                self.transcript_tick = schedule.tick
        messages = self._outbox.take()
        listeners.step(messages)
        return messages

    def _parts(self, schedule: Schedule, ticks: int) -> Iterator[int]:
        """Ticks that can be run at once, up to each at which a controller commands or a late input counts."""
        for part in self._controllers.parts(lambda: schedule.tick, self._checked_ticks(ticks)):
            yield from self._message_faults.parts(schedule, part)

    def advance(self, ticks: int = 1) -> None:
        """Move the robots only: nothing is sensed, sent or added to the digest, and radio packets wait.

        For searches and learning on states, where it is many times faster than `step`. Controllers need what is sensed.
        """
        if self._controllers:
            raise UsageError("advance() senses nothing, and this scenario has controllers, which need it: use step()")
        for part in self._message_faults.parts(self._schedule, self._checked_ticks(ticks)):
            with plugin_errors():
                self._schedule.skip(part)

    def digest(self) -> str:
        """SHA-256 (hex) over topic, type, stamp and bytes of every message since the last reset, tick by tick."""
        return self._outbox.digest.hex()

    # ---- commands: taken at the next tick --------------------------------------------------------------------

    def command(self, robot: str, **values: float) -> bool:
        """Set a robot's velocity command, held until the next or its timeout; inputs left out are 0.

        Drone: vx, vy, vz [m/s] in its own axes, yaw_rate [rad/s]. Rover: v [m/s], omega [rad/s]. Car: steering [rad]
        and speed [m/s], or throttle (-1..1) and brake (0..1); its commands time out. Values beyond the limits are
        clamped. A NaN or infinity makes the command ignored and counted: then False.
        """
        return self.command_values(robot, values)

    def command_values(self, robot: str, values: Mapping[str, float], stamp_ns: int | None = None) -> bool:
        """As `command`. `stamp_ns`, here and below: of the message that brought it, which recordings keep."""
        inputs = self.model(robot).inputs
        for name in values:
            if name not in inputs:
                raise UsageError(unknown(f"{robot} has no command", repr(name), name, inputs))
        numbers = tuple([checked_number(name, values.get(name, 0.0)) for name in inputs])
        if not all(map(math.isfinite, numbers)):
            return self._ignore("commands with NaN or infinity")
        if not inputs:
            return True  # of a robot that follows a path: there is nothing to take, repeat or record
        return self._accept(Command(robot, numbers, stamp_ns))

    def command_twist(self, robot: str, linear: Sequence[float], turn: float, stamp_ns: int | None = None) -> bool:
        """The command that a geometry_msgs/Twist stands for: linear x, y, z [m/s] and turn rate about z [rad/s]."""
        model = self.model(robot)
        if not model.inputs:
            raise UsageError(f"{robot} takes no commands: it follows its path")
        if model.from_twist is not None:
            forward = checked_number("linear.x", linear[0])
            values = model.from_twist(self._resolved.robots[robot], forward, checked_number("turn", turn))
            return self.command_values(robot, values, stamp_ns)
        fields = {"linear.x": linear[0], "linear.y": linear[1], "linear.z": linear[2], "angular.z": turn}
        values = {n: fields[f] for n, f in zip(model.inputs, model.twist_fields, strict=True)}
        return self.command_values(robot, values, stamp_ns)

    def set_pose(
        self, robot: str, x: float, y: float, z: float | None = None, yaw: float = 0.0, stamp_ns: int | None = None
    ) -> bool:
        """Put a robot somewhere, at rest; a drone without z keeps its height. Ignored and counted where it cannot."""
        model, world, settings = self.model(robot), self.world, self._resolved.robots[robot]
        height = self._height_to_come(robot) if z is None else checked_number("z", z)
        x, y, yaw = checked_number("x", x), checked_number("y", y), checked_number("yaw", yaw)
        if not all(map(math.isfinite, (x, y, height, yaw))) or max(map(abs, (x, y, height, yaw))) > 1e6:
            return self._ignore("poses with NaN, infinity or more than 1e6")
        if settings.follows_path:
            return self._ignore("poses of robots that follow a path")
        if model.is_ground_bound and not world.has_footing(x, y):
            return self._ignore("poses off the map or in an occupied cell")
        lowest: float = world.ground(x, y) + getattr(settings, "ground_clearance_m", 0.0)  # NaN if there is no ground
        return self._accept(Teleport(robot, x, y, lowest if height < lowest else height, yaw, stamp_ns))

    def _height_to_come(self, robot: str) -> float:
        """Where the robot is, or will be by the teleports that wait for the next tick."""
        waiting = [item.z for item in self._schedule.pending if isinstance(item, Teleport) and item.robot == robot]
        return waiting[-1] if waiting else self.rows(robot)[Z]

    def radio_send(self, sender: str, payload: bytes) -> bool:
        """Hand a packet to a robot's radio; it arrives at every other robot, unless lost on the way."""
        self.model(sender)
        return self._accept(Transmission(sender, checked_packet(self.scenario, sender, payload)))

    @property
    def waiting(self) -> tuple[Input, ...]:
        """Inputs for the next tick, in the order in which they will be taken."""
        return tuple(self._schedule.pending)

    def repeat(self, item: Input) -> None:
        """Take an input of another run, as listeners received it there: message faults then do to it what they did."""
        self._accept(item)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Inputs are dropped meanwhile: for a pilot that is run again beside its own inputs, which are repeated."""
        self._is_deaf = True
        try:
            yield
        finally:
            self._is_deaf = False

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Commands of controllers are dropped meanwhile: they are among the inputs that are repeated."""
        self._is_repeating, before = True, self._is_repeating
        try:
            yield
        finally:
            self._is_repeating = before

    def _take_from_controller(self, command: Command) -> None:
        if not self._is_repeating:
            self._accept(command)

    def _accept(self, item: Input) -> bool:
        if self._is_deaf:
            return True
        self._schedule.pending += self._message_faults.arrived(self.tick, item) if self._message_faults else [item]
        self.listeners.input(self._schedule.tick, item)
        return True

    def _ignore(self, reason: str) -> bool:
        self.counters[reason] += 1
        return False

    # ---- looking ---------------------------------------------------------------------------------------------

    def state(self, robot: str) -> Any:
        """The true state as attributes: drone x y z yaw vx vy vz yaw_rate contacts; rover x y z yaw v omega contacts.

        `contacts`: how often it began to touch something since the last reset.
        """
        model = self.model(robot)
        fleet, column = self._schedule.worlds.home[robot]
        values = fleet.state[:, column].tolist()
        return _state_type(model.name, tuple(model.state))(*(values[row] for row in model.state.values()))

    def touching(self, robot: str) -> tuple[str, ...]:
        """What a robot touches now: names of robots and obstacles, `mesh`, `map edge`, `missing ground`."""
        self.model(robot)
        return self._schedule.worlds.touching(robot)

    @property
    def contacts(self) -> tuple[Contact, ...]:
        """Every contact that began since the last reset: tick, robot, thing, where (x, y, z), and at which speed."""
        return tuple(self._schedule.contacts)

    def last_contact(self, robot: str) -> str:
        """What a robot touched last since the last reset; empty: nothing."""
        self.model(robot)
        return self._schedule.worlds.last_contact(robot)

    def rows(self, robot: str) -> list[float]:
        """The state's rows as `microsim.engine.components` names them: the same for every model, in map axes."""
        try:  # first, since pilots and metrics ask at every tick
            fleet, column = self._schedule.worlds.home[robot]
        except (KeyError, TypeError):
            self.model(robot)  # says which robots there are
            raise
        numbers: list[float] = fleet.state[:, column].tolist()
        return numbers

    def frame_poses(self) -> dict[str, tuple[str, tuple[float, ...]]]:
        """Every frame of /tf -> its parent, and its pose there now: x, y, z [m] and quaternion x, y, z, w."""
        topic = own_topics()["tf"]
        with plugin_errors():
            self._schedule.evaluate(name_in_transcript(topic.name, topic.type))
        origin = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
        return {
            child: (parent, origin if call is None else tuple(call.reading.tolist()))
            for parent, child, call in self._frames
        }

    def render(self, robot: str, sensor: str = "camera") -> npt.NDArray[np.uint8]:
        """What a camera sees now, (height, width, 3) uint8, before blur and jitter."""
        self.model(robot)
        kinds = {name: kind for owner, name, _, kind in self.scenario.all_sensors if owner == robot}
        cameras = {name: kind.camera.picture for name, kind in kinds.items() if kind.camera is not None}
        if sensor not in cameras:
            raise UsageError(unknown(f"{robot} has no camera", repr(sensor), sensor, cameras))
        self._schedule.worlds.look()  # `advance` does not
        return cameras[sensor](self._contexts[f"{robot}/{sensor}"], self.tick)

    # ---- time travel -----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.initial_scenario,
            self.scenario,
            self._seed,
            self._next_seed,
            self._save(),
            self._outbox.digest,
            tuple(tick for some in self._outbox.transcripts for tick in some.each()),
            dict(self.counters),
            self.messages_sent,
            self.opening,
            None if self._noise_seed == self._seed else self._noise_seed,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue as from the moment of the snapshot, bit for bit: with its seed, its entities and its settings."""
        if not isinstance(snapshot, Snapshot):
            raise UsageError(f"expected what `snapshot` gave, found {type(snapshot).__name__}")
        if difference := live_changes.difference(
            snapshot.initial_scenario, at_seed(self.initial_scenario, snapshot.seed)
        ):
            raise UsageError(f"the snapshot is of a run that began with another scenario: {difference}")
        noise_seed = snapshot.seed if snapshot.noise_seed is None else snapshot.noise_seed
        is_same = (snapshot.seed, noise_seed) == (self._seed, self._noise_seed)
        if not is_same or live_changes.difference(snapshot.scenario, self.scenario):
            self._rebuild(snapshot.scenario, snapshot.seed, noise_seed)
        self._next_seed = snapshot.next_seed
        self._load(snapshot.state, snapshot.messages_sent)
        self.opening = snapshot.opening
        self.transcript_tick = self.tick
        self._outbox.digest = snapshot.digest
        self._outbox.transcripts = [Transcripts(tick, (len(tick),)) for tick in snapshot.unsent]
        self.counters = Counter(snapshot.counters)

    def fork(self, noise_seed: int | None = None) -> Simulation:
        """An independent twin at the same tick.

        With a `noise_seed`, all that is random from here on is drawn again, from that seed: noise, dropouts, gusts,
        radio, what controllers draw. The world, the starts and the faults that the run's own seed decided stay.
        """
        twin = Simulation(self.initial_scenario, seed=self._seed)
        twin.restore(self.snapshot())
        if noise_seed is not None:
            twin.draw_again(noise_seed)
        return twin

    def draw_again(self, noise_seed: int) -> None:
        """From here on, this run draws from another seed; see `fork`. A reset ends it."""
        self._schedule.tables.make_delayed()  # images under way have the noise of then
        saved, sent = self._save(), self.messages_sent
        self._rebuild(self.scenario, self._seed, checked_seed(noise_seed))
        self._load(saved, sent)

    # ---- composition -----------------------------------------------------------------------------------------

    def _compose(self) -> Schedule:
        self.health = Health(faults_in_ticks(self._resolved, self.clock), self.listeners.warning)
        faults = self._message_faults = MessageFaults(self._resolved, self.clock, self._noise_seed)
        parts = self._resolved, self._noise_seed, self.world, self.clock, self._outbox, self._shared, self.health
        with plugin_errors():
            schedule, run = compose(*parts, faults.affected)
        self._outbox.alter = faults.alterer(self, schedule)
        self._contexts, self._frames = run.contexts, run.frames
        command = self._take_from_controller
        self._controllers = Controllers(
            self._resolved, self._noise_seed, self.clock, run.contexts, self._outbox.topics, command
        )
        return schedule

    # ---- what users get wrong --------------------------------------------------------------------------------

    def model(self, robot: str) -> RobotModel:
        """The robot's model: its inputs, state names and kernel."""
        robots = self.scenario.robots
        if type(robot) is not str or robot not in robots:
            raise UsageError(unknown("no robot", repr(robot), robot, robots))
        return robots[robot].engine_model

    def _checked_ticks(self, ticks: Any) -> int:
        if isinstance(ticks, bool) or not isinstance(ticks, (int, np.integer)) or ticks < 0:
            raise UsageError(f"the number of ticks must be a whole number, 0 or more; found {ticks!r}")
        if self.clock.time_ns(self.tick + int(ticks)) >= END_OF_TIME_NS:
            raise UsageError(f"{ticks} more ticks would pass 2**31 seconds, where the stamps of ROS 2 end")
        return int(ticks)
