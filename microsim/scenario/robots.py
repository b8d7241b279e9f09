"""The robots a scenario can hold. `ROBOTS` names the built-in models; plug-ins add others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

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
    model_validator,
)
from typing_extensions import Self

from microsim.documents.values import Angle, Finite, Height, Length, Metres, Model, detail, fail, show, under, unknown
from microsim.errors import PluginError, there_are
from microsim.scenario import plugins
from microsim.scenario.dynamics import Dynamics
from microsim.scenario.sensors import (
    PI,
    SENSORS,
    Camera,
    Gps,
    Imu,
    JointStates,
    Lidar,
    Mount,
    MountedSensor,
    Odometry,
    PluginSensor,
    Range,
    Scan,
    SensorBlock,
)

LOOKING_DOWN = (PI, 0.0, -PI / 2)  # optical frame: z to the ground, the top of the image is the robot's forward
LOOKING_FORWARD = (-PI / 2, 0.0, -PI / 2)

Limit = Annotated[Finite, Field(ge=0, le=1e4)]
TimeConstant = Annotated[Finite, Field(ge=0, le=1e4)]


def _literal(name: str) -> Any:
    return Literal[name]


FURTHER_SENSORS: dict[str, type[SensorBlock]] = {
    name: create_model(
        f"Further{kind.__name__}",
        __base__=kind,
        __doc__=kind.__doc__,
        __module__=__name__,
        type=(_literal(name), Field(name, description="Type of the sensor.")),
    )
    for name, kind in SENSORS.items()
}


INPUT_TOPICS = ("cmd_vel", "ackermann_cmd", "set_pose")  # of robots; a sensor may not publish there


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


class Robot(Model):
    """What every robot has: a start and sensors. A model of robot adds its limits."""

    mounts: ClassVar[Mapping[str, Mount]] = {
        "range": Mount(xyz=(0.25, 0.0, 0.08)),
        "scan": Mount(xyz=(0.25, 0.0, 0.08)),
        "camera": Mount(rpy=LOOKING_FORWARD),
        "lidar": Mount(xyz=(0.0, 0.0, 0.3)),
    }  # by type of sensor, where a scenario does not say

    engine: ClassVar[Any] = None  # of a plug-in's robot: its microsim.engine.components.RobotModel
    absent_when_null: ClassVar[tuple[str, ...]] = ()  # younger keys, which scenarios written out before did not have

    model: str = Field(description="Model of the robot; default: the robot's name, where that is a model's name.")
    start: Start = Field(Start(), description="How it starts.")
    odom: Odometry | None = Field(Odometry(), description="Odometry; null: none.")
    gps: Gps | None = Field(Gps(), description="GPS; null: none.")
    imu: Imu | None = Field(Imu(), description="IMU; null: none.")
    camera: Camera | None = Field(None, description="Camera; null: none.")
    range: Range | None = Field(None, description="Range sensor; null: none.")
    scan: Scan | None = Field(None, description="Laser scanner; null: none.")
    lidar: Lidar | None = Field(None, description="LiDAR; null: none.")
    sensors: dict[RosName, SerializeAsAny[SensorBlock]] = Field(
        {}, description="Further sensors by name: a built-in `type` (odom, gps, ...) or that of a plug-in."
    )

    @property
    def engine_name(self) -> str:
        """Name of the built-in RobotModel that moves it, where there is one."""
        return self.model

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {key: value for key, value in data.items() if value is not None or key not in self.absent_when_null}

    @classmethod
    def belongs_elsewhere(cls, key: str) -> str:
        owners = [name for name, kind in ROBOTS.items() if key in kind.key_names()]
        return f"{key!r} is a key of the model {owners[0]}; {there_are(cls.key_names())}" if owners else ""

    @field_validator(*SENSORS, mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_validator(*SENSORS, mode="after")
    @classmethod
    def _present(cls, block: Any, info: ValidationInfo) -> Any:
        return None if block is None or not block.enabled else cls._mounted(block, str(info.field_name))

    @field_validator("sensors", mode="before")
    @classmethod
    def _further(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a mapping from names to sensors, found {show(value)}")
        blocks, problems = {}, []
        for name, block in value.items():
            try:
                _sensor_name(name)
                sensor = block if isinstance(block, SensorBlock) else _further_sensor(block, info)
            except ValidationError as error:
                problems += under(error, name)
            except ValueError as error:
                problems.append(detail(str(error), name, found=block))
            else:
                if sensor.enabled:
                    blocks[name] = cls._mounted(sensor, getattr(sensor, "type", ""))
        if problems:
            fail(problems)
        return blocks

    @classmethod
    def _mounted(cls, block: SensorBlock, kind: str) -> SensorBlock:
        """The sensor where this model of robot carries it, as far as the scenario does not say."""
        if not isinstance(block, MountedSensor) or kind not in cls.mounts:
            return block
        written = (
            block.mount.model_dump(include=block.mount.model_fields_set) if "mount" in block.model_fields_set else {}
        )
        return block.model_copy(update={"mount": cls.mounts[kind].model_copy(update=written)})

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """What other robots' LiDARs see of it: middle and size of a box in base_link [m]."""
        return (0.0, 0.0, 0.15), (0.5, 0.5, 0.3)

    def frame(self, robot: str, link: str) -> str:
        """The frame of one of its links."""
        return f"{robot}/{link}"

    def sensor_frame(self, robot: str, sensor: str, suffix: str = "_link") -> str:
        return self.frame(robot, f"{sensor}{suffix}")

    def all_sensors(self) -> dict[str, SensorBlock]:
        """Every sensor the robot carries, by name: the built-in ones in order, then the further ones."""
        fixed = {name: getattr(self, name) for name in SENSORS}
        return {name: block for name, block in {**fixed, **self.sensors}.items() if block is not None}


