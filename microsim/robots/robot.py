"""What a robot is. A file with one constant `ROBOT`, a subclass of `Robot`, describes it completely.

The class is what a scenario may write about the robot; `engine` is how it moves; the rest says what it looks like, what
it takes and who drives it. Built-in robots and plug-ins use the same class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_serializer,
)
from pydantic_core import InitErrorDetails

from microsim.documents.values import Angle, Finite, Metres, Model, Switch, detail, fail, show, under, unknown
from microsim.engine.components import RobotModel
from microsim.engine.motion import Motion, motion_in
from microsim.errors import PluginError, did_you_mean, there_are
from microsim.plugin_errors import plugin_error
from microsim.registry import Registry, is_subclass
from microsim.sensors import SENSORS
from microsim.sensors.plugin import plugin_block
from microsim.sensors.sensor import Mount, MountedSensor, PythonSensor, Sensor, SensorBlock

if TYPE_CHECKING:
    from microsim.render.robot_models import Part

Limit = Annotated[Finite, Field(ge=0, le=1e4)]
TimeConstant = Annotated[Finite, Field(ge=0, le=1e4)]

ROBOTS: Registry[type[Robot]] = Registry(
    "ROBOT",
    "microsim.robots",
    "microsim.robots",
    "a subclass of Robot",
    lambda part: is_subclass(part, Robot),
    lambda part: str(part.model_fields["model"].default),
    lambda part: part.position,
)
RESERVED_NAMES = ("sim", "world", "radio")  # /sim/set_pose, /world/markers and /radio/metrics are not a robot's

COMMON_SENSORS: dict[str, Sensor] = {name: sensor for name, sensor in SENSORS.built_in.items() if sensor.is_common}


def _literal(name: str) -> Any:
    return Literal[name]


@cache
def _with_type(sensor: Sensor) -> type[SensorBlock]:
    """The block of a further sensor: the sensor's own, with its type."""
    assert sensor.settings is not None
    return create_model(
        f"Further{sensor.settings.__name__}",
        __base__=sensor.settings,
        __doc__=sensor.settings.__doc__,
        __module__=__name__,
        type=(_literal(sensor.name), Field(sensor.name, description="Type of the sensor.")),
    )


FURTHER_SENSORS: dict[str, type[SensorBlock]] = {name: _with_type(sensor) for name, sensor in COMMON_SENSORS.items()}


def sensor_of(block: SensorBlock, name: str, folders: Iterable[str] = ()) -> Sensor:
    """The kind of a robot's sensor."""
    kind = getattr(block, "type", name)
    found = SENSORS.find(kind, folders)
    if found is None:
        raise PluginError(f"the plug-in {kind!r} is gone since the scenario was read")
    return found


def ros_name(value: str) -> str:
    """Refuses a name that cannot be part of a topic and a frame."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", value):
        rule = "a lower-case letter, then lower-case letters, digits and underscores, 64 at most"
        fail([detail(f"{show(value)} is not a valid ROS name; expected {rule}", at_key=True)])
    return value


RosName = Annotated[str, AfterValidator(ros_name)]


class Pose(Model):
    """Where a robot starts, in the map frame."""

    x: Metres = Field(0.0, description="East [m].")
    y: Metres = Field(0.0, description="North [m].")
    z: Metres | None = Field(None, description="Height in the map frame [m]; null: on the ground.")
    yaw: Angle = Field(0.0, description="Heading, counter-clockwise from east [rad].")


class Start(Model):
    """How a robot starts."""

    map_pose: Pose = Field(Pose(), description="Pose in the map frame.")


class SplatFile(Model):
    """Gaussians that are a robot's own; `splats: FILE` is short for `splats: {file: FILE}`."""

    file: str = Field(
        min_length=1,
        description="3DGS .ply, .splat, .spz or .sog: x ahead, z up, origin on the ground below its centre.",
    )
    shadow: Switch = Field(True, description="Whether it casts a shadow in splat images.")
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="Hash of the file; where given, no other content is accepted."
    )


