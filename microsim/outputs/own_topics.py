"""The simulator's own topics: clock, frames, status, world, radio metrics, facts about the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from microsim.engine.calls import sample_address
from microsim.engine.faults import RADIO
from microsim.engine.frames import exact_pose, identity
from microsim.engine.output_table import Call, Slot
from microsim.engine.pipeline import Periodic
from microsim.messages import Prepared, encoders, markers
from microsim.messages.status import HZ, Status
from microsim.messages.topics import Topic, table
from microsim.outputs.run_outputs import Run
from microsim.scenario.bundles import bundle_of


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
            offset, size = message.place(f"transforms[{index}].transform.translation.x")
            slots.append(Slot(offset, size, call.reading, 0, 7))
    run.compiled(tf, run.scenario.frames.tf_hz, message, calls, slots)
    if run.scenario.frames.publish_static_tf:
        run.once(static, encoders.static_transforms(run.mounts))


def _frame_call(run: Run, robot: str, which: str, default: Any) -> Call:
    found = run.poses.get(robot)
    if found is None:
        return Call(sample_address(default), np.zeros(1), run.seen(robot), np.zeros(7))
    sensor, context, memory = found
    kernel = getattr(sensor.frames, which)
    numbers = np.array([*sensor.numbers(context), 0.0], np.float64)
    return Call(sample_address(kernel), numbers, run.seen(robot), np.zeros(7), memory=memory)


def add_status(run: Run, topic: Topic) -> None:
    """`/sim/status`, where there is something to report."""
    scenario, physics = run.scenario, run.physics
    watched = {name: robot for name, robot in scenario.robots.items() if robot.is_watched}
    if not watched and scenario.world is None and not scenario.faults and scenario.chaos is None:
        return
    area = None if scenario.world is None else bundle_of(scenario.world).drivable
    sensors = tuple(f"{robot}/{name}" for robot, name, _, _ in scenario.all_sensors)
    hz = min(HZ, float(scenario.physics_hz))
    send, encode = run.sender(topic.name, topic.type, topic.qos), encoders.diagnostics
    run.rates[topic.name] = hz
    targets = dict.fromkeys(each.target for each in scenario.faults if each.target not in sensors)
    others = [each for each in targets if each != RADIO or scenario.chaos is not None]  # younger than some digests
    status = Status(physics, watched, area, sensors, run.health, run.trigger(hz), encode, send, tuple(others))
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
