"""One sensor of the scenario in every world: when it is due, what it reads. The declarations do the rest.

A sensor with a kernel reads in compiled loops over worlds, on the batch's device. For one with an instrument see
`instrument_columns`, for plain cameras on a GPU `camera_columns`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.batch.batch_columns import Integers
from microsim.batch.robot_columns import RobotColumns
from microsim.engine.calls import BLOCK, BLOCK_ROWS, has_checked
from microsim.engine.delay_line import DelayLine
from microsim.engine.faults import TimedFault
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, observe
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.engine.records import Records, address_of
from microsim.engine.sensor_calls import Call, windows_of
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world_arrays import WorldArray
from microsim.outputs.sensors_in_worlds import Sensing, in_rows, sensor_context, sensor_faults
from microsim.scenario.models import Scenario
from microsim.scenario.randomised import value_stream, with_value
from microsim.sensors.sensor import Kernel, KernelSensor, Sensor

NEVER = -1  # tick of a reading that has not been made yet


class BatchContext:
    """What all sensors of a batch share with their worlds."""

    def __init__(
        self, scenario: Scenario, robots: dict[str, RobotColumns], clock: Clock, faults: Sequence[TimedFault]
    ) -> None:
        self.scenario, self.robots, self.clock, self.faults = scenario, robots, clock, faults
        self.owners: dict[tuple[str, str], Sensing] = {}


class SensorColumns(ABC):
    """What all forms share."""

    sensor: Sensor

    has_history = False  # a reading depends on the ones before it, so none may be left out

    def __init__(self, batch: BatchContext, robot: RobotColumns, name: str, block: Any, sensor: Sensor, n: int) -> None:
        self.batch, self.robot, self.name, self.block, self.sensor, self.n = batch, robot, name, block, sensor, n
        self.target, self.loops = f"{robot.name}/{name}", robot.loops
        scenario = batch.scenario
        self.trigger = Trigger(block.hz, scenario.physics_hz)
        world, clock = robot.ground.world, batch.clock
        self.context = sensor_context(scenario, robot.name, name, block, world, clock)
        self.faults = sensor_faults(batch.faults, self.target, scenario.plugins)
        path = ".".join(("robots", robot.name, *robot.settings.sensor_key(name)))
        values = scenario.randomize.values if scenario.randomize else {}
        self.spans = {key: span for key, span in values.items() if key.startswith(f"{path}.")}
        self._depth = path.count(".") + 1
        xp, width = self.loops.xp, self.loops.width_for(n)
        self.keys: Integers = xp.zeros(width, np.int64)
        self.sampled_at: Integers = xp.full(width, NEVER, np.int64)
        self.dropped: Integers = xp.zeros(width, np.int64)
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the arrays of this kind of sensor."""

    def settings_of(self, numbers: dict[str, float]) -> Any:
        """The block with what the seed has drawn."""
        block = self.block
        for key in self.spans:
            block = with_value(block, key.split(".")[self._depth :], numbers[key])
        return block

    def draw(self, seeds: Integers) -> dict[str, Array]:
        known = self.loops.host(seeds)
        return {
            key: numbers_between(stream_keys(known, value_stream(key)), *map(float, span))
            for key, span in self.spans.items()
        }

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        self.keys[worlds] = self.loops.stream_keys(seeds, f"{self.target}{self.sensor.stream}")
        self.sampled_at[worlds] = NEVER
        self.dropped[worlds] = 0

    @abstractmethod
    def sample(self, worlds: Integers, tick: Integers) -> None:
        """Read it in these worlds, at their ticks."""

    def arrays(self) -> dict[str, WorldArray]:
        """All that makes up its worlds, but for what is under way."""
        return {
            "keys": WorldArray(self.keys),
            "sampled_at": WorldArray(self.sampled_at),
            "dropped": WorldArray(self.dropped),
            "readings": WorldArray(self.readings),
        }

    readings: Any  # a row for each world
    line: DelayLine | None = None  # of readings that leave later

    def kernels(self) -> set[Any]:
        """What a GPU runs for it."""
        return set()

    def finish(self, worlds: Integers, tick: Integers) -> None:  # noqa: B027 - not every kind needs it
        """At the end of a call."""

    def loaded(self, worlds: Integers, seeds: Integers) -> None:  # noqa: B027 - nor this
        """The arrays of these worlds are those of a snapshot."""


@dataclass
class Calls:
    """Calls of kernels, one after the other, in each world."""

    kernels: list[Callable[..., None]]
    calls: list[Call]
    rows: Any  # `calls.CALL`, for world 0
    steps: Any  # `kernels.STEP`, to the next world
    has_checked: bool  # whether any kernel is a plug-in's

    def __post_init__(self) -> None:
        self.rows_at, self.steps_at = address_of(self.rows), address_of(self.steps)


