"""Who moves robots: the loops over columns, ticks and SIMD blocks, around what a model does in one tick of one robot.

An entry below is compiled for each model, with the model's kernels and the names of its numbers. It is called by the
address of a `FLEET` row: by `tick.move` in a single world, and by `batch.kernels` in many. GPUs have loops of their own
(`batch.cuda_kernels`) around the same kernels.
"""

import math
from functools import cache
from typing import Any

import numpy as np

from microsim.engine import calls as _calls
from microsim.engine import records as _records
from microsim.engine.calls import entry_address, kept_address, plain_record_at
from microsim.engine.columns import Column, column_at
from microsim.engine.compiled import inlined
from microsim.engine.components import COMMON, RobotModel, state_at, trace_at
from microsim.engine.geometry import Array, ground_height
from microsim.engine.records import ADDRESS, GRID, record, record_at

# A call that moves robots of one model, one per column of `state`: those from `begin` to `end`.
FLEET = record(
    function=ADDRESS,  # compiled, and called with the address of this row
    is_broken=int,  # as of `calls.CALL`
    state=GRID,
    command=GRID,
    parameters=GRID,  # with one column where all robots have the same
    keys=ADDRESS,
    scene=ADDRESS,
    motions=ADDRESS,  # what `motion.observe` writes, a row each
    needs_tick=int,  # whether the number of the tick matters to any of them
    begin=int,
    end=int,
    world=int,
    tick=int,
    ticks=int,
    many=ADDRESS,  # the function for many columns; 0: none
    traces=GRID,  # what that notes: `components.TRACE`
)
_copy, _address = _calls.copy, _calls.table_address
fleet_at = record_at(FLEET)
_state_at, _trace_at = state_at, trace_at
scene_at, integers_at, floats_at, float_grid_in = (
    _calls.scene_at, _calls.integers_at, _calls.floats_at, _records.float_grid_in,
)  # fmt: skip

room = _calls.room

BLOCK = 64  # columns that are moved side by side: they stay in the processor's first cache
UPRIGHT = COMMON.index("roll")  # rows before it can change of robots that never lean
_COMMON = len(COMMON)


# ---- a model ---------------------------------------------------------------------------------------------------------

# These stand for what is a model's own in the entries below.
robot_at: Any = None  # views of columns
command_at: Any = None
parameters_at: Any = None
kernel_called: Any = None  # `advance`, or `settle`
go: Any = None  # see `SideBySide`
stand: Any = None
is_clear: Any = None
drift: Any = None
row_count = input_count = parameter_count = kept_count = 0


def _advance_entry(address: int) -> None:
    fleet = fleet_at(address)
    states, commands = float_grid_in(fleet.state), float_grid_in(fleet.command)
    numbers = float_grid_in(fleet.parameters)
    keys, scene = integers_at(fleet.keys, fleet.end), scene_at(fleet.scene, fleet.world, floats_at(fleet.scene, 0))
    for i in range(fleet.begin, fleet.end):
        robot, command = robot_at(states, i), command_at(commands, i)
        parameters = parameters_at(numbers, 0 if fleet.parameters.columns == 1 else i)
        for tick in range(fleet.tick, fleet.tick + fleet.ticks):
            kernel_called(robot, command, parameters, keys[i], scene, tick)


def _settle_entry(address: int) -> None:
    fleet = fleet_at(address)
    states, numbers = float_grid_in(fleet.state), float_grid_in(fleet.parameters)
    scene = scene_at(fleet.scene, fleet.world, floats_at(fleet.scene, 0))
    for i in range(fleet.begin, fleet.end):
        kernel_called(robot_at(states, i), parameters_at(numbers, 0 if fleet.parameters.columns == 1 else i), scene)


