"""`Simulation`: a scenario, a seed and commands in; stamped, encoded ROS 2 messages out.

The composition root: the only module that knows every part.
"""

from __future__ import annotations

import json
import math
from collections import Counter, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from microsim import outputs
from microsim.documents.values import without_none
from microsim.engine.components import RobotModel, Wind, Z
from microsim.engine.faults import RADIO, Fault, Health, of_target
from microsim.engine.noise import stream_key
from microsim.engine.physics import Fleet, Physics, lean, make_fleet, put
from microsim.engine.radio import Radio
from microsim.engine.schedule import Command, Input, Schedule, Teleport, Transmission
from microsim.engine.timekeeper import NS_PER_S, Clock, exact_rate
from microsim.engine.world import World
from microsim.errors import PluginError, UsageError, unknown
from microsim.messages import encoders
from microsim.messages.outbox import Message, Outbox
from microsim.messages.topics import TOPICS, Qos
from microsim.robots import ROBOT_MODELS
from microsim.scenario import Scenario, load_scenario
from microsim.scenario import sensors as blocks
from microsim.scenario.randomised import draw
from microsim.scenario.robots import Robot
from microsim.scenario.scene import build_world, radio_settings
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.splat_cameras import Scenes

INT64 = range(-(2**63), 2**63)
END_OF_TIME_NS = 2**31 * NS_PER_S  # seconds in stamps are int32