class KernelColumns(SensorColumns):
    """A sensor with a kernel."""

    sensor: KernelSensor

    def prepare(self) -> None:
        sensor, n, loops = self.sensor, self.n, self.loops
        self.is_rounded = sensor.dtype == np.float32
        self.sensing = Sensing(
            sensor, self.context, self.faults, self.robot.state, self.batch.owners, n=n, memory=loops,
            has_own_settings=bool(self.spans), is_rounded=self.is_rounded,
        )  # fmt: skip
        shape = sensor.reading_shape(self.context)
        self.readings = loops.xp.zeros((n, *shape), np.float32) if self.is_rounded else self._numbers.reshape(n, *shape)
        self.has_history = self.sensing.needs_every_reading or bool(self.faults.silent)
        self.is_tracking = self.sensing.track is not None
        self._silent = windows_of(self.faults.silent, loops.table)
        many = self._kernel_for_blocks()
        first = {"dropouts": self._silent.span, "sample_many": 0 if many is None else loops.sample_many_function(many)}
        altering = [self._step(call) for call in self.sensing.altering]
        self.calls = self._calls(
            self.sensing.kernels, self.sensing.calls, [self._step(self.sensing.sample, **first), *altering]
        )
        if self.sensing.track is not None and sensor.tracker is not None:
            track = self.sensing.track
            self.track_calls = self._calls([sensor.tracker.kernel], [track], [self._step(track, is_tracker=1)])

    @property
    def _numbers(self) -> Array:
        """As kernels write them."""
        return self.sensing.readings

    @property
    def reading_size(self) -> int:
        return int(self._numbers.shape[1])

    def _calls(self, kernels: list[Any], calls: list[Call], steps: list[Records]) -> Calls:
        rows, steps_to = in_rows(calls, address_of(self.robot.ground.scene)), np.concatenate(steps)
        functions = [*rows["function"].tolist(), *steps_to["sample_many"].tolist()]
        tables = self.loops.table(rows), self.loops.table(steps_to)
        return Calls(kernels, calls, *tables, has_checked(functions))

    def _step(self, call: Call, **others: Any) -> Records:
        rounded = self.readings if self.is_rounded else None
        return call.step(
            singles=0 if rounded is None else address_of(rounded),
            singles_step=0 if rounded is None else rounded.strides[0],
            keys=address_of(self.keys),
            sampled_at=address_of(self.sampled_at),
            dropped=address_of(self.dropped),
            reads_place=int(self.sensor.reads == "place"),
            **others,
        )

    def _kernel_for_blocks(self) -> Kernel | None:
        """The kernel that reads many worlds at once, where no fault alters what they read; see `kernels.sense`."""
        sensor = self.sensor
        if self.faults or self.is_rounded or self.n < BLOCK:
            return None
        sample = self.sensing.sample
        sizes = sample.settings.shape[1], sample.memory.shape[1], self.reading_size
        has_room = all(size <= rows for size, rows in zip(sizes, BLOCK_ROWS, strict=True))
        is_fit = sensor.reads == "place" and (self.robot.ground.is_shared or not sensor.many_share_map)
        return sensor.sample_many if has_room and is_fit else None

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        if self.spans:
            drawn = self.draw(seeds)
            settings = np.zeros((worlds.size, self.sensing.settings.shape[1]))
            for index in range(worlds.size):
                numbers = {key: float(values[index]) for key, values in drawn.items()}
                context = self.context.with_settings(self.settings_of(numbers))
                settings[index, :-1] = self.sensor.numbers(context)
            self.sensing.settings[worlds] = self.loops.array(settings)
        tracker = self.sensor.tracker
        seen = np.empty((0 if tracker is None or tracker.begin is None else worlds.size, FIELDS))
        if seen.size:
            observe(np.ascontiguousarray(self.loops.host(self.robot.state[:, worlds])), seen)
        self.sensing.begin(worlds, seen, self.loops.array)

    def sample(self, worlds: Integers, tick: Integers) -> None:
        self.loops.sense(self, self.calls, worlds, tick)

    def track(self, worlds: Integers, tick: Integers) -> None:
        self.loops.sense(self, self.track_calls, worlds, tick)

    def kernels(self) -> set[Any]:
        return self.sensing.kinds()

    def arrays(self) -> dict[str, WorldArray]:
        found = {**super().arrays(), **self.sensing.arrays()}
        return {**found, "settings": WorldArray(self.sensing.settings)} if self.spans else found


def why_not(target: str, block: Any, sensor: Sensor, has_others: bool) -> str:
    """Why a sensor cannot run in a batch; empty when it can."""
    return sensor.why_not_in_batch(block, has_others).format(target=target)
