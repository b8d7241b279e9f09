"""Makes frames of a run, inside its thread; must be quick, and changes nothing."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from microsim.engine.components import PITCH, ROLL, VELOCITY_X, VELOCITY_Y, VELOCITY_Z, YAW, YAW_RATE, Mount, X, Y, Z
from microsim.messages.outbox import Message
from microsim.outputs import camera_model, topic_name
from microsim.run_log import Note
from microsim.runner import Runner
from microsim.scenario import sensors as blocks
from microsim.scenario.bundles import bundle_of
from microsim.simulation import Simulation
from microsim.view.web.interface import (
    Frame,
    LinkFrame,
    News,
    RobotFrame,
    RobotLook,
    Scene,
    SensorKind,
    SensorLook,
    Step,
)

_RECENT_S = 2.0  # over which the achieved real-time factor is taken
_SLOW = 0.9  # of the pace that is asked for; a run below it is told to be too slow
_STEP_S, _MOST_STEPS = 0.1, 1200  # simulated time between steps of the way; kept for one frame

_KINDS: dict[type, tuple[SensorKind, str]] = {  # settings of a sensor -> what is drawn, kind of its topic
    blocks.Camera: ("camera", "image"),
    blocks.Range: ("range", "range"),
    blocks.Scan: ("scan", "scan"),
    blocks.Gps: ("gps", "gps"),
    blocks.Lidar: ("lidar", "points"),
}


class Collector:
    """Follows a run. `frame` gives what is new since the last call."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.epoch = 0
        self.driven = ""
        self.past: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._sim: Simulation | None = None
        self._tick = -1
        self._news: dict[str, Message] = {}
        self._latest: dict[str, Message] = {}  # the same, but never handed over
        self._counters: Counter[str] = Counter()
        self._is_slow = False
        self._recent: deque[tuple[float, float]] = deque()
        self._way: deque[Step] = deque(maxlen=_MOST_STEPS)
        self._next_step = 0
        self._beams: dict[str, str] = {}  # robot -> topic of its range sensor
        self.drawn: set[str] = set()

    def tap(self, messages: Sequence[Message]) -> None:
        news, latest, drawn = self._news, self._latest, self.drawn
        for message in messages:
            if message.topic in drawn:
                news[message.topic] = latest[message.topic] = message
        sim = self.runner.sim
        if sim.tick >= self._next_step or sim.tick < self._tick:
            self._next_step = sim.tick + max(1, round(_STEP_S / sim.clock.dt))
            robots = {name: _robot_frame(sim, name) for name in sim.robots}
            self._way.append(Step(sim.tick, sim.time_ns, robots, _links(sim), self._ranges()))

    def _ranges(self) -> dict[str, News]:
        known = {
            robot: latest for robot, topic in self._beams.items() if (latest := self._latest.get(topic)) is not None
        }
        return {robot: News(each.type, each.stamp_ns, each.cdr) for robot, each in known.items()}

    def jump(self) -> None:
        """Time does not go on from where it was."""
        self.epoch += 1
        self._tick = -1
        self._recent.clear()
        self._news.clear()
        self._way.clear()
        self._next_step = 0

    def again(self) -> None:
        """After looking back: the newest messages once more."""
        self._news = dict(self._latest)

    def has_changed_scene(self) -> bool:
        """Whether another simulation runs than the last scene was made of."""
        return self.runner.sim is not self._sim

    def scene(self, **rest: Any) -> Scene:
        sim = self._sim = self.runner.sim
        found = tuple(drawn_sensors(sim))
        self.drawn = {sensor.topic for sensor in found}
        self._beams = {sensor.robot: sensor.topic for sensor in reversed(found) if sensor.kind == "range"}
        self._latest.clear()
        self.jump()
        return Scene(
            scenario=sim.scenario.name,
            physics_hz=float(sim.scenario.physics_hz),
            world=sim.world,
            robots=tuple(_robot_look(sim, name) for name in sim.robots),
            sensors=found,
            origin_wgs84=sim.scenario.map.origin_wgs84,
            has_radio=sim.radio is not None,
            bundle="" if sim.scenario.world is None else str(bundle_of(sim.scenario.world).root),
            **rest,
        )

    def frame(self) -> Frame:
        """What is new since the last call."""
        sim = self.runner.sim
        if sim.tick < self._tick:
            self.jump()
        self._tick = sim.tick
        news = {topic: News(each.type, each.stamp_ns, each.cdr) for topic, each in self._news.items()}
        rtf = self._rtf()
        self._tell_pace(rtf)
        found = replace(self.still(), news=news, log=self._log(sim), rtf=rtf, past=self.past(), way=tuple(self._way))
        self._news.clear()
        self._way.clear()
        return found

    def still(self) -> Frame:
        """The state as it is now, without messages."""
        runner, sim = self.runner, self.runner.sim
        return Frame(
            epoch=self.epoch,
            tick=sim.tick,
            time_ns=sim.time_ns,
            seed=sim.seed,
            next_seed=sim.next_seed,
            is_paused=runner.paused,
            asked_rtf=runner.rtf,
            rtf=0.0,
            lateness_ms=1000.0 * runner.lateness_s,
            worst_lateness_ms=1000.0 * runner.worst_lateness_s,
            digest=sim.digest(),
            robots={name: _robot_frame(sim, name) for name in sim.robots},
            links=_links(sim),
            news={},
            waypoints=dict(getattr(runner.pilot, "waypoints", {})),
            driven=self.driven,
            has_pilot=runner.pilot is not None,
        )

    def _rtf(self) -> float:
        """0 while paused."""
        now, sim_s = self.runner.clock.now(), self.runner.sim_s
        if self.runner.paused:
            self._recent.clear()
        self._recent.append((now, sim_s))
        while len(self._recent) > 2 and now - self._recent[1][0] > _RECENT_S:
            self._recent.popleft()
        before = self._recent[0]
        return (sim_s - before[1]) / (now - before[0]) if now > before[0] else 0.0

    def _log(self, sim: Simulation) -> tuple[Note, ...]:
        """What the run has noted, and what it only counts."""
        runner, told = self.runner, self.runner.notes.take()
        counts = _counted(sim)
        more = counts - self._counters - Counter({note.kind: note.count for note in told})
        self._counters = counts
        for text, count in more.items():
            runner.note("warn", text, count=count)
        return told + runner.notes.take()

    def _tell_pace(self, rtf: float) -> None:
        """Once whenever it gets too slow."""
        asked, recent = self.runner.rtf, self._recent
        if self.runner.paused or not asked or recent[-1][0] - recent[0][0] < 0.9 * _RECENT_S:
            return
        was_slow, self._is_slow = self._is_slow, rtf < _SLOW * asked
        if self._is_slow and not was_slow:
            self.runner.note("warn", f"too slow: {rtf:.2f} × real time, where {asked:g} × is asked for", "slow")


