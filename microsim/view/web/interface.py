"""What passes between a run and its page: `Scene` once, `Frame`s one way, `Control`s the other.

Both sides know only these. A frame is the newest state there is; whoever is slow misses some, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from microsim.engine.components import Mount
from microsim.engine.world import World
from microsim.run_log import Note

FRAME_HZ = 30.0


@dataclass(frozen=True)
class PageOptions:
    """Where and how the page is served."""

    host: str = "127.0.0.1"
    port: int = 8080  # the first of those that are tried; 0: any that is free
    shadows: bool = True
    is_dark: bool | None = None  # None: as the browser wishes


SensorKind: TypeAlias = Literal["camera", "range", "scan", "gps", "lidar"]


@dataclass(frozen=True)
class SensorLook:
    """A sensor whose messages are drawn."""

    robot: str
    name: str
    kind: SensorKind
    topic: str
    mount: Mount
    frame: str = ""
    max_m: float = 0.0  # range
    size: tuple[int, int] = (0, 0)  # camera: width, height [px]
    focal_px: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class RobotLook:
    name: str
    model: str
    limits: Mapping[str, float]  # input of the command -> its largest value
    is_ground_bound: bool = True
    wheel_radius_m: float = 0.068


@dataclass(frozen=True)
class Scene:
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
class RobotFrame:
    position: tuple[float, float, float]  # [m] map frame
    rpy: tuple[float, float, float]  # [rad]
    speed: float  # [m/s] over ground, upwards included
    velocity: tuple[float, float, float]  # [m/s] map axes
    turn: float  # [rad/s]
    height: float  # [m] above the ground
    contacts: int | None = None
    steering: float = 0.0  # [rad] of a car's front wheels


@dataclass(frozen=True)
class LinkFrame:
    """One direction of the radio since the last reset."""

    sender: str
    receiver: str
    sent: int
    delivered: int
    lost: int
    latency_ms: float  # mean
    last_latency_ms: float
    queued: int
    rssi_dbm: float | None = None


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
    robots: Mapping[str, RobotFrame]
    links: tuple[LinkFrame, ...]
    ranges: Mapping[str, News] = field(default_factory=dict)  # the newest of each range sensor, by robot


@dataclass(frozen=True)
class Frame:
    epoch: int  # another number: time has jumped (reset, another scenario, gone back), forget what was drawn
    tick: int
    time_ns: int
    seed: int
    next_seed: int
    is_paused: bool
    asked_rtf: float
    rtf: float  # over the last seconds
    lateness_ms: float
    worst_lateness_ms: float
    digest: str
    robots: Mapping[str, RobotFrame]
    links: tuple[LinkFrame, ...]
    news: Mapping[str, News]  # topics with a message since the last frame
    waypoints: Mapping[str, tuple[tuple[float, float, float], ...]] = field(default_factory=dict)
    way: tuple[Step, ...] = ()  # since the last frame
    driven: str = ""  # the robot that the page drives
    has_pilot: bool = False
    log: tuple[Note, ...] = ()  # since the last frame
    past: tuple[int, int] = (0, 0)  # ticks that can be gone back to
    is_past: bool = False  # this frame shows what was, the run stands still meanwhile


RUN_KINDS = ("pause", "step", "reset", "speed", "load", "drive", "release", "seek", "branch")  # wishes for the run
PAGE_KINDS = ("view", "layer", "theme", "scale")  # and for its pages
KINDS = frozenset(RUN_KINDS + PAGE_KINDS)


@dataclass(frozen=True)
class Control:
    """A wish from a page."""

    kind: str  # one of `RUN_KINDS`
    value: Any = None
