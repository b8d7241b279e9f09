"""What passes between a run and its page: `PageScene` once, `PageFrame`s one way, `Control`s the other.

Both processes import only this from each other. A frame is the newest state; a slow reader misses some, nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from microsim.engine.components import FixedMount
from microsim.engine.world import World
from microsim.errors import MicroSimError, install_hint
from microsim.robots.robot import Look
from microsim.run_log import Note
from microsim.sensors.sensor import Layer
from microsim.view.run_state import LinkState, RobotState, RunState

FRAME_HZ = 30.0
_EXTRA = ("viser", "trimesh", "yourdfpy", "xacrodoc", "PIL", "websockets")  # libraries of the extra `view`


class ViewerError(MicroSimError):
    """The page cannot be served, or a picture or page cannot be written."""


def need_extra(what: str) -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise ViewerError(f"{what} needs {missing[0]}, which is not installed: {install_hint('view')}")


@dataclass(frozen=True)
class PageOptions:
    """Where and how the page is served."""

    host: str = "127.0.0.1"
    port: int = 8080  # the first of those that are tried; 0: any that is free
    shadows: bool = True
    is_dark: bool | None = None  # None: the browser's preference


@dataclass(frozen=True)
class SensorLook:
    """A sensor and how its messages are drawn, see `microsim.sensors.sensor.Display`."""

    robot: str
    name: str
    layer: Layer
    topic: str
    mount: FixedMount
    info_topic: str = ""  # of the CameraInfo that belongs to an image
    plot: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)  # field of the message -> unit


@dataclass(frozen=True)
class RobotLook:
    name: str
    model: str
    limits: Mapping[str, float]  # input of the command -> its largest value
    is_ground_bound: bool
    urdf: str  # name or path of its model; "": drawn as its look
    look: Look
    top_m: float  # of its body, above base_link


@dataclass(frozen=True)
class PageScene:
    """Everything that stays as it is until another scenario is loaded."""

    scenario: str
    physics_hz: float
    world: World
    robots: tuple[RobotLook, ...]
    sensors: tuple[SensorLook, ...]
    origin_wgs84: tuple[float, float, float]
    has_radio: bool
    scenarios: tuple[str, ...] = ()  # that can be loaded from the page; none: it cannot be changed
    mode: Literal["live", "replay"] = "live"
    title: str = ""
    bundle: str = ""  # folder of the world bundle it takes place in


@dataclass(frozen=True)
class News:
    """The newest message of a topic, as it was sent."""

    type: str
    stamp_ns: int
    cdr: bytes


@dataclass(frozen=True)
class Step:
    """A moment between two frames, for trails and plots: several a second, however few frames there are."""

    tick: int
    time_ns: int
    robots: Mapping[str, RobotState]
    links: tuple[LinkState, ...]
    readings: Mapping[str, News] = field(default_factory=dict)  # of the topics that are plotted


@dataclass(frozen=True)
class PageFrame(RunState):
    epoch: int  # another number: time has jumped (reset, another scenario, rewind), forget what was drawn
    next_seed: int
    is_paused: bool
    news: Mapping[str, News] = field(default_factory=dict)  # topics with a message since the last frame
    waypoints: Mapping[str, tuple[tuple[float, float, float], ...]] = field(default_factory=dict)
    way: tuple[Step, ...] = ()  # since the last frame
    driven: str = ""  # the robot that the page drives
    has_pilot: bool = False
    log: tuple[Note, ...] = ()  # since the last frame
    past: tuple[int, int] = (0, 0)  # first and last tick that can be shown
    is_past: bool = False  # this frame shows an earlier moment; the run is paused meanwhile


RUN_KINDS = ("pause", "step", "reset", "speed", "load", "drive", "release", "seek", "branch", "plot")  # for the run
PAGE_KINDS = ("view", "layer", "theme", "scale")  # for its pages
KINDS = frozenset(RUN_KINDS + PAGE_KINDS)


@dataclass(frozen=True)
class Control:
    """A request from a page."""

    kind: str  # one of `RUN_KINDS`
    value: Any = None
