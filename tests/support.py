"""Small things that tests of the engine share."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np

import microsim
from microsim.engine.calls import sample_address
from microsim.engine.compiled_tick import Tables
from microsim.engine.components import FixedMount
from microsim.engine.geodesy import tangent_plane
from microsim.engine.motion import FIELDS
from microsim.engine.records import address_of
from microsim.engine.sensor_calls import Call
from microsim.engine.tick import track
from microsim.engine.timekeeper import Clock
from microsim.engine.world import World
from microsim.engine.worlds import OneWorld
from microsim.sensors.sensor import KernelSensor, SensorContext

T = TypeVar("T")

COMPILED = not numba.config.DISABLE_JIT  # `make coverage` runs kernels as plain Python, a hundred times slower


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a thread of its own: a browser in this process may keep the main thread's event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def many(count: int, least: int = 10) -> int:
    """How many samples or examples to take: as asked when compiled, a twentieth as plain Python."""
    return count if COMPILED else max(count // 20, least)


class SleepClock:
    """Wall time that passes only in sleep."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += max(seconds, 1e-4)


# tick, robot, speed: what is sent over a network, and expected to give the same bytes as in memory
STEPPED_MISSION = ((0, "rover", 1.0), (60, "rover", 0.5), (120, "drone", 2.0), (300, "rover", 0.0))
STEPPED_TICKS = 600


def stepped_mission_in_memory() -> dict[str, Counter[bytes]]:
    """By topic: the messages of `STEPPED_MISSION` in the default scenario."""
    sim = microsim.Simulation("default")
    messages = [*sim.step(0)]
    for tick in range(STEPPED_TICKS):
        for when, robot, speed in STEPPED_MISSION:
            if when == tick:
                sim.command(robot, **({"v": speed} if robot == "rover" else {"vx": speed}))
        messages += sim.step()
    found: dict[str, Counter[bytes]] = {}
    for message in messages:
        found.setdefault(message.topic, Counter())[message.cdr] += 1
    return found


def bare(**robot: Any) -> dict[str, Any]:
    """A robot's block with none of the sensors it would have by default."""
    return {"odom": None, "gps": None, "imu": None, "camera": None, "range": None, **robot}


def scenario(**changes: Any) -> dict[str, Any]:
    """A small flat world with nothing in it: 20 m × 20 m, robots must be named, no radio loss, no world topics."""
    return {
        "map": {"size_xy_cells": [20, 20]},
        "robots": {},
        "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
        **changes,
    }


def on_topic(messages: Sequence[Any], topic: str) -> list[Any]:
    return [message for message in messages if message.topic == topic]


def decoded(messages: Sequence[Any], topic: str) -> list[Any]:
    return [message.message for message in messages if message.topic == topic]


def stamp_ns(header: Any) -> int:
    return header.stamp.sec * 1_000_000_000 + header.stamp.nanosec


def simulate(scenario: Any, ticks: int, seed: int | None = None) -> Sequence[Any]:
    return microsim.Simulation(scenario, seed).step(ticks)


def ks_distance(samples: Any, cdf: Any) -> float:
    """Kolmogorov and Smirnov's statistic times sqrt(n): above 1.95 with probability 0.001, above 2.7 with 1e-6."""
    ordered = np.sort(np.asarray(samples))
    n = len(ordered)
    expected = cdf(ordered)
    above = np.max(np.arange(1, n + 1) / n - expected)
    below = np.max(expected - np.arange(n) / n)
    return float(np.sqrt(n) * max(above, below))


def flat_world(cells: int = 20) -> World:
    """Level ground with nothing on it, in cells of 1 m."""
    return World(1.0, np.zeros((cells, cells)), np.zeros((cells, cells), np.uint8), (), ())


class Probe:
    """The kernels of one sensor, called as the engine calls them, but with motions that the test makes up."""

    def __init__(
        self,
        sensor: KernelSensor,
        settings: Mapping[str, Any] | None = None,
        world: World | None = None,
        *,
        mount: FixedMount | None = None,
        key: int = 1,
        physics_hz: float = 60,
        origin_wgs84: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        assert sensor.settings is not None
        self.sensor, self.clock = sensor, Clock(physics_hz)
        self._worlds = OneWorld(world or flat_world(), self.clock.dt, (), tangent_plane(*origin_wgs84))
        self.context = SensorContext(
            robot="robot",
            sensor=sensor.name,
            settings=sensor.settings.model_validate(settings or {}),
            world=self._worlds.world,
            worlds=self._worlds,
            clock=self.clock,
            key=key,
            mount=mount or FixedMount(),
        )
        self.settings = np.array([*sensor.numbers(self.context), 0.0])
        self.memory = np.zeros(max(len(sensor.memory), 1))
        self.table = np.zeros(1) if sensor.table is None else sensor.table(self.context)

    def begin(self, motion: Sequence[float]) -> None:
        """Its memory as a run starts with it."""
        tracker = self.sensor.tracker
        begin = None if tracker is None else tracker.begin
        self.memory[:] = 0.0 if begin is None else begin(motion, self.context.settings)

    def sample(self, motion: Sequence[float], tick: int = 0) -> Any:
        """A reading."""
        return self.call(self.sensor.sample, motion, tick, self.sensor.reading_size(self.context))

    def call(self, kernel: Any, motion: Sequence[float], tick: int = 0, size: int = 7) -> Any:
        """What one of its kernels makes of a motion: `size` numbers, all of which it must write."""
        seen, reading = np.array(motion, np.float64), np.full(size, np.nan)
        assert seen.shape == (FIELDS,)
        call = Call(
            sample_address(kernel),
            self.settings,
            reading,
            address_of(seen),
            self.context.key,
            mount=np.array(self.context.mount.xyz, np.float64),
            memory=self.memory,
            table=self.table,
        )
        tables = Tables((), (call,), self._worlds.address, self._worlds.scene, self.clock)
        track(tables.address, tick)
        return reading
