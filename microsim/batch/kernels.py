"""Kernels over worlds: what a batch of them does in a call. Each runs the functions that a single world runs.

Arrays have a column or a row per world. `worlds` are the numbers of those that are meant, `scene` the address of a row
that `engine.calls.scene_row` wrote. A function of one world has a loop over worlds beside it, for CPUs; the loops for
GPUs are in `cuda_kernels`.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine import (
    components,
    exact,
    geometry,
    motion,
    multiples,
    random_layout,
    records,
    robot_loops,
    sensor_calls,
)
from microsim.engine import contacts as _contacts
from microsim.engine.calls import (
    BLOCK,
    CALL,
    MANY_MEMORY,
    MANY_READING,
    MANY_ROWS,
    MANY_SETTINGS,
    Scene,
)
from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.engine.contacts import PATH
from microsim.engine.geometry import Array, Grid
from microsim.engine.records import Record, Records
from microsim.engine.sensor_calls import STEP

Integers: TypeAlias = npt.NDArray[np.int64]

_call, _copy, _invoke, _is_within = _calls.call, _calls.copy, sensor_calls.invoke, sensor_calls.is_within
_floats_at, _integers_at, _singles_at = _calls.floats_at, _calls.integers_at, _calls.singles_at
_table_address = _calls.table_address
_address_of_record, _float_grid_in = records.address_of_record, records.float_grid_in
_contacts_at, _fleet_at = _contacts.contacts_at, robot_loops.fleet_at
_state_at, _trace_at, _motions_at = components.state_at, components.trace_at, motion.motions_at
_calls_at = records.records_at(CALL)
_fleets_at = records.records_at(robot_loops.FLEET)
_observe_one, _observe_place, _level_place = motion.observe_one, motion.observe_place, motion.level_place
_ground_height = geometry.ground_height
_wrap_angle = exact.wrap_angle
_sincos = exact.sincos
_start_place, _start_pose, _start_at = random_layout.start_place, random_layout.start_pose, random_layout.start_at
_lay_out, _scene_at = random_layout.lay_out, _calls.scene_at
_last_until = multiples.last_until
_remember, _settle, _find_quiet = _contacts.remember, _contacts.settle, _contacts.find_quiet
_note_distance = robot_loops.note_distance

_TRACE_ROWS, _COMMON, _UPRIGHT = len(components.TRACE), components.COMMON_ROWS, robot_loops.UPRIGHT
_FEW = 8  # fewer columns than these are moved one by one
_AHEAD = 512  # worlds that run ahead together: what is kept of them stays in the processor's second cache

_steps_at = records.records_at(STEP)
CALL_BYTES = CALL.itemsize


@threaded_kernel
def take_commands(
    new_command: Array, active_command: Array, state: Array, age: int, ignored: Integers, begin: int, end: int
) -> None:
    """Put commands into force; one with NaN or infinity is ignored as a whole. `age`: row of the state, or -1."""
    for first in range(begin, end, BLOCK):
        last, bad = min(first + BLOCK, end), 0
        for k in range(new_command.shape[0]):
            for i in range(first, last):
                bad += 0 if abs(new_command[k, i]) < math.inf else 1
        if bad:
            for i in range(first, last):
                take_command(new_command, active_command, state, age, ignored, i)
            continue
        for k in range(new_command.shape[0]):
            _copy(_table_address(active_command[k, first:]), _table_address(new_command[k, first:]), 8 * (last - first))
        for i in range(first, last if age >= 0 else first):
            state[age, i] = 0.0


@kernel
def take_command(new_command: Array, active_command: Array, state: Array, age: int, ignored: Integers, i: int) -> None:
    """Of one world."""
    is_good = True
    for k in range(new_command.shape[0]):
        is_good = is_good and math.isfinite(new_command[k, i])
    if not is_good:
        ignored[i] += 1
        return
    for k in range(new_command.shape[0]):
        active_command[k, i] = new_command[k, i]
    if age >= 0:
        state[age, i] = 0.0


@threaded_kernel
def move(
    fleets: int, count: int, made: int, is_shared: bool, contacts: int, marks: int, tick: Integers, ticks: int,
    begin: int, end: int,
) -> None:  # fmt: skip
    """Worlds begin … end - 1 from their own tick on by `ticks`. `made`: where the calls are put as they were made last.

    That is for kernels of plug-ins, all stops where one raises an exception; 0: there are none.
    """
    rows = _fleets_at(fleets, count).copy()
    _move_worlds(rows, is_shared, contacts, marks, tick, ticks, begin, end)
    for r in range(count if made else 0):
        _fleets_at(made, count)[r] = rows[r]


@kernel
def _move_worlds(
    rows: Records, is_shared: bool, contacts: int, marks: int, tick: Integers, ticks: int, begin: int, end: int
) -> None:
    """A block of worlds runs ahead, robot by robot. Worlds in which robots came near anything are put back, and move
    again with a look at what they touch after every tick.
    """
    count = rows.shape[0]
    paths, room = np.empty(count, PATH), np.zeros(marks, np.int64)
    kept, traces = np.empty((_numbers(rows), _AHEAD)), np.zeros((count, _TRACE_ROWS, _AHEAD))
    reach, quiet = np.empty((count, _AHEAD)), np.empty(_AHEAD, np.int64)
    for first in range(begin, end, _AHEAD):
        last = min(first + _AHEAD, end)
        _keep(rows, first, last, kept, traces)
        for r in range(count):
            row = rows[r]
            row.traces.address, row.traces.rows, row.traces.columns = _table_address(traces[r]), _TRACE_ROWS, _AHEAD
            _run_ahead(row, is_shared, tick, ticks, first, last)
            if row.is_broken:
                return
        _find_quiet(contacts, first, traces, reach, quiet[: last - first])
        for w in range(first, last):
            if not quiet[w - first]:
                _put_back_kept(rows, w, w - first, kept)
                if not _move_world(rows, contacts, tick[w], ticks, w, paths, room):
                    return


@kernel
def _move_world(rows: Records, contacts: int, tick: int, ticks: int, w: int, paths: Records, room: Integers) -> bool:
    """Tick by tick, with all contacts; False where a kernel raised an exception."""
    touching = _contacts_at(contacts)
    for k in range(tick, tick + ticks):
        _remember(touching, w, paths)
        for r in range(rows.shape[0]):
            row = rows[r]
            row.begin, row.end, row.world, row.tick, row.ticks = w, w + 1, w, k, 1
            _call(row.function, _address_of_record(row))
            if row.is_broken:
                return False
        _settle(touching, w, k, paths, room)
    return True


@kernel
def _run_ahead(row: Record, is_shared: bool, tick: Integers, ticks: int, begin: int, end: int) -> None:
    """One robot of a block of worlds; neighbours of the same tick and grid in one call."""
    trace, first = row.traces.address, begin
    while first < end:
        last = end if is_shared and not row.needs_tick else first + 1
        while last < end and is_shared and tick[last] == tick[first]:
            last += 1
        row.begin, row.end, row.world, row.tick, row.ticks = first, last, first, tick[first], ticks
        row.traces.address = trace + 8 * (first - begin)
        if row.many and last - first >= _FEW:
            _call(row.many, _address_of_record(row))
        else:
            _run_ahead_by_ticks(row)
        if row.is_broken:
            return
        first = last


@kernel
def _run_ahead_by_ticks(row: Record) -> None:
    state, trace, ticks = _float_grid_in(row.state), _float_grid_in(row.traces), row.ticks
    row.ticks = 1
    for _ in range(ticks):
        _call(row.function, _address_of_record(row))
        if row.is_broken:
            return
        for w in range(row.begin, row.end):
            _note_distance(_state_at(state, w), _trace_at(trace, w - row.begin))
        row.tick += 1


@kernel
def _numbers(rows: Records) -> int:
    """At most so many of a world are kept: the states and commands of its robots."""
    total = 0
    for r in range(rows.shape[0]):
        total += rows[r].state.rows + rows[r].command.rows
    return total


@inlined
def _rows_kept(row: Record) -> tuple[int, int, int]:
    """Of a robot's state: before the first and from the second on; then of its command. See `SideBySide`."""
    return (_UPRIGHT, _COMMON, 0) if row.many else (row.state.rows, row.state.rows, row.command.rows)


