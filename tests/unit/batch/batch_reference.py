"""The single `Simulation`s that a batch must equal, and how to compare them."""

from typing import Any

import numpy as np

import microsim
from microsim.batch import BatchSimulation
from microsim.robots.robot import sensor_of
from microsim.sensors.sensor import KernelSensor, Sensor


class Singles:
    """One `Simulation` for each seed, driven like a batch."""

    def __init__(self, scenario: Any, seeds: Any) -> None:
        self.sims = [microsim.Simulation(scenario, int(seed)) for seed in seeds]
        self.last: list[dict[str, Any]] = [{} for _ in self.sims]
        self.step(0)

    def step(self, ticks: int) -> None:
        for sim, last in zip(self.sims, self.last, strict=True):
            last.update({message.topic: message for message in sim.step(ticks)})

    def command(self, robot: str, commands: Any) -> None:
        for column, sim in enumerate(self.sims):
            sim.command(robot, **dict(zip(sim.model(robot).inputs, commands[:, column].tolist(), strict=True)))

    def reset(self, worlds: Any, seeds: Any = None) -> None:
        for index, world in enumerate(worlds):
            self.sims[world].reset(None if seeds is None else int(seeds[index]))
            self.last[world] = {message.topic: message for message in self.sims[world].step(0)}


def reading(message: Any, sensor: Sensor) -> Any:
    """The numbers of a message, in the order of a batch's reading."""
    if sensor.name == "camera":
        return message.data.reshape(message.height, message.width, 3)
    if sensor.name == "lidar":
        return message.data.reshape(-1, message.point_step)
    if sensor.name == "detections":
        boxes = [
            (each.bbox.center.position, each.bbox.center.orientation, each.bbox.size) for each in message.detections
        ]
        numbers = [[p.x, p.y, p.z, q.x, q.y, q.z, q.w, s.x, s.y, s.z] for p, q, s in boxes]
        return np.array(numbers).reshape(-1, 10)
    form = sensor.messages[0]  # of a sensor with a kernel: the declaration says where the numbers are
    assert not callable(form.slots)
    path_of = {name: path for path, name in reversed(form.slots.items())}
    numbers = [at(message, path_of[name]) for name in sensor.reading if name in path_of or len(sensor.messages) == 1]
    return np.concatenate(numbers) if sensor.size is not None else np.array(numbers)


def at(message: Any, path: str) -> Any:
    """What is at a path such as `pose.covariance[35]`."""
    for part in path.split("."):
        name, _, index = part.rstrip("]").partition("[")
        message = getattr(message, name)
        message = message[int(index)] if index else message
    return message


def assert_equal(batch: BatchSimulation, singles: Singles) -> None:
    for world, sim in enumerate(singles.sims):
        assert sim.tick == batch.tick[world]
        for robot in batch.robots:
            np.testing.assert_array_equal(batch.rows(robot)[:, world], sim.rows(robot), f"{robot} of world {world}")
            assert batch.touching(robot, world) == sim.touching(robot)
            assert batch.last_contact(robot, world) == sim.last_contact(robot)
        for name in batch.sensors:
            _assert_reading(batch, singles, world, name)


def _assert_reading(batch: BatchSimulation, singles: Singles, world: int, name: str) -> None:
    robot, sensor = name.split("/")
    block = batch.scenario.robots[robot].all_sensors()[sensor]
    declared = sensor_of(block, sensor, batch.scenario.plugins)
    message = singles.last[world].get(declared.topic(declared.messages[0], robot, sensor))
    if message is None:
        assert batch.sampled_at[name][world] == -1
        return
    assert singles.sims[world].clock.time_ns(int(batch.sampled_at[name][world])) == message.stamp_ns
    ours, theirs = batch.readings[name][world], reading(message.message, declared)
    if declared.name == "lidar":
        points = ours.view(np.uint8).reshape(len(ours), -1)
        assert not points[len(theirs) :].any()
        ours = points[: len(theirs)]
    if declared.name == "range":  # a float32 in its message
        ours, theirs = np.float32(ours), theirs.reshape(())
    if len(declared.messages) > 1 and isinstance(declared, KernelSensor):  # the rest is in its other messages
        ours = ours[: len(theirs)]
    np.testing.assert_array_equal(ours, theirs, f"{name} of world {world}")
