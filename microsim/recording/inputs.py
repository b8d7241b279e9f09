"""What a run is given, as data and back, bit for bit: its scenario with files and plug-ins, and its inputs."""

from __future__ import annotations

import hashlib
import json
import shlex
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from microsim.documents.yaml_text import read_yaml
from microsim.engine.exact import cos, sin, wrap_angle
from microsim.engine.geometry import yaw_of_quaternion
from microsim.engine.schedule import Command, Input, Teleport, Transmission
from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import MicroSimError, ScenarioError, os_errors
from microsim.faults import FAULTS
from microsim.generators import GENERATORS
from microsim.messages import Template, WireError, decode_checked, encode, encoders, new
from microsim.messages.inputs import INPUTS, stamp_of
from microsim.messages.inputs.drive_commands import ACKERMANN_FIELDS
from microsim.messages.inputs.set_pose import take_pose
from microsim.messages.topics import TOPICS
from microsim.messages.types import ENCAPSULATION
from microsim.paths import located
from microsim.plugin_code import NO_CODE, code_hash, entry_file
from microsim.recording.bag_model import BagError
from microsim.registry import declared_in, installed, origin_of
from microsim.robots.robot import ROBOTS
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.loading import at_seed
from microsim.sensors import SENSORS
from microsim.simulation import Reconfiguration, Simulation

Folders: TypeAlias = Sequence[str | Path]