@kernel
def _keep(rows: Records, first: int, last: int, kept: Array, traces: Array) -> None:
    """States and commands of a block; robots begin without being stopped, as with `remember`."""
    at, size = 0, 8 * (last - first)
    for r in range(rows.shape[0]):
        row = rows[r]
        state, command = _float_grid_in(row.state), _float_grid_in(row.command)
        before, after, inputs = _rows_kept(row)
        for k in range(3):  # x, y and z
            _copy(_table_address(traces[r, k]), _table_address(state[k, first:]), size)
        stopped = 0
        for w in range(first, last):
            _trace_at(traces[r], w - first).farthest = 0.0
            stopped += 1 if _state_at(state, w).is_stopped != 0.0 else 0
        for w in range(first, last if stopped else first):
            _state_at(state, w).is_stopped = 0.0
        for k in range(row.state.rows):
            if k < before or k >= after:
                _copy(_table_address(kept[at]), _table_address(state[k, first:]), size)
                at += 1
        for k in range(inputs):
            _copy(_table_address(kept[at]), _table_address(command[k, first:]), size)
            at += 1


@kernel
def _put_back_kept(rows: Records, w: int, i: int, kept: Array) -> None:
    at = 0
    for r in range(rows.shape[0]):
        row = rows[r]
        state, command = _float_grid_in(row.state), _float_grid_in(row.command)
        before, after, inputs = _rows_kept(row)
        for k in range(row.state.rows):
            if k < before or k >= after:
                state[k, w] = kept[at, i]
                at += 1
        for k in range(inputs):
            command[k, w] = kept[at, i]
            at += 1


