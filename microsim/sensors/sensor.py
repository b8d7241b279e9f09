"""What a sensor is. A file with one constant `SENSOR` describes it completely; all else is derived.

There are three kinds, for built-in sensors and plug-ins alike. A `PythonSensor` is the simplest: an object with
`update(dt)` and `publish()`. A `KernelSensor` runs inside the compiled tick and in batches. An `Instrument`, such as a
camera or a LiDAR, makes its readings in Python at its own ticks, unless they are compiled, as plain images are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

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

    from microsim.engine.timekeeper import Clock
    from microsim.engine.world import World
    from microsim.engine.worlds import OneWorld

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
    clock: Clock
    worlds: OneWorld | None = None  # the robots; None: in batches, where nothing looks at those of one world
    key: int = 0  # of its noise; in batches each world has its own
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
        assert self.worlds is not None
        return self.worlds.motions[self.robot]

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


class Reader(Protocol):
    """Makes the readings of an instrument: a camera, a LiDAR.

    Optional: `may_break = True` if a failure of `read` must not end the run, `sees_robots = False` if it does not look
    at `View.bodies`, which then is empty; `compiled()`, which gives the same readings as a `CompiledReading`, or None;
    plug-ins are read in Python, since what they compile themselves has no checks.
    One that reads many worlds of a batch in one call has `aim(view)`, which makes something of each view, `draw`, which
    makes readings of up to `at_once` of these (on a GPU, if they may stay there), and `show_obstacles`.
    """

    def read(self, view: View) -> npt.NDArray[Any]: ...


def sees_robots(reader: Reader) -> bool:
    return bool(getattr(reader, "sees_robots", True))


@dataclass(frozen=True)
class MessageForm:
    """A message that a sensor sends.

    The message of `prototype` is encoded once, and each reading is written into it. `slots`: path in the message ->
    name in the reading. An instrument has an `encoder`, which makes a function of stamp [ns] and reading
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
    """What every kind of sensor declares. It is a `KernelSensor`, an `Instrument` or a `PythonSensor`."""

    name: str  # what a scenario writes as `type:`
    _: KW_ONLY
    settings: type[SensorBlock] | None = None  # its block of a scenario
    title: str = ""  # what people call it
    about: str = ""
    messages: tuple[MessageForm, ...] = ()
    mount: Mount = _AT_BASE  # where robots carry it, unless their model or the scenario says otherwise
    frame_suffix: str = "_link"  # its frame is <robot>/<sensor name><frame_suffix>
    path: str = ""  # part of the topic's name of a sensor that is named like its type; default: that name
    is_standard: bool = False  # robots carry it unless a scenario takes it away
    is_common: bool = True  # any robot may carry it; false: only robots that declare it
    needs_origin: bool = False  # reads where on Earth the map is
    omit_if_null: bool = False  # scenarios are written out without its key where it is null
    faults: tuple[str, ...] = (DROPOUT,)
    common_parameters: Mapping[str, str] = field(default_factory=dict)  # ROS parameters for all robots -> key
    # of <robot>.<sensor>: name -> place in its block; default: every number
    parameters: Mapping[str, str] | None = None
    display: Display = Display()
    position: int = 1000  # among the topics of a tick; plug-ins come last

    def __new__(cls, *args: Any, **fields: Any) -> Sensor:
        if cls is Sensor:
            is_kernel = bool(fields.keys() & {"sample", "sample_of"})
            now = "Instrument" if "instrument" in fields else "KernelSensor" if is_kernel else "PythonSensor"
            raise TypeError(f"Sensor(...) is now {now}(...)")
        for name in fields.keys() & _RENAMED.keys() - cls.__dataclass_fields__.keys():
            raise TypeError(f"{cls.__name__}: `{name}` is now `{_RENAMED[name]}`")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse what would be noticed late, or not at all."""
        if self.settings is not None and not _is_block(self.settings):
            raise TypeError(f"settings: expected a subclass of SensorBlock, found {show(self.settings)}")
        if not all(isinstance(form, MessageForm) for form in _items(self.messages)):
            raise TypeError(f"messages: expected a tuple of MessageForm, found {show(self.messages)}")
        for form in self.messages:
            check_topic(form.topic)

    @property
    def tracker(self) -> Tracker | None:
        """What follows the robot on every tick."""
        return None

    @property
    def stream(self) -> str:
        """What is added to the name of its noise stream."""
        return "" if self.tracker is None else self.tracker.stream

    @property
    def camera(self) -> CameraViews | None:
        """Of an instrument that makes images."""
        return None

    def why_not_in_batch(self, settings: Any, has_others: bool) -> str:
        """Why it cannot run in a batch, about {target}; empty: it can. `has_others`: whether there are other robots."""
        return ""

    def topic(self, form: MessageForm, robot: str, sensor: str) -> str:
        return form.topic.format(robot=robot, sensor=(self.path or sensor) if sensor == self.name else sensor)


_RENAMED = {
    "is_younger": "omit_if_null=True",
    "reads_place_only": 'reads="place"',
    "reads_state": 'reads="state"',
    "track": "tracker=Tracker(kernel, ...)",
    "begin": "tracker=Tracker(..., begin=...)",
    "is_tracking": "tracker=Tracker(..., applies=...)",
    "shares_memory": "tracker=Tracker(..., is_shared=True)",
    "stream": "tracker=Tracker(..., stream=...)",
    "frames": "tracker=Tracker(..., frames=...)",
    "instrument": "open",
    "picture": "camera=CameraViews(picture=...)",
    "images": "camera=CameraViews(images=...)",
    "is_plain_camera": "camera=CameraViews(is_plain=...)",
    "unbatchable": "not_in_batch",
}  # fields of version 0.1


@dataclass(frozen=True)
class Tracker:
    """How a sensor keeps its memory from tick to tick, also where no message is due."""

    kernel: Kernel  # called on every tick, with the signature of `sample`
    begin: Callable[[Motion, Any], Sequence[float]] | None = None  # motion, settings -> its memory; default: zeros
    applies: Callable[[Any], bool] = lambda settings: True  # settings -> whether it is needed
    stream: str = ""  # added to the name of the noise stream
    frames: RobotFrames | None = None
    is_shared: bool = False  # further sensors of this type read what the one named like the type keeps

    def __post_init__(self) -> None:
        if self.frames is not None and not isinstance(self.frames, RobotFrames):
            raise TypeError(f"frames: expected RobotFrames(...), found {show(self.frames)}")


Reads: TypeAlias = Literal["motion", "place", "state"]


@dataclass(frozen=True, eq=False)
class KernelSensor(Sensor):
    """A sensor whose readings a kernel makes: it runs inside the compiled tick and in batches."""

    settings: type[SensorBlock] | None = None
    sample: Kernel | None = None
    _: KW_ONLY
    sample_of: Callable[[SensorContext], Kernel | None] | None = None  # in its place: one that depends on the robot
    reading: Mapping[str, str] = field(default_factory=dict)  # names of its numbers -> unit
    size: Callable[[SensorContext], int] | None = None  # how many numbers each name of `reading` stands for; default: 1
    numbers: Callable[[SensorContext], Sequence[float]] = lambda context: ()  # `settings` of the kernel
    table: Callable[[SensorContext], npt.NDArray[np.float64]] | None = None  # constants: `scene.table` of the kernel
    memory: tuple[str, ...] = ()  # names of what it keeps from reading to reading; saved in snapshots
    tracker: Tracker | None = None
    reads: Reads = "motion"  # place: of the motion, place and heading alone, which is quicker; state: the robot's state
    # the same for a block of worlds on a CPU, if it reads the place: every array has a column for each
    sample_many: Kernel | None = None
    many_share_map: bool = False  # that one is only for worlds that share their map
    dtype: Any = np.float64  # of readings in batches

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tracker is not None and not isinstance(self.tracker, Tracker):
            raise TypeError(f"tracker: expected Tracker(...), found {show(self.tracker)}")
        tracking = None if self.tracker is None else self.tracker.kernel
        kernels = {"sample": self.sample, "sample_many": self.sample_many, "tracker": tracking}
        for key, kernel in kernels.items():
            if kernel is not None and not is_function(kernel):
                raise TypeError(f"{key}: expected a function, found {show(kernel)}")
        given: dict[str, Any] = {"reading": self.reading, "memory": self.memory}
        for key, names in given.items():
            if isinstance(names, str) or not all(isinstance(name, str) for name in _items(names)):
                raise TypeError(f"{key}: expected names, found {show(names)}")
        if self.reads not in get_args(Reads):
            raise ValueError(f"reads: {unknown('expected', repr(self.reads), self.reads, get_args(Reads))}")

    def kernel(self, context: SensorContext) -> Kernel | None:
        """What samples; None: this robot has nothing that it could read."""
        return self.sample if self.sample_of is None else self.sample_of(context)

    def reading_size(self, context: SensorContext) -> int:
        return len(self.reading) * (1 if self.size is None else self.size(context))

    def reading_shape(self, context: SensorContext) -> tuple[int, ...]:
        """Of one reading in a batch; a single number has none."""
        return () if len(self.reading) == 1 and self.size is None else (self.reading_size(context),)

    def places(self, form: MessageForm, context: SensorContext) -> dict[str, tuple[int, int]]:
        """Path in a message -> where its numbers begin in the reading, and how many there are."""
        count, names = 1 if self.size is None else self.size(context), list(self.reading)
        slots = form.slots(context) if callable(form.slots) else form.slots
        for path, name in slots.items():
            if name not in self.reading:
                raise ValueError(f"{path}: {unknown('there is no reading', repr(name), name, names)}")
        return {path: (count * names.index(name), count) for path, name in slots.items()}


@dataclass(frozen=True)
class CameraViews:
    """What an instrument that makes images can do beside."""

    # what it sees at a tick, without noise
    picture: Callable[[SensorContext, int], npt.NDArray[np.uint8]]
    images: Callable[[Any, Any, Any], dict[str, Any]]  # (settings, readings of a batch, numpy or cupy) -> by kind
    # whether batches can draw it on their GPU, by its settings, the world, and whether there are other robots
    is_plain: Callable[[Any, World, bool], bool] = lambda settings, world, has_others: False


@dataclass(frozen=True, eq=False)
class Instrument(Sensor):
    """A sensor whose readings are made in Python, at its own ticks, unless they are compiled, as plain images are."""

    settings: type[SensorBlock] | None = None
    open: Callable[[SensorContext], Reader] | None = None
    _: KW_ONLY
    shape: Callable[[SensorContext], tuple[int, ...]] = lambda context: (0,)  # of a reading in a batch
    dtype: Any = np.float64
    on_failure: Literal["repeat", "empty"] = "repeat"  # what is sent while it fails: the last reading, or nothing in it
    camera: CameraViews | None = None
    not_in_batch: Callable[[Any, bool], str] = lambda settings, has_others: ""  # see `why_not_in_batch`

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.open):
            raise TypeError(f"open: expected a function, found {show(self.open)}")

    def why_not_in_batch(self, settings: Any, has_others: bool) -> str:
        return self.not_in_batch(settings, has_others)

    def reader(self, context: SensorContext) -> Reader:
        assert self.open is not None
        return self.open(context)


@dataclass(frozen=True, eq=False)
class PythonSensor(Sensor):
    """The simple form: `create(context)` is called once for each sensor of this type in a scenario.

    It returns an object with `update(dt)`, called on every tick with the seconds since the last, and `publish()`,
    called when a message is due, which returns its fields as a dict; header and stamp are filled in by the engine.
    """

    message_type: str  # such as "sensor_msgs/msg/Temperature"
    create: Callable[[Any], Any]
    options: type[BaseModel] | None = None  # its own keys in a scenario; None: it has none

    def __post_init__(self) -> None:
        if not callable(self.create):
            raise TypeError(f"create: expected a function, found {show(self.create)}")
        if self.options is not None and not hasattr(self.options, "model_fields"):
            raise TypeError(f"options: expected a pydantic model, found {show(self.options)}")
        form = MessageForm(self.message_type, "/{robot}/{sensor}", DEFAULT_QOS, self.about)
        object.__setattr__(self, "messages", self.messages or (form,))
        super().__post_init__()

    def why_not_in_batch(self, settings: Any, has_others: bool) -> str:
        return "{target} is a plug-in without a kernel, which runs in a Simulation only"


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
