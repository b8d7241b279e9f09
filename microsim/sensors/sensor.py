"""What a sensor is. A file with one constant `SENSOR = Sensor(...)` describes it completely; all else is derived.

Built-in sensors and plug-ins use the same class. The simple form needs no kernel: `Sensor(name, message_type, create)`
with an object that has `update(dt)` and `publish()`. A sensor with a kernel runs inside the compiled tick and in
batches; one with an instrument runs in Python at its own ticks, unless its readings are compiled, as plain images are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field
from pydantic_core import InitErrorDetails

from microsim.documents.values import VARIES, Hertz, Model, PointXYZ, RollPitchYaw, Switch
from microsim.engine.compiled import plain
from microsim.engine.components import FixedMount
from microsim.engine.motion import Motion, mounted_at
from microsim.errors import show, unknown
from microsim.messages.topics import DEFAULT_QOS, Qos

if TYPE_CHECKING:
    from pydantic import BaseModel

    from microsim.engine.physics import Physics
    from microsim.engine.timekeeper import Clock
    from microsim.engine.world import World

Kernel: TypeAlias = Callable[..., None]  # (settings, motion, memory, scene, key, tick, reading)
DROPOUT, FAIL, JUMP = "dropout", "fail", "jump"  # names of faults, see `microsim.scenario.models`


class Mount(Model):
    """Where a sensor sits: its link in the robot's base_link."""

    xyz: PointXYZ = Field((0.0, 0.0, 0.0), description="Position in base_link [m].")
    rpy: RollPitchYaw = Field(
        (0.0, 0.0, 0.0),
        description="Roll, pitch, yaw in base_link [rad]; for a camera, of its optical frame (z along the view).",
    )


_AT_BASE = Mount()


class SensorBlock(Model):
    """What every sensor has."""

    enabled: Switch = Field(True, description="false takes the sensor away, as `null` in place of the block does.")
    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")

    def unfit(self, name: str, others: Mapping[str, Any]) -> list[InitErrorDetails]:
        """What is wrong with the sensor of that name beside the other blocks of its scenario, where these are valid."""
        return []


class MountedSensor(SensorBlock):
    """A sensor with a link of its own."""

    mount: Mount = Field(Mount(), description="Where it sits; the default depends on the robot's model.")


@dataclass(frozen=True)
class OwnSplats:
    """Gaussians that splat cameras draw for a robot, in place of its model."""

    key: Any  # what tells them apart from others
    read: Callable[[], tuple[npt.NDArray[np.float32], int]]  # rows as `render.splat.activation` takes them, degree
    origin: tuple[float, float, float]  # of their frame in base_link [m]
    has_shadow: bool


@dataclass(frozen=True)
class SensorContext:
    """What a sensor may know: its place, its settings, the world, the robot's motion, and noise of its own."""

    robot: str
    sensor: str
    settings: Any  # its checked block of the scenario
    world: World
    physics: Physics
    clock: Clock
    key: int  # of its noise
    mount: FixedMount = field(default_factory=FixedMount)
    frame: str = ""
    robot_settings: Any = None
    odom_frame: str = "odom"
    base_frame: str = "base_link"
    others: tuple[tuple[str, str], ...] = ()  # the other robots, in the order of `bodies`: name, what they look like
    bodies: Callable[[], npt.NDArray[np.float64]] = lambda: np.empty((0, 15))  # of the other robots, now
    parts: Callable[[], npt.NDArray[np.float64]] = lambda: np.empty(
        (0, 20)
    )  # of their models, see `render.robot_models`
    splats_of_others: Mapping[str, OwnSplats] = field(default_factory=dict)
    instances: Callable[[], Mapping[int, tuple[str, str]]] = dict  # number in masks -> name, class
    bundle: Callable[[], Any] | None = None  # the world bundle; None: there is none
    bundle_key: Any = None  # what tells it apart from others
    shared: dict[Any, Any] = field(default_factory=dict)  # costly things, kept from reset to reset
    now: list[int] = field(default_factory=lambda: [0])  # the tick

    @property
    def options(self) -> dict[str, Any]:
        """A plug-in's own keys."""
        return dict(self.settings.options)

    @property
    def tick(self) -> int:
        return self.now[0]

    @property
    def motion(self) -> Motion:
        """The robot's motion now; fields are named in `microsim.engine.motion`."""
        return self.physics.motions[self.robot]

    @property
    def place(self) -> tuple[float, float, float]:
        """Where the sensor is now: x, y, z in the map frame [m]."""
        return mounted_at(self.motion, self.mount.xyz)

    def normals(self, index: int = 0) -> tuple[float, float]:
        """Two standard normal numbers of this sensor and tick; another index gives others."""
        from microsim.engine.noise import normals

        return normals(self.key, self.tick, index)

    def with_settings(self, settings: Any) -> SensorContext:
        return replace(self, settings=settings)