def _counted(sim: Simulation) -> Counter[str]:
    """What a simulation counts without a word, as lines of the log."""
    found = Counter({f"ignored: {reason}": count for reason, count in sim.counters.items()})
    for target, count in sim.health.dropped.items():
        found[f"{target}: drops out, its messages are missing"] = count
    for link in sim.radio.links if sim.radio is not None else ():
        if link.overflowed:
            found[f"radio {link.sender} → {link.receiver}: the queue is full, packets are lost"] = link.overflowed
    return found


def drawn_sensors(sim: Simulation) -> list[SensorLook]:
    found = []
    for robot, settings in sim.scenario.robots.items():
        for name, block in settings.all_sensors().items():
            known = next((each for kind, each in _KINDS.items() if isinstance(block, kind)), None)
            if known is None:
                continue
            mounted = getattr(block, "mount", None) or Mount()
            mount = Mount(tuple(mounted.xyz), tuple(mounted.rpy))
            look = SensorLook(robot, name, known[0], topic_name(known[1], robot, name), mount)
            found.append(_detailed(look, block))
    return found


def _detailed(look: SensorLook, block: Any) -> SensorLook:
    if isinstance(block, blocks.Camera):
        model = camera_model(block)
        return replace(look, size=(model.width, model.height), focal_px=(model.fx, model.fy))
    return replace(look, max_m=float(getattr(block, "max_m", 0.0)))


def _robot_look(sim: Simulation, name: str) -> RobotLook:
    model, settings = sim.model(name), sim.scenario.robots[name]
    limits = {each: float(getattr(settings, f"max_{each}", 1.0)) for each in model.inputs}
    return RobotLook(name, model.name, limits, model.is_ground_bound, getattr(settings, "wheel_radius_m", 0.068))


def _robot_frame(sim: Simulation, name: str) -> RobotFrame:
    rows = sim.rows(name)
    velocity = (rows[VELOCITY_X], rows[VELOCITY_Y], rows[VELOCITY_Z])
    named = sim.model(name).state
    contacts, steering = named.get("contacts"), named.get("steering")
    return RobotFrame(
        position=(rows[X], rows[Y], rows[Z]),
        rpy=(rows[ROLL], rows[PITCH], rows[YAW]),
        speed=math.hypot(*velocity),
        velocity=velocity,
        turn=rows[YAW_RATE],
        height=rows[Z] - sim.world.ground(rows[X], rows[Y]),
        contacts=None if contacts is None else int(rows[contacts]),
        steering=rows[steering] if steering is not None else 0.0,
    )


def _links(sim: Simulation) -> tuple[LinkFrame, ...]:
    if sim.radio is None:
        return ()
    tick_ms = 1000.0 * sim.clock.dt
    return tuple(
        LinkFrame(
            sender=link.sender,
            receiver=link.receiver,
            sent=link.sent,
            delivered=link.delivered,
            lost=link.dropped + link.overflowed,
            latency_ms=tick_ms * link.latency_sum / link.delivered if link.delivered else 0.0,
            last_latency_ms=tick_ms * link.last_latency,
            queued=len(link.queue),
            rssi_dbm=link.rssi_dbm,
        )
        for link in sim.radio.links_to_tell_of()
    )
