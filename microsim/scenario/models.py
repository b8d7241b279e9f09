"""The scenario: everything that decides a run, save the commands. Attribute names are the YAML keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from microsim.display import display
from microsim.documents.values import (
    Count,
    Finite,
    Hertz,
    HertzOrOff,
    Milliseconds,
    Model,
    Positive,
    Probability,
    Seed,
    Sigma,
    Switch,
    detail,
    exactly,
    fail,
    show,
    under,
    younger,
)
from microsim.errors import there_are
from microsim.robots.robot import ROBOTS, Robot, RosName, make_robot, sensor_of
from microsim.scenario.bundles import WorldBundle
from microsim.scenario.controllers import ControllerBlock, checked_controllers
from microsim.scenario.fault_models import Chaos, Fault, FaultOrText, resolved
from microsim.scenario.gates import Gate
from microsim.scenario.randomised import Randomize
from microsim.scenario.world_models import Feature, Map, Obstacle
from microsim.sensors.sensor import Sensor, SensorBlock

Speed = Annotated[Finite, Field(ge=-1e4, le=1e4)]

MAX_NAME = 200  # characters


class Rssi(Model):
    """Signal strength from a log-distance path-loss model."""

    tx_power_dbm: Annotated[Finite, Field(ge=-200, le=200)] = Field(20.0, description="Transmitted power [dBm].")
    path_loss_exponent: Annotated[Finite, Field(ge=0, le=20)] = Field(2.7, description="Exponent; 2: free space.")
    reference_loss_db: Annotated[Finite, Field(ge=0, le=500)] = Field(
        40.0, description="Loss over the first metre [dB]."
    )


class Radio(Model):
    """The radio between robots."""

    enabled: Switch = Field(True, description="false: there is no radio.")
    latency_ms_mean: Milliseconds = Field(80.0, description="Mean latency [ms], at any rate of packets.")
    latency_ms_jitter: Milliseconds = Field(30.0, description="Jitter of the latency, 1 sigma [ms].")
    drop_probability: Probability = Field(0.03, description="Probability that a packet is lost.")
    reordering: Switch = Field(False, description="true: a packet may overtake an earlier one.")
    half_duplex: Switch = Field(False, description="true: both directions share the air.")
    bitrate_bps: Annotated[Finite, Field(gt=0, le=1e12)] | None = Field(
        None, description="Rate at which packets go on air [bit/s]; null: at once."
    )
    rssi: Rssi | None = Field(None, description="Signal strength in the metrics; null: not computed.")
    max_payload_bytes: Annotated[Count, Field(le=65536)] = Field(65536, description="Longest payload [bytes].")
    queue_limit: Annotated[Count, Field(le=1_000_000)] = Field(1000, description="Packets under way per direction.")
    metrics_hz: HertzOrOff = Field(1, description="Rate of /radio/metrics; 0: off [Hz].")


class Wind(Model):
    """Wind, which carries drones along."""

    world_xyz: Annotated[tuple[Speed, Speed, Speed], exactly(3, "[x, y, z]")] = Field(
        (0.0, 0.0, 0.0), description="Constant wind in the map frame [m/s]."
    )
    gust_sigma: Annotated[Sigma, Field(le=1e3)] = Field(0.0, description="Gusts on each axis, 1 sigma [m/s].")
    gust_tau_s: Positive = Field(2.0, description="Time over which gusts are correlated [s].")


class Frames(Model):
    """The tree of frames."""

    per_robot_odom: Switch = Field(False, description="true: <robot>/odom for each; false: one shared odom.")
    publish_static_tf: Switch = Field(True, description="false: leave /tf_static to robot_state_publisher.")
    tf_hz: Hertz = Field(60, description="Rate of /tf; at most physics_hz [Hz].")
    publish_map_to_odom: Switch = Field(True, description="false: leave map -> odom to a localisation node.")
    publish_odom_to_base: Switch = Field(True, description="false: leave odom -> base_link to a filter.")

    _without_younger = younger("publish_map_to_odom", "publish_odom_to_base")


class WorldTopics(Model):
    """Topics that show the world."""

    occupancy_hz: HertzOrOff = Field(1, description="Rate of /world/occupancy; 0: off [Hz].")
    markers_hz: HertzOrOff = Field(1, description="Rate of /world/markers; 0: off [Hz].")
    occupancy_hollow: Switch = Field(
        False,
        description="true: cells inside obstacles are unknown in /world/occupancy, as in maps that a scanner made. "
        "AMCL needs this: to it, a beam that ends deep in a solid wall is as good as one that ends on its surface.",
    )

    _without_younger = younger("occupancy_hollow")


class Scenario(Model):
    """A scenario. Make one with `load_scenario`, which also checks what lies outside the models."""

    def __repr__(self) -> str:
        robots = [
            f"{name} ({', '.join(sensor for robot, sensor, _, _ in self.all_sensors if robot == name) or 'no sensors'})"
            for name in self.robots
        ]
        return f"<Scenario {self.name!r}, seed {self.seed}: {', '.join(robots) or 'no robots'}>"

    def _repr_html_(self) -> str:
        return display().html_of(self)

    name: Annotated[str, Field(strict=True, min_length=1, max_length=MAX_NAME)] = Field(
        "unnamed", description="Its name. Without this key, a file's scenario has the name of the file."
    )
    seed: Seed = Field(12345, description="Seed of all noise, any 64-bit integer.")
    physics_hz: Hertz = Field(60, description="Ticks per second of simulated time [Hz].")
    map: Map = Field(Map(), description="The grid, its relief and its surface; of a world bundle, what that says.")
    world: WorldBundle | None = Field(None, description="A world bundle to be in, in place of a map of one's own.")
    obstacles: tuple[Obstacle, ...] = Field((), description="Obstacles: boxes and cylinders.")
    features: tuple[Feature, ...] = Field((), description="What only cameras see.")
    frames: Frames = Field(Frames(), description="The tree of frames.")
    robots: dict[RosName, SerializeAsAny[Robot]] = Field(
        {name: ROBOTS.built_in[name](model=name) for name in ("drone", "rover")},
        description="The robots by name; without this key, a drone and a rover. An empty block has every default.",
    )
    collisions: Literal["document", "stop"] = Field(
        "document",
        description="What contacts do to motion. `document`: ground robots stop at occupied cells and at each other, "
        "drones fly on; `stop`: drones stop too, at obstacles, meshes and other robots. All are counted.",
    )
    controllers: dict[str, ControllerBlock] = Field(
        {},
        description="Code that commands robots, by robot: `{rover: controller.py}`; under `*`, one controller of all.",
    )
    radio: Radio = Field(Radio(), description="The radio between robots.")
    wind: Wind = Field(Wind(), description="The wind.")
    world_topics: WorldTopics = Field(WorldTopics(), description="Topics that show the world.")
    randomize: Randomize | None = Field(None, description="What the seed decides in each run; null: nothing.")
    faults: tuple[FaultOrText, ...] = Field((), description="Temporary faults: `camera_front:fail@3s-5s`, or mappings.")
    chaos: Chaos | None = Field(None, description="Faults that the seed draws: `{rate: 0.5}`; null: none.")
    stamped_cmd_vel: Switch = Field(False, description="true: commands are TwistStamped in place of Twist.")
    lockstep: tuple[Gate, ...] = Field(
        (), description="What a run with ROS 2 nodes waits for: `{after: /rover/scan, expect: /rover/cmd_vel}`."
    )
    plugins: tuple[Annotated[str, Field(strict=True, min_length=1)], ...] = Field(
        (), description="Folders, relative to the scenario's, in which plug-ins are looked for."
    )

    _layout: Any = PrivateAttr(None)  # a `plugins.Layout`: what generators made, and from what
    _world_seed: int | None = PrivateAttr(None)  # of the run; None: the scenario's

    @field_validator("world", mode="before")
    @classmethod
    def _world_by_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("obstacles")
    @classmethod
    def _names_differ(cls, obstacles: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
        names = [each.name for each in obstacles]
        again = [index for index, name in enumerate(names) if name is not None and name in names[:index]]
        if again:
            fail([detail(f"another obstacle is already called {show(names[again[0]])}", again[0], "name")])
        return obstacles

    @field_validator("robots", mode="before")
    @classmethod
    def _robots_by_model(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            hint = "; leave the key out for a drone and a rover, write {} for none" if value is None else ""
            raise ValueError(f"expected a mapping from names to robots, found {show(value)}{hint}")
        robots, problems = {}, []
        taken = {each.name for each in info.data.get("obstacles", ())}
        others = {**info.data, "robots": value}
        for name, block in value.items():
            if name in taken:
                problems.append(detail(f"an obstacle is already called {show(name)}", name, at_key=True))
            try:
                robots[name], found = _fit_robot(make_robot(name, block, info), others)
                problems += [_moved(each, name) for each in found]
            except ValidationError as error:
                problems += under(error, name)
            except ValueError as error:
                problems.append(detail(str(error), name, found=block))
        problems = problems or _shared_topics(robots, (info.context or {}).get("plugins", ()))
        if problems:
            fail(problems)
        return robots

    @field_validator("controllers")
    @classmethod
    def _controllers_fit(cls, blocks: dict[str, ControllerBlock], info: ValidationInfo) -> dict[str, ControllerBlock]:
        found, problems = checked_controllers(blocks, info)
        if problems:
            fail(problems)
        return found

    @field_validator("faults")
    @classmethod
    def _faults_have_targets(cls, faults: tuple[Fault, ...], info: ValidationInfo) -> tuple[Fault, ...]:
        robots = info.data.get("robots")
        if robots is None:
            return faults  # a problem there is reported
        found, problems = [], []
        for index, fault in enumerate(faults):
            try:
                found.append(resolved(fault, robots, (info.context or {}).get("plugins", ())))
            except ValueError as error:
                problems.append(detail(str(error), index, found=fault.target))
        if problems:
            fail(problems)
        return tuple(found)

    @field_validator("lockstep")
    @classmethod
    def _gates_differ(cls, gates: tuple[Gate, ...], info: ValidationInfo) -> tuple[Gate, ...]:
        expected = [gate.awaited for gate in gates]
        again = [index for index, topic in enumerate(expected) if topic in expected[:index]]
        if again:
            gate = gates[again[0]]
            message = f"another gate already expects {gate.expect}; use `count` for several replies"
            message = message if gate.expect else f"another gate already waits for {gate}"
            fail([detail(message, again[0], "expect" if gate.expect else "settle")])
        tick_s = 1.0 / info.data.get("physics_hz", 1.0)
        short = [index for index, gate in enumerate(gates) if gate.every is not None and gate.every < 0.999 * tick_s]
        if short:
            message = f"expected at least one tick, which is {tick_s:g} s (physics_hz), found {gates[short[0]].every:g}"
            fail([detail(message, short[0], "every")])
        return gates

    @field_validator("frames", "radio", "world_topics")
    @classmethod
    def _rates_fit(cls, block: Any, info: ValidationInfo) -> Any:
        fitted, problems = _fit_rates(block, info.data.get("physics_hz"))
        if problems:
            fail(problems)
        return fitted

    @classmethod
    def belongs_elsewhere(cls, key: str) -> str:
        blocks: dict[str, type[Model]] = {"map": Map, "frames": Frames, "wind": Wind, "world_topics": WorldTopics}
        owners = [name for name, kind in blocks.items() if key in kind.key_names()]
        return f"{key!r} belongs under `{owners[0]}:`; here {there_are(cls.key_names())}" if owners else ""

    @property
    def all_sensors(self) -> Iterator[tuple[str, str, SensorBlock, Sensor]]:
        """Robot, name, block and kind of every sensor."""
        for robot, settings in self.robots.items():
            for name, block in settings.all_sensors().items():
                yield robot, name, block, sensor_of(block, name, self.plugins)

    @property
    def world_seed(self) -> int:
        """The seed of what is generated and names none of its own: that of the run, before a run the scenario's."""
        return self.seed if self._world_seed is None else self._world_seed

    @property
    def layout(self) -> Any:
        """What generators made, if all of it is still there as they made it; else None."""
        is_whole = self._layout is not None and self._layout.is_made_of(self)
        return self._layout if is_whole else None

    def with_world_seed(self, seed: int | None, layout: Any = None) -> Scenario:
        """A copy that says from which seed and entries its generated parts come."""
        copy = self.model_copy()
        copy._world_seed, copy._layout = None if seed == self.seed else seed, layout
        return copy

    def written_out(self) -> Scenario:
        """With what its generators made in their place."""
        return self if self._layout is None else self.with_world_seed(self._world_seed)

    def to_dict(self) -> dict[str, Any]:
        """The complete scenario, every default written out, as plain data that `load_scenario` takes back.

        Generators stay entries of the lists, so that they follow the seed; `written_out()` has what they made.
        """
        layout = self.layout
        if layout is not None:
            rest = self.model_copy(update=dict.fromkeys(layout.written, ())).written_out()
            return {**rest.to_dict(), **layout.data()}
        data = self.model_dump(mode="json", by_alias=True)
        if self.world is not None:
            from microsim.scenario.bundles import bundle_of, name_left_out

            name_left_out(data["robots"], bundle_of(self.world))
        unset: dict[str, Any] = {
            "randomize": None, "collisions": "document", "lockstep": [], "chaos": None, "controllers": {},
        }  # younger  # fmt: skip
        return {key: value for key, value in data.items() if key not in unset or value != unset[key]}

    def to_yaml(self) -> str:
        """The complete scenario as YAML."""
        from microsim.documents.yaml_text import to_yaml

        return to_yaml(self.to_dict())


