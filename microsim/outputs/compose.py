"""A run put together: robots, sensors, the simulator's own topics and the radio become a schedule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import numpy as np

from microsim.documents.values import without_unset
from microsim.engine.bodies import Body
from microsim.engine.components import Airflow, RobotModel
from microsim.engine.faults import RADIO, Health, TimedFault, of_target
from microsim.engine.geodesy import tangent_plane
from microsim.engine.noise import stream_key
from microsim.engine.radio import RadioNetwork
from microsim.engine.schedule import Schedule
from microsim.engine.timekeeper import Clock
from microsim.engine.world import World
from microsim.engine.worlds import Fleet, OneWorld, put_at, settle_on_ground
from microsim.faults import FAULTS, OnRadio
from microsim.messages import encoders
from microsim.messages.outbox import Outbox
from microsim.messages.topics import Topic
from microsim.outputs import own_topics
from microsim.outputs.freed_memory import keep_freed_memory
from microsim.outputs.run_outputs import Run
from microsim.outputs.sensor_outputs import add_sensors
from microsim.plugin_errors import plugin_errors
from microsim.robots.robot import Robot
from microsim.scenario.live_changes import instances_of, obstacle_names
from microsim.scenario.models import Scenario
from microsim.scenario.scene import radio_settings
from microsim.version import __version__


def compose(
    scenario: Scenario,
    seed: int,
    world: World,
    clock: Clock,
    outbox: Outbox,
    shared: dict[Any, Any],
    health: Health,
    affected: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Schedule, Run]:
    """scenario: with everything that it leaves to the seed decided; affected: messages with faults so far, by topic."""
    keep_freed_memory()
    plane = tangent_plane(*scenario.map.origin_wgs84)
    bodies = {name: _body_of(name, robot) for name, robot in scenario.robots.items()}
    fleets = fleets_of(scenario, seed, world, clock)
    worlds = OneWorld(
        world,
        clock.dt,
        fleets,
        plane,
        bodies,
        stops_all=scenario.collisions == "stop",
        obstacles=obstacle_names(scenario),
    )
    run = Run(scenario, seed, world, clock, worlds, outbox, shared, health, affected)
    topics = own_topics.own_topics()
    own_topics.add_clock(run, topics["clock"])
    add_sensors(run)
    own_topics.add_frames(run, topics["tf"], topics["tf_static"])
    own_topics.add_status(run, topics["sim_status"])
    own_topics.add_world(run, topics["occupancy"], topics["markers"])
    radio = _radio(run, topics["radio_metrics"])
    run.once(topics["sim_info"], encoders.text(json.dumps(_info(run), sort_keys=True)))
    receivers = {robot: _receiver(outbox, robot, topics["radio_rx"]) for robot in scenario.robots}
    tables, python = run.finish()
    return Schedule(clock, worlds, radio, tables, python, receivers, health, outbox), run


def radio_network(scenario: Scenario, seed: int, faults: Iterable[TimedFault]) -> RadioNetwork | None:
    """None: the scenario has no radio, or only one robot."""
    robots = tuple(scenario.robots)
    if not scenario.radio.enabled or len(robots) < 2:
        return None
    radio = RadioNetwork(radio_settings(scenario), robots, float(scenario.physics_hz), seed)
    kinds = [(FAULTS.find(fault.kind, scenario.plugins), fault) for fault in of_target(faults, RADIO)]
    radio.blackouts = tuple(
        (fault.first_tick, fault.end_tick) for kind, fault in kinds if kind and isinstance(kind.effect, OnRadio)
    )
    return radio


def _radio(run: Run, topic: Topic) -> RadioNetwork | None:
    scenario = run.scenario
    radio = radio_network(scenario, run.seed, run.health.faults)
    if radio is not None and scenario.radio.metrics_hz:
        tick_ms = 1000.0 * run.clock.dt

        def message(tick: int, stamp: int) -> bytes:
            names = {f"radio: {link.sender} to {link.receiver}": link for link in radio.used_links()}
            return encoders.diagnostics(stamp, {n: (0, "ok", link.metrics(tick_ms)) for n, link in names.items()})

        own_topics.add_periodic(run, topic, scenario.radio.metrics_hz, message)
    return radio


def _receiver(outbox: Outbox, robot: str, topic: Topic) -> Callable[[int, bytes], None]:
    send = outbox.sender(topic.of(robot), topic.type, topic.qos)
    return lambda stamp_ns, payload: send(stamp_ns, encoders.radio_payload(payload))


def fleets_of(scenario: Scenario, seed: int, world: World, clock: Clock) -> list[Fleet]:
    """Robots of one model side by side, models in the order in which the scenario first names them."""
    by_model: dict[str, list[str]] = {}
    for name, robot in scenario.robots.items():
        by_model.setdefault(robot.engine_name, []).append(name)
    groups = [(scenario.robots[names[0]].engine_model, names) for names in by_model.values()]
    return [_fleet(scenario, seed, world, clock, *group) for group in groups]


def _fleet(scenario: Scenario, seed: int, world: World, clock: Clock, model: RobotModel, names: list[str]) -> Fleet:
    wind = scenario.wind
    air = Airflow(wind.world_xyz, wind.gust_sigma, wind.gust_tau_s)
    states = np.zeros((model.rows, len(names)))
    parameters = []
    for column, name in enumerate(names):
        robot = scenario.robots[name]
        pose = robot.start.map_pose
        put_at(model, states[:, column], world, pose.x, pose.y, pose.z or 0.0, pose.yaw)
        with plugin_errors(f"robot {name}", type(robot)):
            parameters.append(model.numbers(robot, air, clock.dt))
    keys = [stream_key(seed, f"{name}/air/gust") for name in names]
    columns = list(zip_longest(*parameters, fillvalue=0.0))  # paths of actors differ in length
    numbers = np.array(columns, np.float64).reshape(-1, len(names))
    fleet = Fleet(model, tuple(names), states, numbers, np.array(keys, np.int64))
    with plugin_errors(f"robot model {model.name}", type(scenario.robots[names[0]])):
        settle_on_ground(fleet, world)
    return fleet


def _body_of(name: str, robot: Robot) -> Body:
    with plugin_errors(f"robot {name}", type(robot)):
        return Body(*robot.body())


def _info(run: Run) -> Mapping[str, Any]:
    """What `/sim/info` reports."""
    scenario = run.scenario
    robots = {name: robot.model_dump(mode="json", by_alias=True) for name, robot in scenario.robots.items()}
    for block in robots.values():
        # digests without them are older than these keys
        without_unset(block, ("lidar", "convention", "render", "sees_robots"))
        if block.get("splats"):
            del block["splats"]["file"]  # a run is the same wherever the file lies; its hash stays
    blocks = [block for _, _, block, _ in scenario.all_sensors]
    instances = instances_of(scenario) if any(getattr(each, "has_instances", False) for each in blocks) else {}
    listed = [{"id": number, "name": name, "class": kind} for number, (name, kind) in instances.items()]
    return {
        **({"instances": listed} if listed else {}),
        "version": __version__,
        "scenario": scenario.name,
        "seed": run.seed,
        "physics_hz": scenario.physics_hz,
        "rates_hz": dict(run.rates),
        "robots": robots,
        "radio": scenario.radio.model_dump(mode="json"),
        "wind": scenario.wind.model_dump(mode="json"),
    }