def _sensor_name(name: str) -> None:
    if name in SENSORS:
        message = f"{show(name)} is a built-in sensor: write it beside 'sensors', or name it otherwise"
        fail([detail(message, at_key=True)])
    if name in INPUT_TOPICS:
        fail([detail(f"{show(name)} is the name of a topic the robot listens to: name it otherwise", at_key=True)])
    ros_name(name)


def _further_sensor(block: Any, info: ValidationInfo) -> SensorBlock:
    if not isinstance(block, Mapping):
        raise ValueError(f"expected a mapping with a type ({', '.join(SENSORS)} or a plug-in's), found {show(block)}")
    if "type" not in block:
        raise ValueError(f"missing key 'type'; there are: {', '.join(SENSORS)}, and plug-in sensors")
    kind = block["type"]
    if isinstance(kind, str) and kind in FURTHER_SENSORS:
        return FURTHER_SENSORS[kind].model_validate(block)
    folders = (info.context or {}).get("plugins", ())
    sensor = plugins.find_sensor(kind, folders) if isinstance(kind, str) else None
    if sensor is None:
        fail([detail(unknown("sensor type", kind, [*SENSORS, *plugins.sensor_names(folders)]), "type", found=kind)])
    return _plugin_sensor(sensor, block)


def _plugin_sensor(sensor: plugins.Sensor, block: Mapping[str, Any]) -> PluginSensor:
    common = [key for key in PluginSensor.key_names() if key != "options"]
    own = {key: value for key, value in block.items() if key not in common}
    checked, problems = plugins.check_options(sensor, own, common)
    options = checked.model_dump(mode="json", by_alias=True) if checked else {}
    try:
        made = PluginSensor.model_validate({key: block[key] for key in block if key in common} | {"options": options})
    except ValidationError as error:
        fail([*under(error), *problems])
    if problems:
        fail(problems)
    return made


class DronePose(Pose):
    """Where a drone starts, in the map frame."""

    x: Metres = Field(20.0, description="East [m].")
    y: Metres = Field(20.0, description="North [m].")
    z: Metres = Field(10.0, description="Height in the map frame [m].")


class DroneStart(Start):
    """How a drone starts."""

    map_pose: DronePose = Field(DronePose(), description="Pose in the map frame.")