def _advance_many_entry(address: int) -> None:
    """As `_advance_entry`, block by block in SIMD; notes how far each robot ever was from where it began.

    Those that something might be in the way of go one by one. What a tick overwrites is not computed before the last
    one. The size of a block is known when this is compiled: the compiler sees that its rows do not overlap.
    """
    fleet = fleet_at(address)
    state, commands = float_grid_in(fleet.state), float_grid_in(fleet.command)
    numbers = float_grid_in(fleet.parameters)
    keys, scene = integers_at(fleet.keys, fleet.end), scene_at(fleet.scene, fleet.world, floats_at(fleet.scene, 0))
    elevation, dt, ticks, traces = scene.elevation, scene.dt, fleet.ticks, float_grid_in(fleet.traces)
    s, c, p = np.empty((row_count, BLOCK)), np.empty((input_count, BLOCK)), np.empty((parameter_count, BLOCK))
    t, before, ground, clear = np.empty((4, BLOCK)), np.empty((3, BLOCK)), np.empty(BLOCK), room(BLOCK)
    ground[:] = elevation[0, 0]  # all there is of a level map
    for begin in range(fleet.begin, fleet.end, BLOCK):
        count, first = min(BLOCK, fleet.end - begin), begin - fleet.begin
        take(s, state, begin, count, 0, UPRIGHT)  # it never leans: rows from there on to the model's own stay 0
        take(s, state, begin, count, _COMMON, row_count)
        take(c, commands, begin, count, 0, input_count)
        take(t, traces, first, count, 0, 4)
        if first == 0 or fleet.parameters.columns != 1:  # else all robots have the same
            for row in range(parameter_count):
                for i in range(count):
                    p[row, i] = numbers[row, 0 if fleet.parameters.columns == 1 else begin + i]
        for i in range(count):
            may_go = is_clear(robot_at(s, i), command_at(c, i), parameters_at(p, i), scene, ticks)
            clear[i] = 1.0 if may_go else 0.0
        for left in range(ticks - 1, -1, -1):
            if fleet.needs_tick:
                for i in range(count):
                    drift(robot_at(s, i), parameters_at(p, i), keys[begin + i], fleet.tick + ticks - 1 - left)
            if left == 0:
                for i in range(count):
                    robot = _state_at(s, i)
                    before[0, i], before[1, i], before[2, i] = robot.velocity_x, robot.velocity_y, robot.velocity_z
            for i in range(count):
                go(robot_at(s, i), command_at(c, i), parameters_at(p, i), dt)
            if elevation.size > 1:
                for i in range(count):
                    robot = _state_at(s, i)
                    ground[i] = ground_height(elevation, scene.cell, robot.x - scene.west, robot.y - scene.south)
            for i in range(count):
                stand(robot_at(s, i), command_at(c, i), parameters_at(p, i), ground[i], dt)
                note_distance(_state_at(s, i), _trace_at(t, i))
        for i in range(count):
            accelerate(_state_at(s, i), before[0, i], before[1, i], before[2, i], dt)
        for i in range(count):
            if clear[i] == 0.0:
                robot, command = robot_at(state, begin + i), command_at(commands, begin + i)
                parameters = parameters_at(p, i)
                for tick in range(fleet.tick, fleet.tick + ticks):
                    kernel_called(robot, command, parameters, keys[begin + i], scene, tick)
                    note_distance(_state_at(state, begin + i), _trace_at(t, i))
                for row in range(row_count):
                    s[row, i] = state[row, begin + i]
        put_back(s, state, begin, count, 0, UPRIGHT)
        put_back(s, state, begin, count, _COMMON, row_count if fleet.needs_tick else kept_count)
        put_back(t, traces, first, count, 3, 4)


@inlined
def take(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    """Rows first … end - 1: block[:, :count] = columns[:, begin : begin + count], where a row is contiguous."""
    for row in range(first, end):
        _copy(_address(block[row]), _address(columns[row, begin:]), 8 * count)


@inlined
def put_back(block: Array, columns: Array, begin: int, count: int, first: int, end: int) -> None:
    for row in range(first, end):
        _copy(_address(columns[row, begin:]), _address(block[row]), 8 * count)


@inlined
def note_distance(robot: Column, trace: Column) -> None:
    """The greatest square of a robot's distance from where it began; NaN counts as infinite."""
    x, y, z = robot.x - trace.x, robot.y - trace.y, robot.z - trace.z
    square = x * x + y * y + z * z
    trace.farthest = trace.farthest if square <= trace.farthest else square if square == square else math.inf


@inlined
def accelerate(robot: Column, x: float, y: float, z: float, dt: float) -> None:
    """x, y, z [m/s]: the velocity before the tick."""
    robot.acceleration_x = (robot.velocity_x - x) / dt
    robot.acceleration_y = (robot.velocity_y - y) / dt
    robot.acceleration_z = (robot.velocity_z - z) / dt


@inlined
def move_to(robot: Column, x: float, y: float, z: float, dt: float) -> None:
    """Where it is after the tick; velocity and acceleration are what that takes."""
    before_x, before_y, before_z = robot.velocity_x, robot.velocity_y, robot.velocity_z
    robot.velocity_x, robot.velocity_y, robot.velocity_z = (x - robot.x) / dt, (y - robot.y) / dt, (z - robot.z) / dt
    robot.x, robot.y, robot.z = x, y, z
    accelerate(robot, before_x, before_y, before_z, dt)


_UNCOMPILED = {"fleet_at": plain_record_at(FLEET)}


@cache
def _views(model: RobotModel) -> dict[str, Any]:
    names = {"robot_at": model.row_names, "command_at": model.inputs, "parameters_at": model.parameter_names}
    return {k: column_at(each) for k, each in names.items()}


@kept_address
def advance_address(model: RobotModel) -> int:
    """Address of the function that moves robots of a model, given the address of a `FLEET` row."""
    parameters = "robot, command, parameters, key, scene, tick"
    return entry_address(model.advance, _advance_entry, parameters, _views(model), _UNCOMPILED)


@kept_address
def advance_many_address(model: RobotModel) -> int:
    """The same of its form for many columns; 0 where there is none."""
    form = model.side_by_side
    if form is None:
        return 0
    rows = {"row_count": model.rows, "input_count": len(model.inputs), "parameter_count": len(model.parameter_names)}
    steps = {"go": form.go, "stand": form.stand, "is_clear": form.is_clear, "drift": form.drift}
    own = {**_views(model), **rows, **steps, "kept_count": model.rows - form.noise_rows}
    parameters = "robot, command, parameters, key, scene, tick"
    return entry_address(model.advance, _advance_many_entry, parameters, own, _UNCOMPILED)


@kept_address
def settle_address(model: RobotModel) -> int:
    """Address of the function that leans robots of a model on the ground they were put on; 0 where none leans."""
    if model.settle is None:
        return 0
    return entry_address(model.settle, _settle_entry, "robot, parameters, scene", _views(model), _UNCOMPILED)