@kernel
def free_place(
    scene: Scene, x_low: float, x_high: float, y_low: float, y_high: float, gap_m: float, key: int
) -> tuple[float, float, bool]:
    return _start_place(
        scene.footing, scene.cell, scene.west, scene.south, x_low, x_high, y_low, y_high, gap_m, key
    )  # fmt: skip


@kernel
def put_at_start(state: Array, w: int, start: Record, scene: Scene, key: int) -> None:
    """A robot at rest where it starts."""
    x, y, z, yaw = _start_pose(start, scene.footing, scene.cell, scene.west, scene.south, key)
    for row in range(state.shape[0]):
        state[row, w] = 0.0
    robot = _state_at(state, w)
    robot.x, robot.y, robot.z, robot.yaw = x, y, z, _wrap_angle(yaw)
    if start.is_ground_bound:
        robot.z = _ground_height(scene.elevation, scene.cell, x - scene.west, y - scene.south)


@threaded_kernel
def settle_all(function: int, fleet: int, worlds: Integers) -> None:
    """Lay robots that were put somewhere onto the slope there; see `robot_loops.settle_address`."""
    row = _fleet_at(fleet)
    for index in range(worlds.shape[0]):
        row.begin, row.end, row.world = worlds[index], worlds[index] + 1, worlds[index]
        _call(function, fleet)
        if row.is_broken:
            return


@threaded_kernel
def put_all_at_start(state: Array, start: int, scene: int, keys: Integers, worlds: Integers) -> None:
    for index in range(worlds.shape[0]):
        w = worlds[index]
        put_at_start(state, w, _start_at(start), _scene_at(scene, w, _floats_at(scene, 0)), keys[index])


@threaded_kernel
def lay_all_out(
    table: Array, starts: Array, chances: Array, scene: int, lacking: Grid, moved: Array, is_separate: bool,
    keys: Integers, worlds: Integers,
) -> None:  # fmt: skip
    for index in range(worlds.shape[0]):
        w = worlds[index]
        _lay_out(table, starts, chances, _scene_at(scene, w, chances), lacking, moved[w], is_separate, keys[index])