def _fit_robot(robot: Robot, others: Mapping[str, Any]) -> tuple[Robot, list[InitErrorDetails]]:
    """The robot beside the other blocks of the scenario: its rates, and the frame its odometry may drift in."""
    robot, problems = _fit_sensors(robot, others.get("physics_hz"))
    problems += robot.unfit(others["physics_hz"]) if others.get("physics_hz") else []
    for name, block in robot.all_sensors().items():
        found = block.unfit(name, others)
        problems += [_moved(each, *robot.sensor_key(name)) for each in found]
    return robot, problems


def _shared_topics(robots: Mapping[str, Robot], folders: Iterable[str]) -> list[InitErrorDetails]:
    """Sensors that would send on the topic of another: those of Autoware are the same for every car."""
    owners: dict[str, tuple[str, ...]] = {}
    problems = []
    for robot, settings in robots.items():
        for name, block in settings.all_sensors().items():
            kind, key = sensor_of(block, name, folders), (robot, *settings.sensor_key(name))
            taken = [kind.topic(form, robot, name) for form in kind.messages if form.applies(block)]
            shared = [topic for topic in taken if owners.setdefault(topic, key) != key]
            if shared:
                message = f"robots.{'.'.join(owners[shared[0]])} already sends on {shared[0]}"
                problems.append(detail(message, *key, at_key=True))
    return problems


