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
from microsim.batch.kernels import STEP
from microsim.batch.robot_columns import RobotColumns
from microsim.engine.calls import BLOCK, BLOCK_ROWS, CALL, has_checked
from microsim.engine.compiled_tick import windows_table
from microsim.engine.delay_line import DelayLine
from microsim.engine.faults import TimedFault
from microsim.engine.geometry import Array
from microsim.engine.motion import FIELDS, SENSOR_FIELDS, observe
from microsim.engine.noise import stream_keys
from microsim.engine.random_layout import numbers_between
from microsim.engine.records import Records, address_of, rows_of
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world_arrays import WorldArray
from microsim.errors import UsageError
from microsim.outputs.sensor_context import sensor_context
from microsim.outputs.sensor_faults import sensor_faults
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
        self.owners: dict[str, KernelColumns] = {}  # robot -> the sensor whose memory others of its kind share


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
    owners: list[str]  # what each belongs to, for messages
    rows: Any  # `calls.CALL`, for world 0
    steps: Any  # `kernels.STEP`, to the next world
    has_checked: bool  # whether any kernel is a plug-in's

    def __post_init__(self) -> None:
        self.rows_at, self.steps_at = address_of(self.rows), address_of(self.steps)


class KernelColumns(SensorColumns):
    """A sensor with a kernel."""

    sensor: KernelSensor

    def prepare(self) -> None:
        sensor, context, n = self.sensor, self.context, self.n
        xp, array = self.loops.xp, self.loops.array
        kernel, tracker = sensor.kernel(context), sensor.tracker
        if kernel is None:
            raise UsageError(f"{self.target}: the model {self.robot.settings.model} has no joints")
        self.owner = (
            self.batch.owners.setdefault(self.robot.name, self) if tracker is not None and tracker.is_shared else self
        )
        numbers = np.array([*sensor.numbers(self.owner.context), 0.0], np.float64)
        self.settings: Array = array(np.tile(numbers, (n if self.spans else 1, 1)))
        self.memories: Array = xp.zeros((n, max(len(sensor.memory), 1)))
        table = np.zeros(1) if sensor.table is None else np.ascontiguousarray(sensor.table(context), np.float64)
        self.table: Array = array(table)
        # as many numbers as kernels may use: arrays of a GPU have one more, because they cannot be empty
        self.sizes = numbers.size - 1, len(sensor.memory), 0 if sensor.table is None else table.size
        self.reading_size = max(sensor.reading_size(context), 1)
        self.is_rounded = sensor.dtype == np.float32
        self._numbers: Array = xp.zeros((1 if self.is_rounded else n, self.reading_size))  # as kernels write them
        self.readings = self._numbers.reshape(-1, *sensor.reading_shape(context))
        if self.is_rounded:
            self.readings = xp.zeros((n, *sensor.reading_shape(context)), sensor.dtype)
        self.has_history = (bool(sensor.memory) and tracker is None) or bool(self.faults.silent)
        self.is_tracking = tracker is not None and tracker.applies(self.block) and self.owner is self
        self._make_calls(kernel)

    def _make_calls(self, kernel: Any) -> None:
        owner, jumps, silent = self.owner, self.faults.jumps, self.faults.silent
        array = self.loops.array
        self.window_count = len(jumps) + len(silent)
        self._windows = self.loops.table(windows_table([*jumps, *silent]))
        self.windows_at = address_of(self._windows)
        dropouts = len(jumps), self.window_count
        self.motion_size = self.robot.state.shape[0] if self.sensor.reads == "state" else SENSOR_FIELDS
        kernels, owners, self._kept = [kernel], [f"sensor {self.target}"], []
        sizes = owner.sizes[0], owner.sizes[1], self.sizes[2]
        calls = [self._call(kernel, owner.settings, owner.memories, sizes, (0, len(jumps)))]
        steps = [self._step(owner.settings, owner.memories, dropouts)]
        many = self._kernel_for_blocks()
        if many is not None:
            steps[0]["sample_many"] = self.loops.sample_many_function(many)
        for kind, effect, fault in self.faults.altering:
            span = array(np.array([[fault.first_tick, fault.end_tick, *fault.offset]], np.float64))
            room = self.loops.xp.zeros((self.n, self.reading_size))
            kernels.append(effect.alter)
            owners.append(f"the fault {kind.name} of {owners[0]}")
            calls.append(self._call(effect.alter, span, room, (span.shape[1], self.reading_size, self.sizes[2])))
            steps.append(self._step(span, room))
            self._kept += [span, room]
        self.calls = self._calls(kernels, owners, calls, steps)
        tracker = self.sensor.tracker
        if self.is_tracking and tracker is not None:
            call = self._call(tracker.kernel, self.settings, self.memories, sizes)
            step = self._step(self.settings, self.memories, is_tracker=1)
            self.track_calls = self._calls([tracker.kernel], owners[:1], [call], [step])

    def _calls(self, kernels: list[Any], owners: list[str], calls: list[Records], steps: list[Records]) -> Calls:
        rows, steps_to = np.concatenate(calls), np.concatenate(steps)
        functions = [*rows["function"].tolist(), *steps_to["sample_many"].tolist()]
        tables = self.loops.table(rows), self.loops.table(steps_to)
        return Calls(kernels, owners, *tables, has_checked(functions))

    def _call(
        self,
        kernel: Any,
        settings: Array,
        memories: Array,
        sizes: tuple[int, int, int],
        jumps: tuple[int, int] = (0, 0),
    ) -> Records:
        """Of world 0."""
        return rows_of(
            CALL,
            function=self.loops.sample_function(kernel),
            settings=(address_of(settings), sizes[0]),
            motion=(0, self.motion_size),
            memory=(address_of(memories), sizes[1]),
            scene=address_of(self.robot.ground.scene),
            table=(address_of(self.table), sizes[2]),
            reading=(address_of(self._numbers), self.reading_size),
            stride=self.robot.state.shape[1] if self.sensor.reads == "state" else 0,
            mount=self.context.mount.xyz,
            jumps=jumps,
        )

    def _step(
        self, settings: Array, memories: Array, dropouts: tuple[int, int] = (0, 0), is_tracker: int = 0
    ) -> Records:
        """To the next world."""
        return rows_of(
            STEP,
            settings=settings.strides[0] if len(settings) > 1 else 0,
            memory=memories.strides[0],
            reading=0 if self.is_rounded else self._numbers.strides[0],
            singles=address_of(self.readings) if self.is_rounded else 0,
            singles_step=self.readings.strides[0] if self.is_rounded else 0,
            keys=address_of(self.keys),
            sampled_at=address_of(self.sampled_at),
            dropped=address_of(self.dropped),
            dropouts=dropouts,
            is_tracker=is_tracker,
            reads_place=int(self.sensor.reads == "place"),
        )

    def _kernel_for_blocks(self) -> Kernel | None:
        """The kernel that reads many worlds at once, where no fault alters what they read; see `kernels.sense`."""
        sensor = self.sensor
        if self.faults or self.is_rounded or self.n < BLOCK:
            return None
        sizes = self.owner.settings.shape[1], self.owner.memories.shape[1], self.reading_size
        has_room = all(size <= rows for size, rows in zip(sizes, BLOCK_ROWS, strict=True))
        is_fit = sensor.reads == "place" and (self.robot.ground.is_shared or not sensor.many_share_map)
        return sensor.sample_many if has_room and is_fit else None

    def reset(self, worlds: Integers, seeds: Integers) -> None:
        super().reset(worlds, seeds)
        if self.spans:
            drawn = self.draw(seeds)
            settings = np.zeros((worlds.size, self.settings.shape[1]))
            for index in range(worlds.size):
                numbers = {key: float(values[index]) for key, values in drawn.items()}
                context = self.context.with_settings(self.settings_of(numbers))
                settings[index, :-1] = self.sensor.numbers(context)
            self.settings[worlds] = self.loops.array(settings)
        self.memories[worlds] = 0.0
        tracker = self.sensor.tracker
        if self.is_tracking and tracker is not None and tracker.begin is not None:
            seen = np.empty((worlds.size, FIELDS))
            observe(np.ascontiguousarray(self.loops.host(self.robot.state[:, worlds])), seen)
            begun = np.stack(np.broadcast_arrays(*tracker.begin(seen.T, self.block)), axis=1)
            self.memories[worlds] = self.loops.array(begun)

    def sample(self, worlds: Integers, tick: Integers) -> None:
        self.loops.sense(self, self.calls, worlds, tick)

    def track(self, worlds: Integers, tick: Integers) -> None:
        self.loops.sense(self, self.track_calls, worlds, tick)

    def kernels(self) -> set[Any]:
        return set(self.calls.kernels)

    def arrays(self) -> dict[str, WorldArray]:
        found = {**super().arrays(), "memory": WorldArray(self.memories)}
        return {**found, "settings": WorldArray(self.settings)} if self.spans else found


def why_not(target: str, block: Any, sensor: Sensor, has_others: bool) -> str:
    """Why a sensor cannot run in a batch; empty when it can."""
    return sensor.why_not_in_batch(block, has_others).format(target=target)
