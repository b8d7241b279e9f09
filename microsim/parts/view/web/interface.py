"""What passes between a run and its page: `PageScene` once, `PageFrame`s one way, `Control`s the other.

Both processes import only this from each other. A frame is the newest state: slow readers skip some frames.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from microsim.engine.components import FixedMount
from microsim.engine.schedule import Command
from microsim.engine.world import World
from microsim.errors import MicroSimError, install_hint
from microsim.messages.outbox import Message
from microsim.parts.view.run_state import (
    LinkState,
    RecentPace,
    RobotState,
    RunState,
    ShownSensor,
    link_states,
    robot_states,
    run_state,
    shown_sensors,
)
from microsim.robots.robot import Look
from microsim.runner import Note, Runner
from microsim.scenario.bundles import bundle_of
from microsim.sensors.sensor import KernelSensor, Layer, MessageForm, Sensor
from microsim.simulation import Simulation

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
    is_dark: bool | None = None  # None: the browser's preference
    is_framed: bool = False  # a notebook on this machine may show it inline


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
    radius_m: float  # of its body, seen from above


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
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # kind -> names that a page can load
    chosen: str = ""  # "kind:name" of what runs, if it is one of those
    mode: Literal["live", "replay"] = "live"
    title: str = ""
    about: str = ""  # a sentence about what is shown
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
    idle: tuple[str, ...] = ()  # robots without a command since the start
    events: tuple[tuple[float, str], ...] = ()  # what the pilot reports: simulated time [s], a sentence
    restart_s: float | None = None  # a demo is over and starts again after this time
    log: tuple[Note, ...] = ()  # since the last frame
    past: tuple[int, int] = (0, 0)  # first and last tick that can be shown
    is_past: bool = False  # this frame shows an earlier moment; the run is paused meanwhile


@dataclass(frozen=True)
class BusyWith:
    """What the run is busy with while no frame can come."""

    text: str


@dataclass(frozen=True)
class PageTrouble:
    """What the page could not draw, for the log of the run."""

    text: str


RUN_KINDS = ("pause", "step", "reset", "speed", "load", "drive", "release", "seek", "branch", "plot", "watched")
PAGE_KINDS = ("view", "layer", "theme", "scale")  # for the page's own process; the others are for the run
KINDS = frozenset(RUN_KINDS + PAGE_KINDS)


@dataclass(frozen=True)
class Control:
    """A request from a page."""

    kind: str  # one of `RUN_KINDS`
    value: Any = None


_SLOW = 0.9  # of the requested pace: below it, the run is reported as too slow
_STEP_S, _MOST_STEPS = 0.1, 1200  # simulated time between steps of the way; kept for one frame
_MOST_EVENTS = 12  # the newest
_CAMERA_INFO = "sensor_msgs/msg/CameraInfo"


class FrameCollector:
    """Follows a run. `frame` gives what is new since the last call."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.epoch = 0
        self.driven = ""
        self.past: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.drawn: set[str] = set()  # topics that a page needs
        self._sim: Simulation | None = None
        self._world: World | None = None
        self._robots: tuple[str, ...] = ()
        self._news: dict[str, Message] = {}
        self._latest: dict[str, Message] = {}  # the same, but never handed over
        self._counters: Counter[str] = Counter()
        self._is_slow = False
        self._pace = RecentPace()
        self._way: deque[Step] = deque(maxlen=_MOST_STEPS)
        self._next_step = 0
        self._asked: set[str] = set()  # topics that a page plots, also after a restart
        self._plotted: set[str] = set()  # topics whose messages are part of the steps
        self._commanded: set[str] = set()
        self.restart_s: float | None = None
        runner.listen(inputs=self._on_input, restarts=lambda sim: self.jump())

    def on_messages(self, messages: Sequence[Message]) -> None:
        news, latest, drawn = self._news, self._latest, self.drawn
        for message in messages:
            if message.topic in drawn:
                news[message.topic] = latest[message.topic] = message
        sim = self.runner.sim
        if sim.tick >= self._next_step:
            self._next_step = sim.tick + max(1, round(_STEP_S / sim.clock.dt))
            readings = as_news({topic: latest[topic] for topic in self._plotted if topic in latest})
            self._way.append(Step(sim.tick, sim.time_ns, robot_states(sim), link_states(sim), readings))

    def _on_input(self, tick: int, item: Any) -> None:
        if isinstance(item, Command):
            self._commanded.add(item.robot)

    def plot(self, topic: str) -> None:
        """From now on, the messages of this topic are part of the steps."""
        if topic in self.drawn:
            self._asked.add(topic)
            self._plotted.add(topic)

    def jump(self) -> None:
        """Time does not continue from where it was."""
        self.epoch += 1
        self._pace.clear()
        self._news.clear()
        self._way.clear()
        self._next_step = 0
        self._commanded.clear()

    def again(self) -> None:
        """After looking back: the newest messages once more."""
        self._news = dict(self._latest)

    def has_changed_scene(self) -> bool:
        """Whether another simulation runs than the last scene was made of, or other entities are in it."""
        sim = self.runner.sim
        return sim is not self._sim or sim.world is not self._world or sim.robots != self._robots

    def scene(self, **rest: Any) -> PageScene:
        sim = self._sim = self.runner.sim
        self._world, self._robots = sim.world, sim.robots
        looks = tuple(_sensor_look(sensor) for sensor in shown_sensors(sim.scenario))
        self.drawn = {topic for look in looks for topic in (look.topic, look.info_topic) if topic}
        self._asked &= self.drawn
        self._plotted = {look.topic for look in looks if look.plot} | self._asked
        self._latest.clear()
        self.jump()
        return PageScene(
            scenario=sim.scenario.name, physics_hz=float(sim.scenario.physics_hz), world=sim.world,
            robots=tuple(_robot_look(sim, name) for name in sim.robots), sensors=looks,
            origin_wgs84=sim.scenario.map.origin_wgs84, has_radio=sim.radio is not None,
            bundle="" if sim.scenario.world is None else str(bundle_of(sim.scenario.world).root), **rest,
        )  # fmt: skip

    def frame(self) -> PageFrame:
        """What is new since the last call."""
        sim = self.runner.sim
        news, rtf = as_news(self._news), self._rtf()
        self._report_pace(rtf)
        found = replace(self.still(), news=news, log=self._log(sim), rtf=rtf, past=self.past(), way=tuple(self._way))
        self._news.clear()
        self._way.clear()
        return found

    def still(self) -> PageFrame:
        """The state as it is now, without messages."""
        runner, sim = self.runner, self.runner.sim
        return PageFrame(
            **run_state(runner), epoch=self.epoch, next_seed=sim.next_seed, is_paused=runner.paused,
            waypoints={name: goal for each in runner.pilots for name, goal in getattr(each, "waypoints", {}).items()},
            driven=self.driven, has_pilot=bool(runner.pilots), restart_s=self.restart_s, idle=self._idle(sim),
            events=tuple(event for each in runner.pilots for event in getattr(each, "events", ()))[-_MOST_EVENTS:],
        )  # fmt: skip

    def _idle(self, sim: Simulation) -> tuple[str, ...]:
        """A demo's own pilot lets robots wait on purpose."""
        has_plan = any(hasattr(pilot, "is_done") for pilot in self.runner.pilots)
        waiting = (name for name in sim.robots if name not in self._commanded and sim.model(name).inputs)
        return () if has_plan else tuple(waiting)

    def _rtf(self) -> float:
        """0 while paused."""
        if self.runner.paused:
            self._pace.clear()
        return self._pace.update(self.runner.clock.now(), self.runner.sim_s)

    def _log(self, sim: Simulation) -> tuple[Note, ...]:
        """What the run has noted, and what it only counts."""
        runner, notes = self.runner, self.runner.notes.take()
        counts = _counted(sim)
        more = counts - self._counters - Counter({note.kind: note.count for note in notes})
        self._counters = counts
        for text, count in more.items():
            runner.note("warn", text, count=count)
        return notes + runner.notes.take()

    def _report_pace(self, rtf: float) -> None:
        """Once whenever it gets too slow."""
        requested = self.runner.rtf
        if self.runner.paused or not requested or not self._pace.is_settled:
            return
        was_slow, self._is_slow = self._is_slow, rtf < _SLOW * requested
        if self._is_slow and not was_slow:
            self.runner.note("warn", f"too slow: {rtf:.2f} × real time, {requested:g} × requested", "slow")