def _fit_sensors(robot: Robot, physics_hz: float | None) -> tuple[Robot, list[InitErrorDetails]]:
    update: dict[str, Any] = {}
    problems: list[InitErrorDetails] = []
    further = dict(robot.sensors)
    for name, block in robot.all_sensors().items():
        fitted, found = _fit_rates(block, physics_hz)
        problems += [_moved(each, *robot.sensor_key(name)) for each in found]
        if name in further:
            further[name] = fitted
        else:
            update[name] = fitted
    return robot.model_copy(update={**update, "sensors": further}), problems


def _moved(error: InitErrorDetails, *prefix: str | int) -> InitErrorDetails:
    return InitErrorDetails(type=error["type"], loc=(*prefix, *error["loc"]), input=error["input"])


def _fit_rates(block: Any, physics_hz: float | None) -> tuple[Any, list[InitErrorDetails]]:
    """Default rates are lowered to physics_hz; a written one above it is a problem."""
    if physics_hz is None:
        return block, []
    names = [name for name in type(block).model_fields if name == "hz" or name.endswith("_hz")]
    fast = {name: getattr(block, name) for name in names if getattr(block, name) > physics_hz}
    written = [name for name in fast if name in block.model_fields_set]
    message = "expected at most physics_hz, which is {}, found {}"
    problems = [detail(message.format(show(physics_hz), show(fast[name])), name, found=fast[name]) for name in written]
    return block.model_copy(update=dict.fromkeys(fast, physics_hz)), problems
