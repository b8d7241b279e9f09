"""Worlds on the CPU: compiled loops over them. `cuda_loops.CudaLoops` has the same methods for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from microsim.batch import kernels
from microsim.batch.batch_columns import Array, Integers
from microsim.engine.calls import CALL, raise_broken, sample_many_address
from microsim.engine.multiples import Increment
from microsim.engine.noise import stream_keys
from microsim.engine.records import address_of
from microsim.engine.robot_loops import advance_address, advance_many_address, settle_address
from microsim.engine.world_arrays import Here
from microsim.plugin_errors import plugin_errors

if TYPE_CHECKING:
    from microsim.batch.batch_ground import Ground
    from microsim.batch.batch_simulation import BatchSimulation
    from microsim.batch.robot_columns import RobotColumns
    from microsim.batch.sensor_columns import Calls, KernelColumns
    from microsim.engine.components import RobotModel


class HostLoops(Here):
    name = "cpu"

    def width_for(self, n: int) -> int:
        """Columns to allocate: an odd number of cache lines, so that rows of a column do not crowd one cache set."""
        return 8 * (-(-n // 8) | 1)

    def host(self, array: Any) -> npt.NDArray[Any]:
        """The array in the memory of the CPU."""
        return array

    def stream_keys(self, seeds: Integers, name: str) -> Integers:
        return stream_keys(seeds, name)

    def advance_functions(self, model: RobotModel) -> tuple[int, int]:
        """For a few worlds, and for many (0: none)."""
        return advance_address(model), advance_many_address(model)

    def sample_many_function(self, kernel: Callable[..., None]) -> int:
        return sample_many_address(kernel)

    def take(self, robot: RobotColumns, begin: int, end: int) -> None:
        """Apply the commands that were sent."""
        age = -1 if robot.model.age_row is None else robot.model.age_row
        kernels.take_commands(robot.new_command, robot.fleet.command, robot.state, age, robot.ignored, begin, end)

    def move(self, batch: BatchSimulation, ticks: int, begin: int, end: int) -> None:
        """All robots of these worlds, and what they touch."""
        needs_tick = [robot.needs_tick for robot in batch.movers]
        worlds = batch.worlds
        if needs_tick != batch.needs_tick:
            worlds.table["needs_tick"] = batch.needs_tick = needs_tick
        made = worlds.table.copy() if worlds.has_checked else None
        kernels.move(
            worlds.table_at, len(needs_tick), 0 if made is None else address_of(made), batch.ground.is_shared,
            worlds.contacts.address, worlds.contacts.marks_size, batch.tick, ticks, begin, end,
        )  # fmt: skip
        if made is not None:
            with plugin_errors():
                raise_broken(made, lambda row: f"robot model {batch.movers[row].model.name}")

    def put_at_start(self, robot: RobotColumns, worlds: Integers, keys: Integers) -> None:
        kernels.put_all_at_start(robot.state, address_of(robot.start), address_of(robot.ground.scene), keys, worlds)

    def settle(self, robot: RobotColumns, worlds: Integers) -> None:
        """Lay robots that were put somewhere onto the slope there."""
        row = robot.fleet.row.copy()
        with plugin_errors(f"robot {robot.name}", type(robot.settings)):
            kernels.settle_all(settle_address(robot.model), address_of(row), worlds)
            raise_broken(row, lambda _: f"robot model {robot.model.name} in world {row['world'][0]}")

    def lay_out(self, ground: Ground, worlds: Integers, keys: Integers) -> None:
        scene, tables = address_of(ground.scene), (ground.table, ground.starts, ground.chances)
        kernels.lay_all_out(*tables, scene, ground.lacking, ground.moved, ground.has_holes, keys, worlds)

    def free_places(self, ground: Ground, spans: Array, worlds: Integers, keys: Integers) -> Array:
        out = np.empty((worlds.size, 2))
        kernels.free_places(spans, address_of(ground.scene), keys, worlds, out)
        return out

    def last_firing(self, step: Increment, begin: Integers, ticks: int) -> Integers:
        """For each world, how many ticks after `begin` a trigger last fires within `ticks`; 0 where it does not."""
        offsets = np.empty(begin.size, np.int64)
        kernels.last_firing(*step, begin, ticks, offsets)
        return offsets

    def sense(self, sensor: KernelColumns, calls: Calls, worlds: Integers, tick: Integers) -> None:
        tables = calls.rows_at, calls.steps_at, len(calls.kernels)
        if not calls.has_checked:
            kernels.sense(*tables, sensor.robot.fleet_at, worlds, tick, 0)
            return
        size = len(calls.kernels) * CALL.itemsize // 8
        made = np.zeros(size + calls.calls[0].size + sensor.reading_size)
        kernels.sense(*tables, sensor.robot.fleet_at, worlds, tick, address_of(made))
        rows = made[:size].view(CALL)
        with plugin_errors():
            raise_broken(rows, lambda row: f"{calls.calls[row].owner} in world {rows[row].world}")

    def sincos(self, angles: Array, sines: Array, cosines: Array) -> None:
        kernels.sincos_each(angles, sines, cosines)