@inlined
def last_offset(whole: int, rest: int, parts: int, begin: int, ticks: int) -> int:
    """When a trigger with that `Trigger.step` last fires within `ticks` ticks after `begin`; 0 when it does not."""
    return max(_last_until(whole, rest, parts, begin + ticks) - begin, 0)


@threaded_kernel
def last_firing(whole: int, rest: int, parts: int, begin: Integers, ticks: int, offsets: Integers) -> None:
    for i in range(begin.shape[0]):
        offsets[i] = last_offset(whole, rest, parts, begin[i], ticks)


@threaded_kernel
def sense(calls: int, steps: int, count: int, fleet: int, worlds: Integers, tick: Integers, scratch: int) -> None:
    """Readings of sensors on one robot in these worlds: for each world what `compiled_tick.sense` does for one.

    The calls hold the addresses of world 0, the steps how far it is to the next world's. All stops where the kernel of
    a plug-in raises an exception. `scratch`: where its call is then; room for the calls as they are made, a motion, and
    a reading that becomes float32. 0: no kernel is a plug-in's.
    """
    given, steps_to = _calls_at(calls, count).copy(), _steps_at(steps, count)
    motion_size, block = given[0].motion.count, np.zeros((MANY_ROWS, BLOCK))
    head, size = count * CALL_BYTES // 8, motion_size + given[0].reading.count
    own_scratch = np.zeros(0 if scratch else head + size)
    if scratch == 0:
        scratch = _table_address(own_scratch)
    room = _floats_at(scratch + 8 * head, size)
    for k in range(count):
        given[k].motion.address = _table_address(room)
        if steps_to[k].singles:
            given[k].reading.address = _table_address(room) + 8 * motion_size
    _copy(scratch, _address_of_record(given[0]), count * CALL_BYTES)
    own, robots = _calls_at(scratch, count), _fleet_at(fleet)
    state = _float_grid_in(robots.state)
    if steps_to[0].sample_many and worlds.shape[0]:  # settings that all worlds share stay in the block
        _gather(given[0].settings, 0, worlds[:1], block[MANY_SETTINGS:])
    for first in range(0, worlds.shape[0], BLOCK):
        some = worlds[first : first + BLOCK]
        is_many = steps_to[0].sample_many != 0 and some.shape[0] >= _FEW
        if is_many and _observe_block(state, some, given[0].mount, block):
            _sense_block(given[0], own[0], steps_to[0], some, tick, block)
        else:
            _sense_one_by_one(given, own, steps_to, robots, some, tick, room)
        for k in range(count):
            if own[k].is_broken:
                return
    own_scratch[:1] = 0.0  # so it lives until here


@kernel
def _observe_block(state: Array, worlds: Integers, mount: Array, block: Array) -> bool:
    """Motions of robots and the places of their sensors, all in SIMD; False when any of them leans.

    Columns that are left over repeat the last world.
    """
    last, leaning = worlds.shape[0] - 1, 0
    for i in range(BLOCK):
        robot = _state_at(state, worlds[min(i, last)])
        seen = _motions_at(block, i)
        seen.x, seen.y, seen.z, seen.yaw = robot.x, robot.y, robot.z, robot.yaw
        leaning += 1 if (robot.roll != 0.0) | (robot.pitch != 0.0) else 0
    if leaning:
        return False
    mount_x, mount_y, mount_z = mount[0], mount[1], mount[2]
    for i in range(BLOCK):
        seen = _motions_at(block, i)
        sine, cosine = _sincos(seen.yaw)
        x, y, z = _level_place(seen.x, seen.y, seen.z, sine, cosine, (mount_x, mount_y, mount_z))
        seen.sin_yaw, seen.cos_yaw = sine, cosine
        seen.place_x, seen.place_y, seen.place_z = x, y, z
    return True