@cache
def _state_type(model: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(f"{model.title().replace('_', '')}State", fields)


def robot_model(robot: Robot) -> RobotModel:
    """The engine's part of a robot: built in, or brought by the plug-in that brought its settings."""
    found = ROBOT_MODELS.get(robot.engine_name, robot.engine)
    if not isinstance(found, RobotModel):
        raise PluginError(f"the robot model {robot.model!r} brings no engine: set `engine` to a RobotModel")
    return found


@dataclass(frozen=True)
class Reconfiguration:
    """From this tick on the run follows another scenario."""

    scenario: Scenario


# what `reconfigure` may not change
_FIXED: dict[str, Callable[[Scenario], Any]] = {
    "physics_hz": lambda scenario: scenario.physics_hz,
    "the map": lambda scenario: (scenario.map, scenario.world),
    "obstacles and features": lambda scenario: (scenario.obstacles, scenario.features),
    "the set of robots": lambda scenario: {name: robot.engine_name for name, robot in scenario.robots.items()},
    "frames.per_robot_odom": lambda scenario: scenario.frames.per_robot_odom,
    "randomize": lambda scenario: scenario.randomize,
    "odometry drift": lambda scenario: [robot.odom and robot.odom.drift for robot in scenario.robots.values()],
}


@dataclass(frozen=True)
class Snapshot:
    """Everything that decides how a run goes on. Made by `Simulation.snapshot`; belongs to that scenario."""

    scenario: Scenario
    seed: int
    next_seed: int
    memory: Any
    digest: bytes
    unsent: tuple[Message, ...]
    counters: Mapping[str, int]


class Simulation:
    """A world that advances when `step` is called, as fast as the machine allows.

    The same scenario, seed and calls give the same messages, byte for byte, on every machine.
    """

    def __init__(self, scenario: Scenario | str | Path | Mapping[str, Any], seed: int | None = None) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        self.world: World = build_world(self.scenario)
        self._written_world = self.world
        self.clock = Clock(self.scenario.physics_hz)
        self.counters: Counter[str] = Counter()  # what was ignored, and why
        # told of every input and the tick that takes it
        self.on_input: Callable[[int, Input | Reconfiguration], None] | None = None
        # given each tick's transcript, as microsim.messages.outbox describes it
        self.on_tick: list[Callable[[bytes], None]] = []
        self.on_warning: Callable[[str], None] | None = None  # told when a sensor begins to fail
        self._renderers: outputs.Renderers = {}
        self._scenes: Scenes = {}
        self._next_seed = self._checked_seed(self.scenario.seed if seed is None else seed)
        self.reset()

    # ---- running ---------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The seed in force."""
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
    def tick(self) -> int:
        return self._schedule.tick

    @property
    def time_ns(self) -> int:
        """Simulated time."""
        return self.clock.time_ns(self._schedule.tick)

    @property
    def drawn(self) -> Scenario:
        """The scenario in force, with what `randomize` leaves to the seed decided; without that block, `scenario`."""
        return self._drawn

    @property
    def robots(self) -> tuple[str, ...]:
        return tuple(self.scenario.robots)

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The robots of each model side by side, as the kernels see them: to look at, not to touch."""
        return self._schedule.physics.fleets

    @property
    def radio(self) -> Radio | None:
        return self._schedule.radio

    def reset(self, seed: int | None = None) -> None:
        """Back to tick 0 with fresh noise, empty queues, zero commands and counters; with another seed if given."""
        if seed is not None:
            self._next_seed = self._checked_seed(seed)
        self._seed = self._next_seed
        self._draw()
        self.counters.clear()
        self._outbox = Outbox()
        self._schedule = self._compose()
        self._schedule.send()
        self.opening = self._outbox.close_tick()  # the transcript of tick 0, which happens here
        self._tell(self.opening)

    def _tell(self, transcript: bytes) -> None:
        for told in tuple(self.on_tick):  # one may leave
            told(transcript)

    def _draw(self) -> None:
        """Decide what the scenario leaves to the seed."""
        before = self.world
        self._drawn, self.world = draw(self.scenario, self._written_world, self._seed)
        if self.world is not before:
            self._renderers.clear()

    def reconfigure(self, scenario: Scenario) -> None:
        """Go on from here with other limits, noise, rates, wind or radio, as if they were written in the scenario.

        What makes the world and the robots (map, obstacles, features, robots, physics_hz, odometry drift) stays.
        """
        for what, of in _FIXED.items():
            if of(scenario) != of(self.scenario):
                raise UsageError(f"{what} cannot change during a run; make a new Simulation")
        memory = self._schedule.memory()
        self._outbox.topics.clear()
        self.scenario = scenario
        self._draw()
        self._schedule = self._compose()
        self._schedule.recall(memory)
        if self.on_input is not None:
            self.on_input(self.tick, Reconfiguration(scenario))

    def set_seed(self, seed: int) -> None:
        """Takes effect at the next reset."""
        self._next_seed = self._checked_seed(seed)

    def step(self, ticks: int = 1) -> list[Message]:
        """Advance; gives every message of these ticks in the order of sending. The first call also gives tick 0's."""
        schedule, outbox = self._schedule, self._outbox
        for _ in range(self._checked_ticks(ticks)):
            schedule.step()
            transcript = outbox.close_tick()
            if self.on_tick:
                self._tell(transcript)
        return outbox.take()

    def advance(self, ticks: int = 1) -> None:
        """Move the robots only: nothing is sensed, sent or added to the digest, and radio packets wait.

        For searches and learning on states, where it is many times faster than `step`.
        """
        self._schedule.skip(self._checked_ticks(ticks))

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
        numbers = tuple(_number(name, values.get(name, 0.0)) for name in inputs)
        if not all(map(math.isfinite, numbers)):
            return self._ignore("commands with NaN or infinity")
        return self._accept(Command(robot, numbers, stamp_ns))

    def command_twist(self, robot: str, linear: Sequence[float], turn: float, stamp_ns: int | None = None) -> bool:
        """The command that a geometry_msgs/Twist stands for: linear x, y, z [m/s] and turn rate about z [rad/s]."""
        model = self.model(robot)
        if model.from_twist is not None:
            forward = _number("linear.x", linear[0])
            values = model.from_twist(self._drawn.robots[robot], forward, _number("turn", turn))
            return self.command_values(robot, values, stamp_ns)
        fields = {"linear.x": linear[0], "linear.y": linear[1], "linear.z": linear[2], "angular.z": turn}
        values = {n: fields[f] for n, f in zip(model.inputs, model.twist_fields, strict=True)}
        return self.command_values(robot, values, stamp_ns)

    def set_pose(
        self, robot: str, x: float, y: float, z: float | None = None, yaw: float = 0.0, stamp_ns: int | None = None
    ) -> bool:
        """Put a robot somewhere, at rest; a drone without z keeps its height. Ignored and counted where it cannot."""
        model, world = self.model(robot), self.world
        height = self._height_to_come(robot) if z is None else _number("z", z)
        x, y, yaw = _number("x", x), _number("y", y), _number("yaw", yaw)
        if not all(map(math.isfinite, (x, y, height, yaw))) or max(map(abs, (x, y, height, yaw))) > 1e6:
            return self._ignore("poses with NaN, infinity or more than 1e6")
        if model.is_ground_bound and not world.has_footing(x, y):
            return self._ignore("poses off the map or in an occupied cell")
        clearance: float = getattr(self._drawn.robots[robot], "ground_clearance_m", 0.0)
        lowest = world.ground(x, y) + clearance  # NaN where there is no ground: then any height will do
        return self._accept(Teleport(robot, x, y, lowest if height < lowest else height, yaw, stamp_ns))

    def _height_to_come(self, robot: str) -> float:
        """Where the robot is, or will be by the teleports that wait for the next tick."""
        waiting = [item.z for item in self._schedule.pending if isinstance(item, Teleport) and item.robot == robot]
        return waiting[-1] if waiting else self.rows(robot)[Z]

    def radio_send(self, sender: str, payload: bytes) -> bool:
        """Hand a packet to a robot's radio; it arrives at every other robot, unless lost on the way."""
        self.model(sender)
        radio, limit = self._schedule.radio, self.scenario.radio.max_payload_bytes
        if not self.scenario.radio.enabled:
            raise UsageError("this scenario has no radio: set radio.enabled to true")
        if radio is None:
            raise UsageError(f"{sender} is alone: nobody can receive its packets")
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise UsageError(f"a radio payload must be bytes; found {type(payload).__name__}")
        packet = bytes(payload)
        if len(packet) > limit:
            raise UsageError(f"a radio payload may have {limit} bytes at most, this one has {len(packet)}")
        return self._accept(Transmission(sender, packet))

    @property
    def waiting(self) -> list[Input]:
        """Inputs for the next tick, in the order in which they will be taken."""
        return self._schedule.pending

    def _accept(self, item: Input) -> bool:
        self._schedule.pending.append(item)
        if self.on_input is not None:
            self.on_input(self._schedule.tick, item)
        return True

    def _ignore(self, reason: str) -> bool:
        self.counters[reason] += 1
        return False

    # ---- looking ---------------------------------------------------------------------------------------------

    def state(self, robot: str) -> Any:
        """The true state as attributes: drone x y z yaw vx vy vz yaw_rate; rover x y z yaw v omega contacts."""
        model = self.model(robot)
        fleet, column = self._schedule.physics.home[robot]
        values = fleet.state[:, column].tolist()
        return _state_type(model.name, tuple(model.state))(*(values[row] for row in model.state.values()))

    def rows(self, robot: str) -> list[float]:
        """The state's rows as `microsim.engine.components` names them: the same for every model, in map axes."""
        try:  # first, since pilots and metrics ask at every tick
            fleet, column = self._schedule.physics.home[robot]
        except (KeyError, TypeError):
            self.model(robot)  # says which robots there are
            raise
        numbers: list[float] = fleet.state[:, column].tolist()
        return numbers

    def render(self, robot: str, sensor: str = "camera") -> npt.NDArray[np.uint8]:
        """What a camera sees now, (height, width, 3) uint8, before blur and jitter."""
        self.model(robot)
        sensors = self.scenario.robots[robot].all_sensors()
        cameras = {name: block for name, block in sensors.items() if isinstance(block, blocks.Camera)}
        if sensor not in cameras:
            raise UsageError(unknown(f"{robot} has no camera", repr(sensor), sensor, cameras))
        self._schedule.physics.look()  # `advance` does not
        if cameras[sensor].is_splat:
            from microsim.splat_cameras import picture_now

            return picture_now(self._scenes, f"{robot}/{sensor}", self.tick)
        camera = outputs.mounted_camera(self.world, self._renderers, robot, sensor, cameras[sensor])
        image: npt.NDArray[np.uint8] = camera.image(self._schedule.physics.motions[robot])
        return image

    # ---- time travel -----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.scenario,
            self._seed,
            self._next_seed,
            self._schedule.memory(),
            self._outbox.digest,
            tuple(self._outbox.messages),
            dict(self.counters),
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as from the moment of the snapshot, bit for bit."""
        if not isinstance(snapshot, Snapshot):
            raise UsageError(f"expected what `snapshot` gave, found {type(snapshot).__name__}")
        if snapshot.scenario != self.scenario:
            raise UsageError(
                f"the snapshot is of scenario {snapshot.scenario.name!r}, which differs from this simulation's "
                f"{self.scenario.name!r}"
            )
        if snapshot.seed != self._seed:
            self._next_seed = snapshot.seed
            self.reset()
        self._next_seed = snapshot.next_seed
        self._schedule.recall(snapshot.memory)
        self._outbox.digest = snapshot.digest
        self._outbox.messages = list(snapshot.unsent)
        self.counters = Counter(snapshot.counters)

    def fork(self) -> Simulation:
        """An independent twin at the same tick."""
        twin = Simulation(self.scenario, seed=self._seed)
        twin.restore(self.snapshot())
        return twin

    # ---- composition -----------------------------------------------------------------------------------------

    def _compose(self) -> Schedule:
        scenario, robots = self._drawn, tuple(self._drawn.robots)
        physics = Physics(self.world, self.clock.dt, self._fleets())
        self.health = health = Health(self._faults(), self._warn)
        run = outputs.Run(scenario, self._seed, self.world, self.clock, physics, self._outbox, self._renderers, health)
        clock = encoders.clock()
        run.periodic("clock", "/clock", scenario.physics_hz, lambda tick, stamp: clock(stamp))
        outputs.add_sensors(run)
        if scenario.has_splats:
            from microsim import splat_cameras

            splat_cameras.add_splat_cameras(run, self._scenes)
        outputs.add_frames(run)
        outputs.add_status(run)
        outputs.add_world(run)
        radio = None
        if scenario.radio.enabled and len(robots) > 1:
            radio = Radio(radio_settings(scenario), robots, float(scenario.physics_hz), self._seed)
            blackouts = of_target(health.faults, RADIO)
            radio.blackouts = tuple((fault.first_tick, fault.end_tick) for fault in blackouts)
            self._add_metrics(run, radio)
        info = encoders.text(json.dumps(self._info(run.rates), sort_keys=True))
        run.once("sim_info", "/sim/info", info)
        drifts = [(robot, odometry.drift) for robot, odometry in run.odometry.items() if odometry.drift]
        receivers = {robot: self._receiver(robot) for robot in robots}
        return Schedule(self.clock, physics, radio, drifts, run.sorted_outputs(), receivers)

    def _faults(self) -> tuple[Fault, ...]:
        ticks = self.clock.ticks_in
        return tuple(
            Fault(each.target, each.kind, ticks(exact_rate(each.from_s)), ticks(exact_rate(each.to_s)), each.offset_m)
            for each in self.scenario.faults
        )

    def _warn(self, text: str) -> None:
        if self.on_warning is not None:
            self.on_warning(text)

    def _receiver(self, robot: str) -> Callable[[int, bytes], None]:
        topic = TOPICS["radio_rx"]
        send = self._outbox.sender(topic.of(robot), topic.type, topic.qos)
        return lambda stamp_ns, payload: send(stamp_ns, encoders.radio_payload(payload))

    def _fleets(self) -> list[Fleet]:
        """Robots of one model side by side, models in the order in which the scenario first names them."""
        by_model: dict[str, list[str]] = {}
        for name, robot in self._drawn.robots.items():
            by_model.setdefault(robot.engine_name, []).append(name)
        return [self._fleet(self.model(names[0]), names) for names in by_model.values()]

    def _fleet(self, model: RobotModel, names: list[str]) -> Fleet:
        wind = self._drawn.wind
        air = Wind(wind.world_xyz, wind.gust_sigma, wind.gust_tau_s)
        states = np.zeros((model.rows, len(names)))
        parameters = []
        for column, name in enumerate(names):
            robot = self._drawn.robots[name]
            pose = robot.start.map_pose
            put(model, states[:, column], self.world, pose.x, pose.y, pose.z or 0.0, pose.yaw)
            parameters.append(model.parameters(robot, air, self.clock.dt))
        keys = [stream_key(self._seed, f"{name}/air/gust") for name in names]
        fleet = make_fleet(model, names, states, np.array(parameters).T.copy(), keys)
        lean(fleet, self.world)
        return fleet

    def _add_metrics(self, run: outputs.Run, radio: Radio) -> None:
        rate = self._drawn.radio.metrics_hz
        if not rate:
            return
        tick_ms = 1000.0 * self.clock.dt

        encode = encoders.diagnostics()

        def message(tick: int, stamp: int) -> bytes:
            names = {f"radio: {link.sender} to {link.receiver}": link for link in radio.links_to_tell_of()}
            return encode(stamp, {name: link.metrics(tick_ms) for name, link in names.items()})

        run.periodic("radio_metrics", "/radio/metrics", rate, message)

    def _info(self, rates: Mapping[str, float]) -> dict[str, Any]:
        """What `/sim/info` tells."""
        scenario = self._drawn
        robots = {name: robot.model_dump(mode="json", by_alias=True) for name, robot in scenario.robots.items()}
        for block in robots.values():
            without_none(block, ("lidar", "convention", "render"))  # digests without them are older than these keys
        return {
            "version": __version__,
            "scenario": scenario.name,
            "seed": self._seed,
            "physics_hz": scenario.physics_hz,
            "rates_hz": dict(rates),
            "robots": robots,
            "radio": scenario.radio.model_dump(mode="json"),
            "wind": scenario.wind.model_dump(mode="json"),
        }

    # ---- what users get wrong --------------------------------------------------------------------------------

    def model(self, robot: str) -> RobotModel:
        """The robot's model: its inputs, state names and kernel."""
        robots = self.scenario.robots
        if type(robot) is not str or robot not in robots:
            raise UsageError(unknown("no robot", repr(robot), robot, robots))
        return robot_model(robots[robot])

    def _checked_ticks(self, ticks: Any) -> int:
        if isinstance(ticks, bool) or not isinstance(ticks, (int, np.integer)) or ticks < 0:
            raise UsageError(f"the number of ticks must be a whole number, 0 or more; found {ticks!r}")
        if self.clock.time_ns(self.tick + int(ticks)) >= END_OF_TIME_NS:
            raise UsageError(f"{ticks} more ticks would pass 2**31 seconds, where the stamps of ROS 2 end")
        return int(ticks)

    @staticmethod
    def _checked_seed(seed: Any) -> int:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or int(seed) not in INT64:
            raise UsageError(f"a seed must be a whole number of 64 bits; found {seed!r}")
        return int(seed)


def _number(name: str, value: Any) -> float:
    """As a float; what is too large for one is infinite, which is then ignored and counted."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise UsageError(f"{name} must be a number; found {value!r}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
