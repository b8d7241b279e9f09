"""The small nodes: a hundred robots in one process at 1,000 updates a second, messages built, encoded and hashed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Result, cpu_seconds

ROBOTS, RATE_HZ = 100, 1000.0
TICKS = 250
COMMAND_EVERY = 50  # ticks: each robot is commanded 20 times a second


def measure() -> list[Result]:
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    return [*rovers(), *navigators()]


def rovers() -> list[Result]:
    from microsim.parts.ros2.transport.dds import DdsTransport
    from microsim.parts.small_nodes.rover_node import NODE_NAME, RoverCore, RoverSettings, SimRoverNode

    alone = RoverCore(RoverSettings(count=1, update_rate=RATE_HZ, publish_clock=True))
    many = RoverCore(RoverSettings(count=ROBOTS, update_rate=RATE_HZ, publish_clock=True))
    settings = (f"count:={ROBOTS}", f"update_rate:={RATE_HZ}", "publish_clock:=true")
    transport = DdsTransport(NODE_NAME, ["--ros-args", *(word for each in settings for word in ("-p", each))])
    node = SimRoverNode(transport)
    node.start()
    try:
        return [
            _result("sim_rover, 1 rover at 1,000 Hz", _core_steps(alone, 1)),
            _result(f"sim_rover, {ROBOTS} rovers at 1,000 Hz", _core_steps(many, ROBOTS)),
            _result(f"sim_rover, {ROBOTS} rovers at 1,000 Hz, with its publishers on DDS", _node_steps(node)),
        ]
    finally:
        transport.close()


def navigators() -> list[Result]:
    from microsim.parts.ros2.transport.dds import DdsTransport
    from microsim.parts.small_nodes.robot_maps import world_of_scenario
    from microsim.parts.small_nodes.robot_simulator_node import NAME, RobotSimulatorNode

    world = world_of_scenario("obstacles_arena")
    names = [f"r{robot}" for robot in range(ROBOTS)]
    settings = (f"robots:=[{', '.join(names)}]", f"cycle_hz:={RATE_HZ}", "publish_clock:=true")
    arguments = ["--ros-args", "--log-level", "warn", *(word for each in settings for word in ("-p", each))]
    transport = DdsTransport(NAME, arguments)
    node = RobotSimulatorNode(transport)
    node.start()
    _place(node.core)
    scanning = {"scan_hz": 10.0, "pose_noise_std_m": 0.01}
    try:
        return [
            _result("robot_simulator, 1 robot at 1,000 Hz", _core_steps(_navigators(1), 1)),
            _result(f"robot_simulator, {ROBOTS} robots at 1,000 Hz", _core_steps(_navigators(ROBOTS), ROBOTS)),
            _result(
                f"robot_simulator, {ROBOTS} robots at 1,000 Hz in a map, with scans at 10 Hz and noise",
                _core_steps(_navigators(ROBOTS, world, **scanning), ROBOTS),
            ),
            _result(f"robot_simulator, {ROBOTS} robots at 1,000 Hz, with its publishers on DDS", _node_steps(node)),
        ]
    finally:
        transport.close()


def _navigators(robots: int, world: Any = None, **settings: Any) -> Any:
    from microsim.parts.small_nodes.robot_simulator_node import RobotSimulator
    from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings

    names = tuple(f"r{robot}" for robot in range(robots))
    chosen = RobotSimulatorSettings(cycle_hz=RATE_HZ, robots=names, publish_clock=True, **settings)
    return _place(RobotSimulator(chosen, lambda level, text, kind: None, world))


def _place(core: Any) -> Any:
    from microsim.parts.small_nodes.robot_simulator_node import PlanarPose

    for robot in range(len(core.robots)):
        core.initial_pose(robot, PlanarPose(10.0 + 0.5 * robot, 12.0, 0.06 * robot))
    return core


def _result(name: str, steps: Callable[[], None]) -> Result:
    steps()
    return Result(name, TICKS / RATE_HZ / cpu_seconds(steps), "× real time", 1.0)


def _core_steps(core: Any, robots: int) -> Callable[[], None]:
    tick = 0

    def steps() -> None:
        nonlocal tick
        for _ in range(TICKS):
            for robot in range(tick % COMMAND_EVERY, robots, COMMAND_EVERY):
                core.command(robot, 1.0, 0.3)
            core.step()
            tick += 1

    return steps


def _node_steps(node: Any) -> Callable[[], None]:
    def steps() -> None:
        for _ in range(TICKS):
            node.transport.poll()
            node.step()

    return steps