def as_news(messages: Mapping[str, Message]) -> dict[str, News]:
    return {topic: News(each.type, each.stamp_ns, each.cdr) for topic, each in messages.items()}


def _counted(sim: Simulation) -> Counter[str]:
    """What a simulation only counts, as lines of the log."""
    found = Counter({f"ignored: {reason}": count for reason, count in sim.counters.items()})
    for target, count in sim.health.dropped.items():
        found[f"{target}: drops out, its messages are missing"] = count
    for link in sim.radio.links if sim.radio is not None else ():
        if link.overflowed:
            found[f"radio {link.sender} → {link.receiver}: the queue is full, packets are lost"] = link.overflowed
    return found


def _units(kind: Sensor, form: MessageForm) -> dict[str, str]:
    if not isinstance(kind, KernelSensor) or callable(form.slots):
        return {}
    return {path: kind.reading[name] for path, name in form.slots.items()}


def _sensor_look(sensor: ShownSensor) -> SensorLook:
    kind, mount = sensor.kind, getattr(sensor.block, "mount", FixedMount())
    return SensorLook(
        robot=sensor.robot, name=sensor.name, layer=kind.display.layer, topic=sensor.topic,
        mount=FixedMount(tuple(mount.xyz), tuple(mount.rpy)),
        info_topic=next(iter(sensor.topics_of_type(_CAMERA_INFO)), "") if kind.display.layer == "image" else "",
        plot=kind.display.plot,
        units=_units(kind, sensor.main_form),
    )  # fmt: skip


def _robot_look(sim: Simulation, name: str) -> RobotLook:
    model, settings = sim.model(name), sim.scenario.robots[name]
    center, size = settings.body()
    return RobotLook(
        name=name, model=settings.model,
        limits={each: float(getattr(settings, f"max_{each}", 1.0)) for each in model.inputs},
        is_ground_bound=model.is_ground_bound, urdf=settings.urdf, look=settings.look(),
        top_m=center[2] + 0.5 * size[2], radius_m=0.5 * math.hypot(size[0], size[1]),
    )  # fmt: skip
