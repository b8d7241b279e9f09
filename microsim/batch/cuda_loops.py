"""Worlds on a GPU: one thread each. Launches the loops of `cuda_kernels`, and keeps their compiled form on disk."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numba
import numba.core.config
import numpy as np
import numpy.typing as npt
from numba import cuda

from microsim.batch.batch_columns import Array, Integers
from microsim.batch.cuda_compiler import compiler_version, ptx_of
from microsim.batch.cuda_kernels import (
    firing_loop,
    keys_loop,
    layout_loop,
    move_loop,
    places_loop,
    quiet_loop,
    sense_loop,
    settle_loop,
    sincos_loop,
    start_loop,
    take_loop,
)
from microsim.batch.ptx_cache import kept_ptx
from microsim.engine import noise
from microsim.engine.calls import CALL
from microsim.engine.compiled import CACHE_FOLDER
from microsim.engine.kernel_key import key_of
from microsim.engine.multiples import Increment
from microsim.engine.records import Records, address_of
from microsim.engine.sensor_calls import STEP

if TYPE_CHECKING:
    from microsim.batch.batch_ground import Ground
    from microsim.batch.batch_simulation import BatchSimulation
    from microsim.batch.robot_columns import RobotColumns
    from microsim.batch.sensor_columns import Calls, KernelColumns
    from microsim.engine.components import RobotModel

IS_SIMULATED = bool(numba.core.config.ENABLE_CUDASIM)  # by numba, on the CPU, for tests
THREADS = 128  # per block
ROOM_BYTES = 1 << 27  # for numbers that become float32 in a reading: so many worlds at once as fit


class CudaLoops:
    """What `HostLoops` does, with arrays in a GPU's memory; in numba's CUDA simulator, with NumPy's."""

    name = "cuda"

    def __init__(self) -> None:
        if IS_SIMULATED:
            self.xp: Any = np
            return
        import cupy

        self.xp = cupy
        device = cupy.cuda.Device()
        self._capability = divmod(int(device.compute_capability), 10)

    def width_for(self, n: int) -> int:
        return n

    def array(self, values: npt.NDArray[Any]) -> Any:
        return values.copy() if IS_SIMULATED else self.xp.asarray(values)

    def table(self, records: Records) -> Any:
        # CuPy has no records; kernels are given the address alone
        return records.copy() if IS_SIMULATED else self.xp.asarray(np.ascontiguousarray(records).view(np.uint8))

    def host(self, array: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = array if isinstance(array, np.ndarray) else self.xp.asnumpy(array)
        return found

    def advance_functions(self, model: RobotModel) -> tuple[int, int]:
        return 0, 0  # functions are not called by address here

    def sample_function(self, kernel: Callable[..., None]) -> int:
        return 0

    def sample_many_function(self, kernel: Callable[..., None]) -> int:
        return 0

    def stream_keys(self, seeds: Integers, name: str) -> Integers:
        seeds = self.xp.ascontiguousarray(seeds)
        keys: Integers = self.xp.empty_like(seeds)
        self.launch(seeds.size, keys_loop, (), address_of(seeds), noise.stream_number(name), address_of(keys))
        return keys

    def take(self, robot: RobotColumns, begin: int, end: int) -> None:
        age = -1 if robot.model.age_row is None else robot.model.age_row
        self.launch(end, take_loop, (), address_of(robot.new_command), robot.fleet_at, age, address_of(robot.ignored))

    def move(self, batch: BatchSimulation, ticks: int, begin: int, end: int) -> None:
        robots = tuple(_shape_of(robot) for robot in batch.movers)
        contacts = batch.worlds.contacts
        arrays = [batch.worlds.table_at, contacts.address, address_of(batch.tick)]
        left = self.xp.empty(end, np.uint8)
        self.launch(end, quiet_loop, (robots,), *arrays, ticks, address_of(left))
        worlds: Integers = left.nonzero()[0]
        self.launch(worlds.size, move_loop, (robots, contacts.marks_size), address_of(worlds), *arrays, ticks)

    def put_at_start(self, robot: RobotColumns, worlds: Integers, keys: Integers) -> None:
        arrays = [robot.fleet_at, *(address_of(each) for each in (robot.start, keys, worlds))]
        self.launch(worlds.size, start_loop, (), *arrays)

    def settle(self, robot: RobotColumns, worlds: Integers) -> None:
        names = robot.model.row_names, robot.model.parameter_names
        shape = robot.state.shape[0], robot.parameters.shape[0]
        self.launch(worlds.size, settle_loop, (robot.model.settle, *names, *shape), robot.fleet_at, address_of(worlds))

    def lay_out(self, ground: Ground, worlds: Integers, keys: Integers) -> None:
        shapes = len(ground.table), len(ground.starts), *ground.clearances.shape[1:], int(ground.has_holes)
        arrays = ground.table, ground.starts, ground.chances, ground.scene, ground.lacking, ground.moved, keys, worlds
        self.launch(worlds.size, layout_loop, (), *shapes, *[address_of(each) for each in arrays])

    def free_places(self, ground: Ground, spans: Array, worlds: Integers, keys: Integers) -> Array:
        out: Array = self.xp.empty((worlds.size, 2))
        arrays = self.array(spans), ground.scene, worlds, keys, out
        self.launch(worlds.size, places_loop, (), *[address_of(each) for each in arrays])
        return out

    def last_firing(self, step: Increment, begin: Integers, ticks: int) -> Integers:
        offsets: Integers = self.xp.empty(begin.size, np.int64)
        self.launch(begin.size, firing_loop, (), *step, address_of(begin), ticks, address_of(offsets))
        return offsets

    def sense(self, sensor: KernelColumns, calls: Calls, worlds: Integers, tick: Integers) -> None:
        size = 8 * sensor.reading_size
        part = max(ROOM_BYTES // size, THREADS) if sensor.is_rounded else worlds.size
        room = self.xp.empty(min(part, worlds.size) * size if sensor.is_rounded else 0, np.uint8)
        constants = sensor.sensor.reads == "state", sensor.is_rounded
        for begin in range(0, worlds.size, max(part, 1)):
            some = worlds[begin : begin + part]
            for k, kernel in enumerate(calls.kernels):
                rows = calls.rows_at + k * CALL.itemsize, calls.steps_at + k * STEP.itemsize, calls.steps_at
                arrays = address_of(some), address_of(tick), address_of(room)
                self.launch(some.size, sense_loop, (kernel, *constants), *rows, sensor.robot.fleet_at, *arrays)

    def sincos(self, angles: Array, sines: Array, cosines: Array) -> None:
        self.launch(angles.size, sincos_loop, (), *[address_of(each) for each in (angles, sines, cosines)])

    def launch(self, count: int, make: Callable[..., Any], constants: tuple[Any, ...], *arguments: int) -> None:
        if count == 0:
            return
        grid, numbers = -(-count // THREADS), [np.int64(each) for each in (count, *arguments)]
        if IS_SIMULATED:
            cuda.jit(make(*constants))[1, count](*[int(each) for each in numbers])
        else:
            _function(make, constants, self._capability)((grid,), (THREADS,), numbers)


def _shape_of(robot: RobotColumns) -> tuple[Any, ...]:
    model, arrays = robot.model, (robot.state, robot.fleet.command, robot.parameters)
    return model.advance, (model.row_names, model.inputs, model.parameter_names), *[each.shape[0] for each in arrays]


@lru_cache(None)
def _function(make: Callable[..., Any], constants: tuple[Any, ...], capability: tuple[int, int]) -> Any:
    """The GPU's function, loaded. Its PTX is kept on disk, like kernels of the CPU."""
    import cupy

    loop = make(*constants)
    key = hashlib.sha256(repr((key_of(loop), capability, compiler_version())).encode()).hexdigest()[:32]
    file, entry = kept_ptx(CACHE_FOLDER, key, lambda: ptx_of(loop, len(inspect.signature(loop).parameters), capability))
    return cupy.RawModule(path=str(file)).get_function(entry)