@dataclass(frozen=True)
class View:
    """What an instrument reads from: one world at one tick."""

    motion: Motion
    key: int
    tick: int
    bodies: npt.NDArray[np.float64]  # (n, 15) boxes of the other robots, see `engine.bodies`


class CompiledReading(Protocol):
    """Readings made without Python, from the motion that the robot had when they were sampled.

    `address`: of a function, see `calls.picture_address`; `row`: its table, `bytes`: of a reading. Where the function
    sets `late_readings.ATTENTION` in its call's memory, `finish` is called with the call before it is sent.
    """

    address: int
    row: npt.NDArray[np.int64]
    bytes: int

    def finish(self, call: npt.NDArray[np.int64]) -> None: ...


class Instrument(Protocol):
    """Makes the readings of a sensor that no kernel can make alone: a camera, a LiDAR.

    Optional: `may_break = True` if a failure of `read` must not end the run, `sees_robots = False` if it does not look
    at `View.bodies`, which then is empty; `compiled()`, which gives the same readings as a `CompiledReading`, or None;
    plug-ins are read in Python, since what they compile themselves has no checks.
    One that reads many worlds of a batch in one call has `aim(view)`, which makes something of each view, `draw`, which
    makes readings of up to `at_once` of these (on a GPU, if they may stay there), and `show_obstacles`.
    """

    def read(self, view: View) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class MessageForm:
    """A message that a sensor sends.

    The message of `prototype` is encoded once, and each reading is written into it. `slots`: path in the message ->
    name in the reading. A sensor with an instrument has an `encoder`, which makes a function of stamp [ns] and reading
    that gives bytes; where readings can be compiled, its first message has a `prototype` too that ends with the
    reading, and the others have one that only has a stamp.
    """

    type: str
    topic: str  # with {robot} and {sensor}
    qos: Qos
    about: str
    prototype: Callable[[SensorContext], Any] | None = None
    slots: Mapping[str, str] | Callable[[SensorContext], Mapping[str, str]] = field(default_factory=dict)
    encoder: Callable[[SensorContext], Callable[[int, Any], bytes]] | None = None
    applies: Callable[[Any], bool] = lambda settings: True  # settings -> whether it is sent
    rate: str = ""  # where the rate is set in a scenario; default: the sensor's own
    kind: str = ""  # by which the table of topics names it; default: the sensor's name


LinePart: TypeAlias = str | tuple[str, str] | tuple[float, str]  # text, text with a style, bar with a style
Layer: TypeAlias = Literal["", "beam", "fan", "points", "image", "fix", "pose", "joints"]


@dataclass(frozen=True)
class Display:
    """How people see the messages of a sensor's first form: on a dashboard line, in a plot, as a layer of the viewer.

    A line is a format with the message's fields and `age` [s], several formats of which the first that fits is used, or
    a function of the decoded message. The function returns text, or parts: text, text with a style of `rich`, and a
    share 0..1 with a style, which is drawn as a bar in the remaining room. Default: the message's first numbers.

    A layer is drawn from the message: "beam" from a Range, "fan" from a LaserScan, "points" from a PointCloud2, "image"
    from an Image (with the CameraInfo that the sensor sends beside it), "fix" from a NavSatFix, "pose" from anything
    with a pose, "joints" from a JointState (it moves the joints of the robot's URDF).
    """

    line: str | tuple[str, ...] | Callable[[Any], str | Sequence[LinePart]] = ""
    plot: tuple[str, ...] = ()  # fields that are plotted unless others are chosen
    layer: Layer = ""
    is_hidden: bool = False  # the dashboard has no line for it
    order: int = 1000  # among the lines of a robot