class Drone(Robot):
    """A kinematic drone: it flies where it is told, with a lag."""

    mounts: ClassVar[Mapping[str, Mount]] = {
        **Robot.mounts,
        "gps": Mount(xyz=(0.0, 0.0, 0.08)),
        "camera": Mount(xyz=(0.10, 0.0, -0.05), rpy=LOOKING_DOWN),
    }

    model: Literal["drone"] = Field("drone", description="A kinematic drone.")
    start: DroneStart = Field(DroneStart(), description="How it starts.")
    max_vx: Limit = Field(5.0, description="Greatest speed forward and backward [m/s].")
    max_vy: Limit = Field(5.0, description="Greatest speed left and right [m/s].")
    max_vz: Limit = Field(3.0, description="Greatest speed up and down [m/s].")
    max_yaw_rate: Limit = Field(1.5, description="Greatest turning rate [rad/s].")
    cmd_time_constant: TimeConstant = Field(0.15, description="Lag of commands, first order; 0: none [s].")
    ground_clearance_m: Height = Field(0.1, description="Least height above the ground [m].")
    camera: Camera | None = Field(Camera(), description="Camera looking down; null: none.")

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        return (0.0, 0.0, 0.0), (0.5, 0.5, 0.15)


class RoverPose(Pose):
    """Where a rover starts, in the map frame."""

    x: Metres = Field(10.0, description="East [m].")
    y: Metres = Field(10.0, description="North [m].")
    yaw: Angle = Field(1.57, description="Heading, counter-clockwise from east [rad].")

    @field_validator("z")
    @classmethod
    def _on_the_ground(cls, value: float | None) -> None:
        if value:
            raise ValueError(f"a rover stands on the ground: leave z out; found {show(value)}")


class RoverStart(Start):
    """How a rover starts."""

    map_pose: RoverPose = Field(RoverPose(), description="Pose in the map frame.")