@kernel
def _sense_block(call: Record, own: Record, step: Record, worlds: Integers, tick: Integers, block: Array) -> None:
    """One call in up to BLOCK worlds; `own`: a copy of it, to write to."""
    numbers, count = np.empty((2, BLOCK), np.int64), worlds.shape[0]
    for i in range(BLOCK):
        w = worlds[min(i, count - 1)]
        numbers[0, i], numbers[1, i] = _integers_at(step.keys, w + 1)[w], tick[w]
    if step.settings:
        _gather(call.settings, step.settings, worlds, block[MANY_SETTINGS:])
    _gather(call.memory, step.memory, worlds, block[MANY_MEMORY:])
    own.motion.address, own.world = _table_address(block), worlds[0]
    own.key, own.tick = _table_address(numbers[0]), _table_address(numbers[1])
    _call(step.sample_many, _address_of_record(own))
    if own.is_broken:  # the call stays, as one of the first world
        own.motion.address, own.key, own.tick = call.motion.address, numbers[0, 0], numbers[1, 0]
        return
    _scatter(block[MANY_MEMORY:], call.memory, step.memory, worlds)
    _scatter(block[MANY_READING:], call.reading, step.reading, worlds)
    own.motion.address = call.motion.address
    for i in range(count):  # reads `numbers`, which so live until here
        w = worlds[i]
        _integers_at(step.sampled_at, w + 1)[w] = numbers[1, i]


@kernel
def _gather(source: Record, step: int, worlds: Integers, block: Array) -> None:
    """A row of numbers of each world into its column."""
    last = worlds.shape[0] - 1
    for i in range(BLOCK):
        numbers = _floats_at(source.address + step * worlds[min(i, last)], source.count)
        for k in range(source.count):
            block[k, i] = numbers[k]


@kernel
def _scatter(block: Array, target: Record, step: int, worlds: Integers) -> None:
    for i in range(worlds.shape[0]):
        numbers = _floats_at(target.address + step * worlds[i], target.count)
        for k in range(target.count):
            numbers[k] = block[k, i]


@kernel
def _sense_one_by_one(
    calls: Records, own: Records, steps: Records, fleet: Record, worlds: Integers, tick: Integers, seen: Array
) -> None:
    """`own`: a copy of the calls, to write to; `seen`: the motion they are given."""
    state = _float_grid_in(fleet.state)
    for index in range(worlds.shape[0]):
        w = worlds[index]
        if own[0].stride == 0:
            if steps[0].reads_place:
                _observe_place(state, w, seen)
            else:
                _observe_one(state, w, seen)
        for k in range(own.shape[0]):
            call, step, mine = calls[k], steps[k], own[k]
            if _is_within(step.dropouts, tick[w]):
                _integers_at(step.dropped, w + 1)[w] += 1
                break  # faults that would alter the reading follow it
            mine.settings.address = call.settings.address + w * step.settings
            mine.memory.address = call.memory.address + w * step.memory
            mine.reading.address = call.reading.address + w * step.reading
            mine.world, mine.key = w, _integers_at(step.keys, w + 1)[w]
            mine.seen = mine.motion.address if mine.stride == 0 else fleet.state.address + 8 * w
            _invoke(mine, tick[w])
            if mine.is_broken:
                return
            if step.is_tracker == 0:
                _integers_at(step.sampled_at, w + 1)[w] = tick[w]
            if step.singles:
                _round(mine.reading.address, step.singles + w * step.singles_step, mine.reading.count)


@threaded_kernel
def _round(source: int, target: int, count: int) -> None:
    """Numbers of a reading as float32."""
    numbers, singles = _floats_at(source, count), _singles_at(target, count)
    for i in range(count):
        singles[i] = numbers[i]


@threaded_kernel
def sincos_each(angles: Array, sines: Array, cosines: Array) -> None:
    for i in range(angles.shape[0]):
        sines[i], cosines[i] = _sincos(angles[i])


@threaded_kernel
def free_places(spans: Array, scene: int, keys: Integers, worlds: Integers, out: Array) -> None:
    """out (len(worlds), 2): a free place in each. spans: from x, to x, from y, to y, gap_m."""
    for index in range(worlds.shape[0]):
        out[index, 0], out[index, 1], _ = free_place(
            _scene_at(scene, worlds[index], spans), spans[0], spans[1], spans[2], spans[3], spans[4], keys[index]
        )