@dataclass(frozen=True)
class RobotFrames:
    """Kernels by which a sensor decides where the robot's frames are in /tf: x, y, z and a quaternion each."""

    odom_to_base: Kernel
    map_to_odom: Kernel


@dataclass(frozen=True, eq=False)
class Sensor:
    """A kind of sensor.

    `create(context)` belongs to the simple form: it is called once for each sensor of this type in a scenario, and
    returns an object with `update(dt)`, called on every tick with the seconds since the last, and `publish()`, called
    when a message is due, which returns its fields as a dict; header and stamp are filled in by the engine.
    """

    name: str  # what a scenario writes as `type:`
    message_type: str = ""  # of the simple form, such as "sensor_msgs/msg/Temperature"
    create: Callable[[Any], Any] | None = None
    options: type[BaseModel] | None = None  # of the simple form: its own keys in a scenario; None: it has none
    frame_suffix: str = "_link"  # its frame is <robot>/<sensor name><frame_suffix>
    _: KW_ONLY
    title: str = ""  # what people call it
    about: str = ""
    settings: type[SensorBlock] | None = None
    is_standard: bool = False  # robots carry it unless a scenario takes it away
    needs_origin: bool = False  # reads where on Earth the map is
    is_younger: bool = False  # scenarios written out before it existed did not have its key: left out where it is null
    mount: Mount = _AT_BASE  # where robots carry it, unless their model or the scenario says otherwise
    # the kernel form
    sample: Kernel | None = None
    sample_of: Callable[[SensorContext], Kernel | None] | None = None  # a kernel that depends on the robot
    # the same for a block of worlds on a CPU, if it reads place and heading alone: every array has a column for each
    sample_many: Kernel | None = None
    many_share_map: bool = False  # that one is only for worlds that share their map
    reads_place_only: bool = False  # of the motion, its kernels read place and heading alone: quicker in batches
    reads_state: bool = False  # the kernel is given the robot's state in place of its motion
    reading: Mapping[str, str] = field(default_factory=dict)  # names of its numbers -> unit
    size: Callable[[SensorContext], int] | None = None  # how many numbers each name of `reading` stands for; default: 1
    dtype: Any = np.float64  # of readings in batches
    numbers: Callable[[SensorContext], Sequence[float]] = lambda context: ()  # `settings` of the kernel
    table: Callable[[SensorContext], npt.NDArray[np.float64]] | None = None  # constants: `scene.table` of the kernel
    memory: tuple[str, ...] = ()  # names of what it keeps from reading to reading; saved in snapshots
    begin: Callable[[Motion, Any], Sequence[float]] | None = None  # motion, settings -> its memory; default: zeros
    track: Kernel | None = None  # called on every tick, with the kernel's signature
    is_tracking: Callable[[Any], bool] = lambda settings: True  # settings -> whether `track` is needed
    is_common: bool = True  # any robot may carry it; false: only robots that declare it
    shares_memory: bool = False  # further sensors of this type read what the one named like the type keeps
    stream: str = ""  # added to the name of its noise stream
    frames: RobotFrames | None = None
    # the instrument form
    instrument: Callable[[SensorContext], Instrument] | None = None
    shape: Callable[[SensorContext], tuple[int, ...]] | None = None  # of a reading, where that is fixed
    # of a camera: what it sees at a tick, without noise; images by kind, as below
    picture: Callable[[SensorContext, int], npt.NDArray[np.uint8]] | None = None
    images: Callable[[Any, Any, Any], dict[str, Any]] | None = None  # (settings, readings of a batch, numpy or cupy)
    # whether batches can draw it on their GPU, by its settings, the world, and whether there are other robots
    is_plain_camera: Callable[[Any, World, bool], bool] = lambda settings, world, has_others: False
    on_failure: Literal["repeat", "empty"] = "repeat"  # what is sent while it fails: the last reading, or nothing in it
    # what all have
    messages: tuple[MessageForm, ...] = ()
    common_parameters: Mapping[str, str] = field(default_factory=dict)  # ROS parameters for all robots -> key
    parameters: Mapping[str, str] | None = (
        None  # of <robot>.<sensor>: name -> place in its block; default: every number
    )
    path: str = ""  # part of the topic's name of a sensor that is named like its type; default: that name
    faults: tuple[str, ...] = (DROPOUT,)
    # why it cannot run in a batch, by its settings and whether there are other robots, about {target}; "": it can
    unbatchable: Callable[[Any, bool], str] = lambda settings, has_others: ""
    display: Display = Display()
    position: int = 1000  # among the topics of a tick; plug-ins come last

    def __post_init__(self) -> None:
        """Refuse what would be noticed late, or not at all."""
        kernels = {"sample": self.sample, "sample_many": self.sample_many, "track": self.track}
        for key, kernel in kernels.items():
            if kernel is not None and not is_function(kernel):
                raise TypeError(f"{key}: expected a function, found {show(kernel)}")
        if self.options is not None and not hasattr(self.options, "model_fields"):
            raise TypeError(f"options: expected a pydantic model, found {show(self.options)}")
        if self.frames is not None and not isinstance(self.frames, RobotFrames):
            raise TypeError(f"frames: expected RobotFrames(...), found {show(self.frames)}")
        if self.create is not None and not callable(self.create):
            raise TypeError(f"create: expected a function, found {show(self.create)}")
        given: dict[str, Any] = {"reading": self.reading, "memory": self.memory}
        for key, names in given.items():
            if isinstance(names, str) or not all(isinstance(name, str) for name in _items(names)):
                raise TypeError(f"{key}: expected names, found {show(names)}")
        if self.settings is not None and not _is_block(self.settings):
            raise TypeError(f"settings: expected a subclass of SensorBlock, found {show(self.settings)}")
        if not all(isinstance(form, MessageForm) for form in _items(self.messages)):
            raise TypeError(f"messages: expected a tuple of MessageForm, found {show(self.messages)}")
        for form in self.messages:
            check_topic(form.topic)

    @property
    def has_kernel(self) -> bool:
        return self.sample is not None or self.sample_of is not None

    @property
    def is_simple(self) -> bool:
        return self.create is not None

    def reading_size(self, context: SensorContext) -> int:
        return len(self.reading) * (1 if self.size is None else self.size(context))

    def reading_shape(self, context: SensorContext) -> tuple[int, ...]:
        """Of one reading in a batch; a single number has none."""
        if self.shape is not None:
            return self.shape(context)
        return () if len(self.reading) == 1 and self.size is None else (self.reading_size(context),)

    def places(self, form: MessageForm, context: SensorContext) -> dict[str, tuple[int, int]]:
        """Path in a message -> where its numbers begin in the reading, and how many there are."""
        count, names = 1 if self.size is None else self.size(context), list(self.reading)
        slots = form.slots(context) if callable(form.slots) else form.slots
        for path, name in slots.items():
            if name not in self.reading:
                raise ValueError(f"{path}: {unknown('there is no reading', repr(name), name, names)}")
        return {path: (count * names.index(name), count) for path, name in slots.items()}

    def topic(self, form: MessageForm, robot: str, sensor: str) -> str:
        return form.topic.format(robot=robot, sensor=(self.path or sensor) if sensor == self.name else sensor)


def check_topic(topic: str) -> None:
    """Of a message of a sensor, with places for the names of robot and sensor."""
    with_names = topic.replace("{robot}", "r").replace("{sensor}", "s")
    if not re.fullmatch(r"(/[A-Za-z_][A-Za-z0-9_]*)+", with_names):
        raise ValueError(f"expected a topic such as '/{{robot}}/{{sensor}}', found {topic!r}")


def is_function(kernel: Any) -> bool:
    """Whether it can be called as a kernel."""
    return isinstance(plain(kernel), FunctionType)


def _items(names: Any) -> Sequence[Any]:
    """Of what should be a sequence; else one that it is not."""
    return tuple(names) if isinstance(names, (Sequence, Mapping)) else (names, None)


def _is_block(settings: Any) -> bool:
    return isinstance(settings, type) and issubclass(settings, SensorBlock)


def varies(model: type[BaseModel], key: str) -> bool:
    """Whether `randomize` may draw this key of a sensor's block."""
    return key in model.model_fields and VARIES in model.model_fields[key].metadata


def default_form(sensor: Sensor) -> MessageForm:
    """What a sensor of the simple form sends."""
    return MessageForm(sensor.message_type, "/{robot}/{sensor}", DEFAULT_QOS, sensor.about)