class Rover(Robot):
    """A rover: it drives and turns on the ground, and stops at occupied cells. Kinematic, or with mass and drag."""

    absent_when_null: ClassVar[tuple[str, ...]] = ("dynamics",)
    mounts: ClassVar[Mapping[str, Mount]] = {
        **Robot.mounts,
        "gps": Mount(xyz=(0.0, 0.0, 0.15)),
        "camera": Mount(xyz=(0.25, 0.0, 0.15), rpy=LOOKING_FORWARD),
    }

    model: Literal["rover"] = Field("rover", description="A rover with differential drive.")
    start: RoverStart = Field(RoverStart(), description="How it starts.")
    max_v: Limit = Field(2.0, description="Greatest speed forward and backward [m/s].")
    max_omega: Limit = Field(1.2, description="Greatest turning rate [rad/s].")
    cmd_time_constant: TimeConstant = Field(0.10, description="Lag of commands, first order; 0: none [s].")
    dynamics: Dynamics | None = Field(
        None, description="Mass, drag and command timeout in place of the lag; null: kinematic, and commands are held."
    )
    range: Range | None = Field(Range(), description="Range sensor looking forward; null: none.")

    @field_validator("dynamics", mode="before")
    @classmethod
    def _switch_dynamics(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @property
    def engine_name(self) -> str:
        return "rover" if self.dynamics is None else "dynamic_rover"

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        return (0.0, 0.0, 0.075), (0.5, 0.35, 0.15)


class CarPose(RoverPose):
    """Where a car starts, in the map frame."""

    yaw: Angle = Field(0.0, description="Heading, counter-clockwise from east [rad].")


class CarStart(Start):
    """How a car starts."""

    map_pose: CarPose = Field(CarPose(), description="Pose of the rear axle's middle in the map frame.")


class Bicycle(Robot):
    """A car: the kinematic bicycle at its rear axle, on the relief of the ground."""

    mounts: ClassVar[Mapping[str, Mount]] = {
        **Robot.mounts,
        "gps": Mount(xyz=(0.0, 0.0, 1.5)),
        "imu": Mount(xyz=(0.0, 0.0, 0.4)),
        "range": Mount(xyz=(3.6, 0.0, 0.5)),
        "scan": Mount(xyz=(3.6, 0.0, 0.5)),
        "camera": Mount(xyz=(1.7, 0.0, 1.3), rpy=LOOKING_FORWARD),
        "lidar": Mount(xyz=(1.2, 0.0, 1.9)),
    }

    model: Literal["bicycle"] = Field("bicycle", description="A car as a kinematic bicycle.")
    start: CarStart = Field(CarStart(), description="How it starts.")
    frame_prefix: Annotated[str, Field(strict=True, pattern=r"^([a-z][a-z0-9_]*/)*$", max_length=100)] | None = Field(
        None, description="Before the names of its frames; default: none for the robot `ego`, `<name>/` for any other."
    )
    wheelbase_m: Length = Field(2.7, description="Distance of the axles [m].")
    track_m: Length = Field(1.6, description="Distance of the wheels of an axle [m].")
    length_m: Length = Field(4.5, description="Length of the body [m].")
    width_m: Length = Field(1.8, description="Width of the body [m].")
    height_m: Length = Field(1.5, description="Height of the body above the ground [m].")
    rear_overhang_m: Height = Field(0.9, description="How far the body reaches behind the rear axle [m].")
    wheel_radius_m: Length = Field(0.33, description="Radius of the wheels [m].")
    max_steering: Annotated[Finite, Field(ge=0, le=1.5)] = Field(0.6, description="Greatest steering angle [rad].")
    max_steering_rate: Limit = Field(0.8, description="Greatest rate of the steering angle [rad/s].")
    max_acceleration: Limit = Field(3.0, description="Acceleration at full throttle [m/s²].")
    max_deceleration: Limit = Field(8.0, description="Deceleration at full brake [m/s²].")
    emergency_deceleration: Limit = Field(
        3.0, description="That of an emergency stop, at most the full brake's [m/s²]."
    )
    max_speed: Limit = Field(15.0, description="Greatest speed forward [m/s].")
    max_reverse_speed: Limit = Field(3.0, description="Greatest speed backward [m/s].")
    cmd_timeout_s: Annotated[Finite, Field(gt=0, le=1e6)] | None = Field(
        1.0, description="A command older than this is followed by an emergency stop; null: commands hold [s]."
    )
    joint_states: JointStates | None = Field(JointStates(), description="Angles of wheels and steering; null: none.")

    @model_validator(mode="after")
    def _axles_under_the_body(self) -> Self:
        if self.rear_overhang_m + self.wheelbase_m > self.length_m:
            raise ValueError(
                f"expected length_m to be at least rear_overhang_m + wheelbase_m, which is "
                f"{show(self.rear_overhang_m + self.wheelbase_m)}, found {show(self.length_m)}"
            )
        return self

    def body(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        middle = 0.5 * self.length_m - self.rear_overhang_m
        return (middle, 0.0, 0.5 * self.height_m), (self.length_m, self.width_m, self.height_m)

    def frame(self, robot: str, link: str) -> str:
        prefix = self.frame_prefix if self.frame_prefix is not None else "" if robot == "ego" else f"{robot}/"
        return f"{prefix}{link}"

    def sensor_frame(self, robot: str, sensor: str, suffix: str = "_link") -> str:
        """Cameras and LiDARs of a world bundle have frames of their own names: `camera_front`, `lidar_top`."""
        return self.frame(robot, sensor if sensor.startswith(("camera_", "lidar_")) else f"{sensor}{suffix}")

    def all_sensors(self) -> dict[str, SensorBlock]:
        found = super().all_sensors()
        return {**found, "joint_states": self.joint_states} if self.joint_states is not None else found


ROBOTS: dict[str, type[Robot]] = {"drone": Drone, "rover": Rover, "bicycle": Bicycle}
RESERVED_NAMES = ("sim", "world", "radio")  # /sim/set_pose, /world/markers and /radio/metrics are not a robot's
MODELS_BY_NAME = {"ego": "bicycle"}  # robots whose name stands for a model beside the models' own names


def robot_model(name: object, folders: Iterable[str | Path] = ()) -> type[Robot] | None:
    """The class that describes robots of that model, or None when there is no such model."""
    if not isinstance(name, str):
        return None
    if name in ROBOTS:
        return ROBOTS[name]
    registered = plugins.find_robot(name, folders)
    if registered is not None and not (isinstance(registered, type) and issubclass(registered, Robot)):
        raise PluginError(f"plug-in robot {name}: expected a subclass of Robot, found {registered!r}")
    return registered


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
    block.setdefault("model", name if robot_model(name, folders) else MODELS_BY_NAME.get(name))
    kind = robot_model(block["model"], folders)
    names = [*ROBOTS, *plugins.robot_names(folders)]
    if kind is None and block["model"] is None:
        raise ValueError(
            f"missing key 'model', which is needed as {show(name)} is no model's name; there are: {', '.join(names)}"
        )
    if kind is None:
        fail([detail(unknown("model", block["model"], names), "model", found=block["model"])])
    return kind.model_validate(block, context=info.context)