def packed(scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Plain data in which files are named by their content, and these files."""
    data, files = scenario.to_dict(), dict[str, bytes]()
    for kind, block, key in _blocks_with_files(data):
        path = located(block[key])
        with os_errors(f"{path} cannot be read", BagError):
            content = path.read_bytes()
        block[key] = f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}{path.suffix}"
        files[block[key]] = content
    return data, files


def made_by_generators(scenario: Scenario) -> list[Any]:
    """What they make of the scenario's own seed: of the code of a generator, all that matters. Nothing without any."""
    written = at_seed(scenario, scenario.seed)
    if written.layout is None:
        return []
    data = written.written_out().to_dict()
    return [data[key] for key in written.layout.written]


def packed_as_run(scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
    """As `packed`, in the world of the run, which needs no generator's code."""
    data, files = packed(scenario.written_out())
    return {**data, "seed": scenario.world_seed}, files


def places_of_files(scenario: Scenario) -> dict[str, str]:
    """Where the files of a scenario are, by the names that `packed` gives them."""
    blocks = [
        [block[key] for _, block, key in _blocks_with_files(data)] for data in (packed(scenario)[0], scenario.to_dict())
    ]
    return dict(zip(*blocks, strict=True))


def _blocks_with_files(data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Of a scenario's data: what each is, the mapping that names the file, and under which key."""
    elevation, image = (data.get("map", {}).get(key) or {} for key in ("elevation", "image"))
    if "file" in elevation:
        yield "elevation", elevation, "file"
    if image:
        yield "map", image, "image"
    for robot in data.get("robots", {}).values():
        if robot.get("splats"):
            yield "splats", robot["splats"], "file"


def as_text(data: Mapping[str, Any]) -> str:
    """As JSON, which reads a hundred times faster than YAML."""
    return json.dumps(data, ensure_ascii=False, indent=2)


def unpacked(
    text: str,
    folder: Path,
    files: Mapping[str, bytes],
    plugin_folders: Folders,
    world: str | Path | None = None,
    known: Mapping[str, str] = MappingProxyType({}),
    starts: Collection[str] | None = None,
    keeps_controllers: bool = False,
) -> Scenario:
    """The scenario again, with its files put into `folder`.

    Plug-ins come from `plugin_folders` alone, never from folders that the text names: it may be a stranger's, and
    plug-ins are code. `world`: where its bundle is now, if that has moved. `known`: where files are already, by name.
    `starts`: as in `load_scenario`. Controllers are code too, and a replay needs none: what they commanded is in the
    recording. With `keeps_controllers` they stay, and run where their folders are trusted.
    """
    try:
        data = _scenario_data(text)
        if not keeps_controllers:
            data.pop("controllers", None)
        for _, block, key in _blocks_with_files(data):
            name = str(block[key])
            if name in known:
                block[key] = known[name]
                continue
            if name not in files or Path(name).name != name:
                raise BagError(f"the file {name!r} that the recorded scenario needs is not there")
            if not (folder / name).exists():
                (folder / name).write_bytes(files[name])
            block[key] = str(folder / name)
        data["plugins"] = list(map(str, plugin_folders))
        if world is not None:
            if not data.get("world"):
                raise BagError("the recorded scenario has no world bundle: leave out --world")
            data["world"]["path"] = str(world)  # its hash stays, and is checked
        return load_scenario(data, starts)
    except ScenarioError as error:
        raise BagError(f"the recorded scenario cannot be run: {error}") from None
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise BagError(f"the recorded scenario is damaged: {error}") from None


def _scenario_data(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else read_yaml(text, "the recorded scenario").data


def moved_back(data: dict[str, Any], recorded: str) -> dict[str, Any]:
    """A scenario's data with the places of plug-ins and world bundle, and the controllers, of the recorded text."""
    before = _scenario_data(recorded)
    data["plugins"] = before.get("plugins", [])
    if data.get("world") and before.get("world"):
        data["world"]["path"] = before["world"]["path"]
    if "controllers" in before:  # in its place: the order of keys counts
        data = {key: data.get(key, before[key]) for key in {**before, **data}}
    return data


def plugin_hashes(scenario: Scenario, only_replayed: bool = False) -> dict[str, str]:
    """SHA-256 of the code of each plug-in that the scenario uses: the bag holds data, never code.

    Of sensors, robot models, faults and generators those that it names; of inputs, metrics and whatever else is in its
    folders all, and of installed inputs and metrics too, as every run has them. Unless `only_replayed`: what decides
    how a run continues.
    """
    parts: dict[str, Any] = {sensor.name: sensor for *_, sensor in scenario.all_sensors}
    parts = {name: part for name, part in parts.items() if name not in SENSORS.built_in}
    models = {robot.model: type(robot) for robot in scenario.robots.values()}
    parts |= {f"{_MODEL}{name}": part for name, part in models.items() if name not in ROBOTS.built_in}
    named = {fault.kind for fault in scenario.faults} | set(() if scenario.chaos is None else scenario.chaos.kinds)
    kinds = {name: FAULTS.find(name, scenario.plugins) for name in named}
    parts |= {f"{_FAULT}{name}": part for name, part in kinds.items() if name not in FAULTS.built_in}
    files = {name: _file_of(part) for name, part in parts.items()}
    files |= {f"{_CONTROLLER}{robot}": located(block.file) for robot, block in scenario.controllers.items()}
    for constant, part, file in declared_in(scenario.plugins, _BESIDE):
        files[f"{_BESIDE[constant]}{getattr(part, 'name', file.stem)}"] = file
    generators = set() if scenario.layout is None else scenario.layout.generators - GENERATORS.built_in.keys()
    for kind in _NOT_REPLAYED:
        for entry in installed(_GROUPS[kind]):
            if kind != _GENERATOR or entry.name in generators:
                files.setdefault(f"{kind}{entry.name}", entry_file(entry))
    with os_errors("the code of a plug-in cannot be read", BagError):
        chosen = sorted(name for name in files if not (only_replayed and name.startswith(_NOT_REPLAYED)))
        return {name: code_hash(files[name]) for name in chosen}


# before the names of other plug-ins than sensors
_MODEL, _FAULT, _INPUT, _GENERATOR, _METRIC = "model ", "fault ", "input ", "generator ", "metric "
_CONTROLLER = "controller "
_BESIDE = {"FAULT": _FAULT, "INPUT": _INPUT, "GENERATOR": _GENERATOR, "METRIC": _METRIC}
_GROUPS = {_MODEL: ROBOTS.group, _FAULT: FAULTS.group, _INPUT: INPUTS.group, _GENERATOR: GENERATORS.group}
_GROUPS |= {_METRIC: "microsim.metrics"}
_NOT_REPLAYED = (_INPUT, _GENERATOR, _METRIC)  # what they made is in the recording


def _file_of(part: Any) -> Path | None:
    origin = origin_of(part)
    return None if origin is None else origin.file


def _installed(name: str) -> Path | None:
    """The file of a plug-in of an installed package."""
    kind = next((each for each in _GROUPS if name.startswith(each)), "")
    found = installed(_GROUPS.get(kind, SENSORS.group))
    return next((entry_file(each) for each in found if each.name == name.removeprefix(kind)), None)


def changed_plugins(text: str, hashes: Mapping[str, str], folders: Folders) -> list[str]:
    """Names of plug-ins whose recorded code is neither in these folders nor installed; nothing in them is run.

    Raises BagError when the recorded scenario needs a folder of plug-ins and none is given. Plug-ins of installed
    packages need none, nor do those whose work is in the recording.
    """
    data = _scenario_data(text)
    named = data.get("plugins") or []
    own = {f"{_CONTROLLER}{robot}": located(block["file"]) for robot, block in data.get("controllers", {}).items()}
    present = {name: {NO_CODE} for name in hashes}
    for name in hashes:
        file = own.get(name) or _installed(name)
        if file is not None and file.is_file():
            present[name].add(code_hash(file))
    made = (*_NOT_REPLAYED, _CONTROLLER)
    needed = [n for n in hashes if len(present[n]) < 2 and (folders or not n.startswith(made)) and n not in own]
    if named and needed and not folders:
        options = " ".join(f"--plugins {shlex.quote(str(folder))}" for folder in named)
        need = f"it needs the plug-in {', '.join(map(repr, needed))} from {', '.join(map(str, named))}"
        rule = "plug-ins are code and run only from folders that you name"
        raise BagError(f"{need}; {rule}: if you trust that code, add {options}")
    try:
        files = [file for folder in map(Path, folders) for file in sorted(folder.rglob("*.py"))]
        in_folders = {code_hash(file) for file in files}
    except OSError as error:
        raise BagError(f"plug-ins cannot be read: {error}") from None
    compared = [name for name in hashes if name in needed or len(present[name]) > 1]
    return [name for name in compared if hashes[name] not in present[name] | in_folders]


def controller_hash(file: Path) -> str:
    """SHA-256 of a controller's code, as `plugin_hashes` has it."""
    with os_errors(f"{file} cannot be read", BagError):
        return code_hash(file)


def without_places(data: dict[str, Any]) -> dict[str, Any]:
    """What a scenario's data means, wherever the files of its code are: `plugin_hashes` covers their content."""
    blocks = {robot: {**block, "file": ""} for robot, block in data.get("controllers", {}).items()}
    return {**data, "plugins": [], **({"controllers": blocks} if blocks else {})}


RECONFIGURE = "/sim/reconfigure"
EXACT_POSE = "/sim/set_pose"  # for a yaw that no quaternion gives back
EXACT_COMMAND = "/sim/command"  # for what neither a Twist nor an AckermannDrive can hold
JSON_TOPICS = (RECONFIGURE, EXACT_POSE, EXACT_COMMAND)
STRING, TWIST, STAMPED = "std_msgs/msg/String", "geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped"
POSE, ACKERMANN = TOPICS["set_pose"].type, TOPICS["ackermann_cmd"].type
_UNIT, _BITS = 2.0**-60, 2**63 - 1
_TWIST = struct.Struct("<4s6d")
_AXES = ("linear.x", "linear.y", "linear.z", "angular.x", "angular.y", "angular.z")

Encoded: TypeAlias = tuple[str, str, bytes]  # topic, type, message
_Taking: TypeAlias = tuple[tuple[str, ...], Callable[[Any], bool]]  # accepted types; what takes a message or its JSON


def input_topics(sim: Simulation) -> Iterator[tuple[str, str]]:
    """Topic and type of everything that the simulation may take, as `encoded` writes it."""
    for robot in sim.robots:
        for kind in INPUTS.built_in.values():
            if kind.is_meant_for(sim, robot):
                yield kind.of(robot), kind.type_for(sim)
    yield RECONFIGURE, STRING
    yield EXACT_POSE, STRING
    if any(sim.model(robot).from_twist for robot in sim.robots):
        yield EXACT_COMMAND, STRING


def is_input(topic: str) -> bool:
    """Whether it is a name of what a simulation takes, not of what it sends."""
    patterns = (kind.of("*") for kind in INPUTS.built_in.values())
    return topic in JSON_TOPICS or any(fnmatchcase(topic, each) for each in patterns)


def encoded(
    sim: Simulation, stamp_ns: int, item: Input | Reconfiguration, pack: Callable[[Scenario], Any] = packed
) -> Encoded:
    """An input as the message that would have caused it. `pack`: as `packed`."""
    if isinstance(item, Command):
        return _command(sim, _stamp(item, stamp_ns), item)
    if isinstance(item, Teleport):
        return _teleport(_stamp(item, stamp_ns), item)
    if isinstance(item, Transmission):
        topic = TOPICS["radio_tx"]
        return topic.of(item.sender), topic.type, encoders.radio_payload(item.payload)
    data, _ = pack(item.scenario)
    return RECONFIGURE, STRING, encoders.text(json.dumps({"scenario": data}, ensure_ascii=False))


def _stamp(item: Command | Teleport, arrival_ns: int) -> tuple[int, int]:
    """Seconds and nanoseconds in the header: as sent, else the time of arrival."""
    sent = divmod(arrival_ns if item.stamp_ns is None else item.stamp_ns, NS_PER_S)
    return sent if abs(sent[0]) < 2**31 else divmod(arrival_ns, NS_PER_S)


def _exact(topic: str, values: dict[str, Any], stamp_ns: int | None) -> Encoded:
    """As JSON, where no message holds the same numbers."""
    stamp = {} if stamp_ns is None else {"stamp_ns": stamp_ns}
    return topic, STRING, encoders.text(json.dumps({**values, **stamp}))


@cache
def _template(kind: str, first: str, count: int) -> Template:
    """A message of which the stamp and so many numbers, from the first on, are filled in."""
    return Template(kind, new(kind), ("header.stamp.sec", 2), (first, count))


@cache
def _places(fields: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(_AXES.index(field) for field in fields)


def _command(sim: Simulation, stamp: tuple[int, int], command: Command) -> Encoded:
    if sim.model(command.robot).from_twist is not None:
        return _car_command(sim, stamp, command)
    axes = [0.0] * 6
    for place, value in zip(_places(sim.model(command.robot).twist_fields), command.values, strict=True):
        axes[place] = value
    topic = TOPICS["cmd_vel"].of(command.robot)
    if sim.scenario.stamped_cmd_vel:
        return topic, STAMPED, _template(STAMPED, "twist.linear.x", 6).encode(stamp, axes)
    return topic, TWIST, _TWIST.pack(ENCAPSULATION, *axes)


def _car_command(sim: Simulation, stamp: tuple[int, int], command: Command) -> Encoded:
    """As AckermannDriveStamped, where its float32 fields hold the same numbers, else as JSON."""
    values = dict(zip(sim.model(command.robot).inputs, command.values, strict=True))
    drive = tuple(values.pop(name, 0.0) for name in ACKERMANN_FIELDS)
    if not any(values.values()) and all(_fits_float32(value) for value in drive):
        message = _template(ACKERMANN, "drive.steering_angle", 4).encode(stamp, drive)
        return TOPICS["ackermann_cmd"].of(command.robot), ACKERMANN, message
    return _exact(EXACT_COMMAND, {"robot": command.robot, "values": command.values}, command.stamp_ns)


def _fits_float32(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _teleport(stamp: tuple[int, int], item: Teleport) -> Encoded:
    yaw = wrap_angle(item.yaw)
    turn = quaternion_of(yaw)
    if turn is None:
        values = {"robot": item.robot, "x": item.x, "y": item.y, "z": item.z, "yaw": yaw}
        return _exact(EXACT_POSE, values, item.stamp_ns)
    x, z, w = turn
    message = new(POSE)
    (message.header.stamp.sec, message.header.stamp.nanosec), message.header.frame_id = stamp, "map"
    place, orientation = message.pose.position, message.pose.orientation
    place.x, place.y, place.z = item.x, item.y, item.z
    orientation.x, orientation.z, orientation.w = x, z, w
    return TOPICS["set_pose"].of(item.robot), POSE, encode(POSE, message)


def quaternion_of(yaw: float) -> tuple[float, float, float] | None:
    """(x, z, w) from which `yaw_of` reads exactly this yaw.

    Not every float64 is the yaw of some z and w. How many floats the nearest one is off is written into x, in units of
    2**-60: negligible for other readers, and exact here.
    """
    z, w = sin(0.5 * yaw), cos(0.5 * yaw)
    steps = _place(yaw) - _place(yaw_of_quaternion(0.0, 0.0, z, w))
    turn = steps * _UNIT, z, w
    return turn if struct.pack("<d", yaw_of(*turn)) == struct.pack("<d", yaw) else None


def yaw_of(x: float, z: float, w: float) -> float:
    return _at_place(_place(yaw_of_quaternion(0.0, 0.0, z, w)) + round(x / _UNIT))


def _place(number: float) -> int:
    """Its place among all float64 in order: neighbours differ by 1."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits if bits >= 0 else -(bits & _BITS) - 1)


def _at_place(place: int) -> float:
    bits = place if place >= 0 else (-place - 1) - 2**63
    (number,) = struct.unpack("<d", struct.pack("<q", max(min(bits, _BITS), -(2**63))))
    return float(number)


class InputTopics:
    """Which topics of a bag are inputs of a simulation, and how each is handed to it.

    Only our own recordings may change the scenario.
    """

    def __init__(self, sim: Simulation, folder: Path, files: Mapping[str, bytes], is_ours: bool) -> None:
        self.sim, self._folder, self._files, self._is_ours = sim, folder, files, is_ours
        self._take: dict[str, _Taking] = {}
        self._know_robots()
        if is_ours:
            takers = self._take_scenario, self._take_exact_pose, self._take_exact_command
            self._take |= {topic: ((STRING,), take) for topic, take in zip(JSON_TOPICS, takers, strict=True)}

    def _know_robots(self) -> None:
        for robot in self.sim.robots:
            for kind in INPUTS.built_in.values():
                take = self._take_pose if kind.name == "set_pose" else kind.take
                self._take[kind.of(robot)] = kind.types(), partial(take, self.sim, robot)

    def __contains__(self, topic: object) -> bool:
        """Also inputs of robots that are spawned on the way."""
        return topic in self._take or (self._is_ours and isinstance(topic, str) and is_input(topic))

    def __iter__(self) -> Iterator[str]:
        return iter(self._take)

    def take(self, topic: str, type_name: str, cdr: bytes) -> bool:
        """Hand it to the simulation; False when that ignores it."""
        if topic not in self._take:
            raise BagError(f"{topic}: there is no such robot at this time")
        types, take = self._take[topic]
        if type_name not in types:
            raise BagError(f"{topic}: expected {' or '.join(types)}, found {type_name}")
        try:
            message = decode_checked(type_name, cdr)
            return take(json.loads(message.data)) if topic in JSON_TOPICS else take(message)
        except WireError as error:
            raise BagError(f"{topic}: not a {type_name}: {error}") from None
        except (MicroSimError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BagError(f"{topic}: cannot be taken: {error}") from None

    def _take_exact_command(self, values: dict[str, Any]) -> bool:
        numbers = dict(zip(self.sim.model(values["robot"]).inputs, values["values"], strict=True))
        return self.sim.command_values(values["robot"], numbers, values.get("stamp_ns"))

    def _take_pose(self, sim: Simulation, robot: str, message: Any) -> bool:
        if not self._is_ours:
            return take_pose(sim, robot, message)
        place, turn = message.pose.position, message.pose.orientation
        return sim.set_pose(robot, place.x, place.y, place.z, yaw_of(turn.x, turn.z, turn.w), stamp_of(message))

    def _take_scenario(self, values: dict[str, Any]) -> bool:
        text, now = json.dumps(values["scenario"]), self.sim.scenario
        world = None if now.world is None else now.world.path
        self.sim.reconfigure(unpacked(text, self._folder, self._files, now.plugins, world, starts=()))
        self._know_robots()
        return True

    def _take_exact_pose(self, values: dict[str, Any]) -> bool:
        return self.sim.set_pose(**{"stamp_ns": None, **values})
