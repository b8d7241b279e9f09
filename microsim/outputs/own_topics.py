"""The simulator's own topics: clock, frames, status, world, radio metrics, information about the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from microsim.engine.calls import sample_address
from microsim.engine.compiled_tick import Slot
from microsim.engine.components import CONTACTS, TOUCHING
from microsim.engine.drivable import OFFROAD, DrivableArea
from microsim.engine.faults import RADIO, Health, of_target
from microsim.engine.frames import exact_pose, identity
from microsim.engine.pipeline import Periodic
from microsim.engine.sensor_calls import Call
from microsim.engine.timekeeper import Trigger
from microsim.engine.worlds import OneWorld
from microsim.messages import Prepared, encoders, markers
from microsim.messages.topics import Topic, table
from microsim.outputs.run_outputs import Run
from microsim.robots.robot import Robot
from microsim.scenario.bundles import bundle_of

STATUS_HZ = 10.0
OK, WARN, ERROR = 0, 1, 2  # levels of diagnostic_msgs/DiagnosticStatus
Entry: TypeAlias = tuple[int, str, dict[str, str]]  # level, message, values


def own_topics() -> dict[str, Topic]:
    return {topic.kind: topic for topic in table()}


def add_clock(run: Run, topic: Topic) -> None:
    run.compiled(topic, run.scenario.physics_hz, encoders.clock_message())


def add_frames(run: Run, tf: Topic, static: Topic) -> None:
    """`/tf` at its rate: map -> odom -> base_link; `/tf_static` once: base_link -> sensors."""
    robots, each_has_odom = list(run.scenario.robots), run.scenario.frames.per_robot_odom
    odom = {robot: run.odom_frame(robot) for robot in robots}
    pairs = [("map", frame) for frame in dict.fromkeys(odom.values() if each_has_odom else ["odom"])]
    pairs += [(odom[robot], run.scenario.robots[robot].frame(robot, "base_link")) for robot in robots]
    roots = [_frame_call(run, robot, "map_to_odom", identity) for robot in robots] if each_has_odom else []
    calls = [*roots, *(_frame_call(run, robot, "odom_to_base", exact_pose) for robot in robots)]
    first = len(pairs) - len(calls)  # the one shared odom frame lies where the map does
    run.frames = [(*pair, calls[k - first] if k >= first else None) for k, pair in enumerate(pairs)]
    settings = run.scenario.frames
    switches = {True: settings.publish_map_to_odom, False: settings.publish_odom_to_base}
    sent = [frame for frame in run.frames if switches[frame[0] == "map"]]
    message = Prepared(tf.type, encoders.transforms_message([(parent, child) for parent, child, _ in sent]))
    slots = []
    for index, (_, _, call) in enumerate(sent):
        if call is not None:
            offset, size = message.place(f"transforms[{index}].transform.translation.x", 7)
            slots.append(Slot(offset, size, call.reading, 0, 7))
    run.compiled(tf, run.scenario.frames.tf_hz, message, calls, slots)
    if run.scenario.frames.publish_static_tf:
        run.once(static, encoders.static_transforms(run.mounts))


def _frame_call(run: Run, robot: str, which: str, default: Any) -> Call:
    found = run.poses.get(robot)
    if found is None:
        return Call(sample_address(default), np.zeros(1), np.zeros(7), run.seen(robot))
    assert found.sensor.tracker is not None
    kernel = getattr(found.sensor.tracker.frames, which)
    return Call(sample_address(kernel), found.settings, np.zeros(7), run.seen(robot), memory=found.memories)


def add_status(run: Run, topic: Topic) -> None:
    """`/sim/status`, where there is something to report."""
    scenario = run.scenario
    watched = {name: robot for name, robot in scenario.robots.items() if robot.is_watched}
    if not watched and scenario.world is None and not scenario.faults and scenario.chaos is None:
        return
    area = None if scenario.world is None else bundle_of(scenario.world).drivable
    sensors = tuple(f"{robot}/{name}" for robot, name, _, _ in scenario.all_sensors)
    hz = min(STATUS_HZ, float(scenario.physics_hz))
    send, encode = run.sender(topic.name, topic.type, topic.qos), encoders.diagnostics
    run.rates[topic.name] = hz
    targets = dict.fromkeys(each.target for each in scenario.faults if each.target not in sensors)
    others = [each for each in targets if each != RADIO or scenario.chaos is not None]  # younger than some digests
    status = Status(run.worlds, watched, area, sensors, run.health, run.trigger(hz), encode, send, tuple(others))
    status.affected = run.affected
    run.add(topic.position, topic.name, status)


def add_world(run: Run, occupancy: Topic, shown: Topic) -> None:
    settings = run.scenario.world_topics
    if settings.occupancy_hz:
        run.compiled(occupancy, settings.occupancy_hz, markers.occupancy_message(run.world, settings.occupancy_hollow))
    if settings.markers_hz:
        robots = {robot.frame(name, "base_link"): robot for name, robot in run.scenario.robots.items()}
        run.compiled(shown, settings.markers_hz, markers.prepared_markers(run.world, robots))


def add_periodic(run: Run, topic: Topic, hz: float, encode: Callable[[int, int], bytes | None]) -> None:
    """`encode(tick, stamp_ns)` at a rate, in Python."""
    run.rates[topic.name] = hz
    send = run.sender(topic.name, topic.type, topic.qos)
    run.add(topic.position, topic.name, Periodic(run.trigger(hz), encode, send))


@dataclass
class Status:
    """Whether cars are on the road, what state they are in, what robots touch, and how sensors are.

    It looks every tick, and sends at its rate and whenever something has changed.
    """

    worlds: OneWorld
    robots: Mapping[str, Robot]  # those whose state is reported
    area: DrivableArea | None  # None: the world does not say where one may drive
    sensors: tuple[str, ...]  # robot/sensor
    health: Health
    trigger: Trigger
    encode: Callable[[int, Mapping[str, Entry]], bytes]
    send: Callable[[int, bytes], None]
    others: tuple[str, ...] = ()  # targets of faults that are not sensors: topics, the radio, nodes
    affected: Mapping[str, int] = field(default_factory=dict)  # messages with faults so far, by topic
    due: float = 0
    next_regular: int = 0
    last_sent: Any = field(default=None)  # what the last message said, without its counts

    def fire(self, tick: int, stamp_ns: int) -> None:
        entries = self.entries(tick)
        watched = ("is_offroad", "polygon", "blocked", "touching")
        shown = [(name, level, message, *map(values.get, watched))
                for name, (level, message, values) in entries.items()]  # fmt: skip
        if tick >= self.next_regular or shown != self.last_sent:
            self.send(stamp_ns, self.encode(stamp_ns, entries))
            self.last_sent = shown
            if tick >= self.next_regular:
                self.next_regular = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def entries(self, tick: int) -> dict[str, Entry]:
        """By name: each robot that is watched, or the run where there is none, other robots, each sensor with faults.

        A sensor without any has no entry: adding one changes no other topic.
        """
        sensors = {name: self._sensor(name, tick) for name in self.sensors if self.health.concerns(name)}
        is_degraded = any(level != OK for level, _, _ in sensors.values())
        found: dict[str, Entry] = {name: self._robot(name, is_degraded) for name in self.robots}
        if not found:
            state = "degraded" if is_degraded else "running"
            found["run"] = (WARN if is_degraded else OK, state, {"state": state, **self._counts()})
        others = [name for name in self.worlds.contacts.names if name not in self.robots]
        faults = {name: self._other(name, tick) for name in self.others}
        return found | {name: self._other_robot(name) for name in others} | sensors | faults

    def _other(self, target: str, tick: int) -> Entry:
        kinds = [
            fault.kind for fault in of_target(self.health.faults, target) if fault.first_tick <= tick < fault.end_tick
        ]
        values = {"faults": ", ".join(kinds)}
        if target.startswith("/"):
            values["affected_messages"] = str(self.affected.get(target, 0))
        return (WARN, ", ".join(kinds), values) if kinds else (OK, "ok", values)

    def _other_robot(self, name: str) -> Entry:
        values = self._contacts(name)
        return (WARN, "in contact", values) if values["touching"] else (OK, "running", values)

    def _contacts(self, name: str) -> dict[str, str]:
        fleet, column = self.worlds.home[name]
        touched = self.worlds.touching(name) if fleet.state[TOUCHING, column] else ()
        return {"contacts": str(int(fleet.state[CONTACTS, column])), "touching": ", ".join(touched)}

    def _counts(self) -> dict[str, str]:
        degraded, dropped = sum(self.health.degraded.values()), sum(self.health.dropped.values())
        return {"degraded_frames": str(degraded), "dropped_frames": str(dropped)}

    def _sensor(self, name: str, tick: int) -> Entry:
        state = self.health.state(name, tick)
        counts = {"degraded_frames": self.health.degraded[name], "dropped_frames": self.health.dropped[name]}
        values = {"health": state, **{key: str(count) for key, count in counts.items()}}
        return OK if state == "ok" else WARN, state, values

    def _robot(self, name: str, is_degraded: bool) -> Entry:
        fleet, column = self.worlds.home[name]
        report = self.robots[name].report(fleet.state[:, column])
        state = report.emergency or ("degraded" if is_degraded else "running")
        road = self._road(name)
        values = {"state": state, **road, **report.values, **self._contacts(name), **self._counts()}
        is_unusual = is_degraded or road["is_offroad"] == "true" or values["touching"] != ""
        level = ERROR if report.emergency else WARN if is_unusual else OK
        return level, state, values

    def _road(self, name: str) -> dict[str, str]:
        if self.area is None:
            return {"is_offroad": "unknown", "polygon": "", "priority": "", "points_offroad": ""}
        x, y = self.robots[name].ground_points(self.worlds.motions[name])
        polygon, outside = self.area.footprint(x, y)
        priority = "" if polygon == OFFROAD else f"{self.area.priority[polygon]:g}"
        return {
            "is_offroad": str(outside > 0).lower(),
            "polygon": "" if polygon == OFFROAD else str(polygon),
            "priority": priority,
            "points_offroad": str(outside),  # of the reference point and the four wheels
        }

    def save(self) -> Any:
        return self.last_sent, self.health.save()

    def load(self, saved: Any, tick: int) -> None:
        if saved is not None:
            last_sent, health = saved
            self.last_sent = [tuple(entry) for entry in last_sent] if last_sent is not None else None
            self.health.load(health)
        self.next_regular = self.trigger.next_tick(tick + 1)
        self.due = tick + 1