@dataclass(frozen=True)
class Look:
    """How a robot is drawn where there is no model of it, or too many robots: in RViz, in pictures."""

    shape: Literal["box", "cylinder"]
    size: tuple[float, float, float]  # [m]
    colour: tuple[float, float, float]  # 0..1
    center: tuple[float, float, float] = (0.0, 0.0, 0.0)  # [m] base_link


@dataclass(frozen=True)
class Report:
    """What `/sim/status` says of a robot."""

    values: Mapping[str, str]
    emergency: str = ""  # name of the state, where it is one


class Robot(Model):
    """What every robot has: a start and sensors. A model of robot adds its limits."""

    position: ClassVar[int] = 1000  # among the models in lists
    engine: ClassVar[Any] = None  # its microsim.engine.components.RobotModel
    mounts: ClassVar[Mapping[str, Mount]] = {}  # by type of sensor, where it differs from the sensor's own default
    inputs: ClassVar[tuple[str, ...]] = ("cmd_vel", "set_pose")  # messages it takes, see `microsim.messages.inputs`
    follower: ClassVar[str] = "turn_and_drive"  # what drives it along a mission's waypoints
    urdf: ClassVar[str] = ""  # its model in `urdf/`
    wind_parameter: ClassVar[bool] = False  # the node has a parameter <robot>.wind_world_xyz
    absent_when_null: ClassVar[tuple[str, ...]] = ()  # younger keys, which scenarios written out before did not have
    class_id: ClassVar[str] = ""  # what a detector calls it; default: its model
    start_key: ClassVar[str] = ""  # where it is written, no world bundle says where the robot starts
    is_watched: ClassVar[bool] = False  # /sim/status reports its state
    is_vehicle: ClassVar[bool] = False  # a world bundle's vehicle, sensors and timeouts are meant for it
    names: ClassVar[tuple[str, ...]] = ()  # robots of these names are of this model, where a scenario does not say

    model: str = Field(description="Model of the robot; default: the robot's name, where that is a model's name.")
    start: Start = Field(Start(), description="How it starts.")
    for _name, _sensor in COMMON_SENSORS.items():  # a key for each built-in kind of sensor
        __annotations__[_name] = _sensor.settings | None  # type: ignore[operator]
        locals()[_name] = Field(
            _sensor.settings() if _sensor.is_standard and _sensor.settings else None,
            description=f"{_sensor.title}; null: none.",
        )
    del _name, _sensor
    sensors: dict[RosName, SerializeAsAny[SensorBlock]] = Field(
        {}, description="Further sensors by name: a built-in `type` (odom, gps, ...) or that of a plug-in."
    )

    @property
    def engine_model(self) -> RobotModel:
        """What moves it."""
        found = self.engine
        if not isinstance(found, RobotModel):
            problem = f"the robot model {self.model!r} brings no engine: set `engine` to a RobotModel"
            raise plugin_error(problem, "", type(self))
        return found

    def parts(self, is_simple: bool = False) -> tuple[Part, ...]:
        """How splat cameras and RViz draw it: its model if it is a shipped one, else (or if simple) its `look`."""
        from microsim.render.robot_models import BOX, CYLINDER, Part, parts_of_model

        found = () if is_simple else parts_of_model(self.urdf)
        if found:
            return found
        look, axes = self._checked_look(), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
        half = (0.5 * look.size[0], 0.5 * look.size[1], 0.5 * look.size[2])
        return (Part(CYLINDER if look.shape == "cylinder" else BOX, half, look.center, axes, look.colour),)

    def _checked_look(self) -> Look:
        look: Any = self.look()
        if not isinstance(look, Look):
            raise plugin_error(f"look() returned {show(look)}; expected a Look", f"model {self.model}", type(self))
        return look

    @property
    def own_splats(self) -> SplatFile | None:
        """What splat cameras draw in place of its model."""
        return None

    @property
    def kind(self) -> str:
        """What a detector calls it."""
        return self.class_id or self.model

    @property
    def follows_path(self) -> bool:
        """Whether its own settings say where it is: it cannot be put elsewhere."""
        return bool(self.start_key and getattr(self, self.start_key))

    @property
    def engine_name(self) -> str:
        return self.engine_model.name

    def unfit(self, physics_hz: float) -> list[InitErrorDetails]:
        """What is wrong with it beside this rate."""
        return []

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        absent = (*self.absent_when_null, *(name for name, sensor in SENSORS.built_in.items() if sensor.omit_if_null))
        return {key: value for key, value in data.items() if value is not None or key not in absent}

    @classmethod
    def belongs_elsewhere(cls, key: str) -> str:
        owners = [name for name, kind in ROBOTS.built_in.items() if key in kind.key_names()]
        return f"{key!r} is a key of the model {owners[0]}; {there_are(cls.key_names())}" if owners else ""

    @field_validator(*COMMON_SENSORS, mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_validator(*COMMON_SENSORS, mode="after")
    @classmethod
    def _present(cls, block: Any, info: ValidationInfo) -> Any:
        if block is None or not block.enabled:
            return None
        return cls._mounted(block, SENSORS.built_in[str(info.field_name)])

    @field_validator("sensors", mode="before")
    @classmethod
    def _further(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a mapping from names to sensors, found {show(value)}")
        blocks, problems = {}, []
        for name, block in value.items():
            try:
                cls._check_sensor_name(name)
                sensor = block if isinstance(block, SensorBlock) else _further_sensor(block, info)
            except ValidationError as error:
                problems += under(error, name)
            except ValueError as error:
                problems.append(detail(str(error), name, found=block))
            else:
                if sensor.enabled:
                    kind = SENSORS.find(getattr(sensor, "type", ""), (info.context or {}).get("plugins", ()))
                    blocks[name] = sensor if kind is None else cls._mounted(sensor, kind)
        if problems:
            fail(problems)
        return blocks

    @classmethod
    def _check_sensor_name(cls, name: str) -> None:
        from microsim.messages.inputs import INPUTS

        if name in COMMON_SENSORS:
            message = f"{show(name)} is a built-in sensor: write it beside 'sensors', or name it otherwise"
            fail([detail(message, at_key=True)])
        if name in INPUTS.built_in:
            fail([detail(f"{show(name)} is the name of a topic the robot listens to: name it otherwise", at_key=True)])
        ros_name(name)

    @classmethod
    def _mounted(cls, block: SensorBlock, sensor: Sensor) -> SensorBlock:
        """The sensor where this model of robot carries it, as far as the scenario does not say."""
        if not isinstance(block, MountedSensor):
            return block
        written = (
            block.mount.model_dump(include=block.mount.model_fields_set) if "mount" in block.model_fields_set else {}
        )
        mount = cls.mounts.get(sensor.name, sensor.mount)
        return block.model_copy(update={"mount": mount.model_copy(update=written)})

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """What other robots' sensors see of it: middle and size of a box in base_link [m]."""
        return (0.0, 0.0, 0.15), (0.5, 0.5, 0.3)

    def look(self) -> Look:
        """How it is drawn; default: its body."""
        center, size = self.body()
        return Look("box", size, (0.5, 0.5, 0.8), center)

    def report(self, state: Any) -> Report:
        """Its state for `/sim/status`, where it is watched; state: its column."""
        return Report({})

    def ground_points(self, motion: Motion) -> tuple[Any, Any]:
        """x and y in the map of its reference point, then of where it touches the ground."""
        seen = motion_in(motion)
        return np.array([seen.x]), np.array([seen.y])

    def frame(self, robot: str, link: str) -> str:
        """The frame of one of its links."""
        return f"{robot}/{link}"

    def sensor_frame(self, robot: str, sensor: str, suffix: str = "_link") -> str:
        return self.frame(robot, f"{sensor}{suffix}")

    def all_sensors(self) -> dict[str, SensorBlock]:
        """Every sensor the robot carries, by name: the built-in ones in order, then the further ones."""
        declared = [name for name in SENSORS.built_in if name in type(self).model_fields]
        common = [name for name in declared if name in COMMON_SENSORS]
        own = [name for name in declared if name not in COMMON_SENSORS]
        fixed = {name: getattr(self, name) for name in common}
        found = {**fixed, **self.sensors, **{name: getattr(self, name) for name in own}}
        return {name: block for name, block in found.items() if block is not None}

    def sensor_key(self, sensor: str) -> tuple[str, ...]:
        """Where a sensor is written below the robot."""
        return ("sensors", sensor) if sensor in self.sensors else (sensor,)


def _further_sensor(block: Any, info: ValidationInfo) -> SensorBlock:
    types = ", ".join(COMMON_SENSORS)
    if not isinstance(block, Mapping):
        raise ValueError(f"expected a mapping with a type ({types} or a plug-in's), found {show(block)}")
    if "type" not in block:
        _fail_on_typo(block, "type", COMMON_SENSORS)
        raise ValueError(f"missing key 'type'; there are: {types}, and plug-in sensors")
    kind = block["type"]
    if isinstance(kind, str) and kind in FURTHER_SENSORS:
        return FURTHER_SENSORS[kind].model_validate(block)
    folders = (info.context or {}).get("plugins", ())
    sensor = SENSORS.find(kind, folders) if isinstance(kind, str) else None
    if sensor is None or not sensor.is_common:
        choices = [*COMMON_SENSORS, *SENSORS.plugin_names(folders)]
        fail([detail(unknown("sensor type", kind, choices), "type", found=kind)])
    if isinstance(sensor, PythonSensor):
        return plugin_block(sensor, block)
    return _with_type(sensor).model_validate(block)


def _fail_on_typo(block: Mapping[Any, Any], key: str, choices: Iterable[str]) -> None:
    """Where a key is missing, one that is nearly it is a typo: `modle: rover`."""
    for written in block:
        if written != key and did_you_mean(written, [key]):
            message = f"unknown key {show(written)}{did_you_mean(written, [key])} the choices of {key!r} are: "
            fail([detail(message + ", ".join(choices), str(written), at_key=True)])


def robot_class(name: object, folders: Any = ()) -> type[Robot] | None:
    """The class that describes robots of that model, or None when there is no such model."""
    return ROBOTS.find(name, folders) if isinstance(name, str) else None


def class_for_name(name: str, folders: Any = ()) -> str | None:
    """The model that a robot's name stands for."""
    if robot_class(name, folders) is not None:
        return name
    return next((model for model, kind in ROBOTS.built_in.items() if name in kind.names), None)


def make_robot(name: str, value: Any, info: ValidationInfo) -> Robot:
    """Validates the block of the robot `name`; an empty one is a robot with every default."""
    if ros_name(name) in RESERVED_NAMES:
        reason = f"/{name}/… are names of the simulator itself"
        fail([detail(f"a robot cannot be called {show(name)}: {reason}", at_key=True)])
    if isinstance(value, Robot):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping with a robot's keys, found {show(value)}")
    block = dict(value or {})
    folders = (info.context or {}).get("plugins", ())
    if "model" not in block:
        block["model"] = class_for_name(name, folders)
    kind = robot_class(block["model"], folders)
    names = ROBOTS.names(folders)
    if kind is None and block["model"] is None:
        _fail_on_typo(block, "model", names)
        raise ValueError(
            f"missing key 'model', because {show(name)} is not the name of a model; there are: {', '.join(names)}"
        )
    if kind is None:
        fail([detail(unknown("model", block["model"], names), "model", found=block["model"])])
    return kind.model_validate(block, context=info.context)
