"""What a thread of a GPU does: the kernels that a single world runs on the CPU.

Each `..._loop` makes a function for the GPU around a kernel that is given; all its arguments are 64-bit integers:
numbers, and addresses of the rows that `engine.calls` describes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numba
import numba.core.config
from numba import cuda, float64, int64

from microsim.batch import kernels
from microsim.batch.batch_columns import Array
from microsim.batch.kernels import STEP
from microsim.engine import calls, compiled_tick, contact_rows, contacts, exact, motion, noise, random_layout, records
from microsim.engine.calls import (
    COMMAND,
    FLEET_COLUMNS,
    FLEET_SCENE,
    INPUTS,
    KEYS,
    PARAMETER_STEP,
    PARAMETERS,
    STATE,
    STATE_ROWS,
    WIDTH,
)
from microsim.engine.compiled_tick import WINDOW
from microsim.engine.contact_rows import ROBOT_COLUMNS, ROBOTS, SCRATCH_COLUMNS, TABLE_COLUMNS, WORDS
from microsim.engine.contact_rows import STATE as MOVER_STATE
from microsim.engine.contact_rows import STRIDE as MOVER_STRIDE
from microsim.engine.motion import PLACE_X, PLACE_Y, PLACE_Z, SENSOR_FIELDS
from microsim.engine.records import record_at, records_at

if TYPE_CHECKING:
    pass

NAN_BITS = 0x7FC00000  # of a float32: a GPU's own conversion of NaN gives other bits than a CPU's

_floats_at, _integers_at, _words_at, _singles_at = calls.floats_at, calls.integers_at, calls.words_at, calls.singles_at
_float_grid_at, _byte_grid_at, _scene_at = calls.float_grid_at, calls.byte_grid_at, calls.scene_at
_bytes_at = calls.bytes_at
_is_within = compiled_tick.is_within
_call_at, _step_at, _windows_at, _floats_in = calls.call_at, record_at(STEP), records_at(WINDOW), records.floats_in
_observe_one, _place_of = motion.observe_one, motion.place_of
_take_command, _put_at_start = kernels.take_command, kernels.put_at_start
_last_offset, _free_place = kernels.last_offset, kernels.free_place
_lay_out, _mix, _sincos = random_layout.lay_out, noise.mix, exact.sincos
_remember, _settle_contacts, _table_address = contacts.remember, contacts.settle, calls.table_address
_begin_tick_of, _is_quiet, _touch_words = contacts.begin_tick_of, contacts.is_quiet, contact_rows.touch_words


def take_loop() -> Callable[..., None]:
    def loop(count: int, handed_in: int, fleet: int, age: int, ignored: int) -> None:
        w = cuda.grid(1)
        if w < count:
            row = _integers_at(fleet, FLEET_COLUMNS)
            given = _float_grid_at(handed_in, row[INPUTS], row[WIDTH])
            taken = _float_grid_at(row[COMMAND], row[INPUTS], row[WIDTH])
            state = _float_grid_at(row[STATE], row[STATE_ROWS], row[WIDTH])
            _take_command(given, taken, state, age, _integers_at(ignored, count), w)

    return loop


def _compiled(function: Callable[..., Any]) -> Any:
    """The kernel, also where a plug-in's author left the decorator out."""
    return function if hasattr(function, "py_func") else numba.njit(error_model="numpy")(function)


def _joined(advance: Callable[..., None]) -> Any:
    """The kernel of a robot model written for version 0.1, which takes the grid apart, as one of today."""
    old = _compiled(advance)

    def joined(state: Any, command: Any, settings: Any, keys: Any, scene: Any, tick: int, ticks: int) -> None:
        old(
            state, command, settings, keys, scene.elevation, scene.footing, scene.cell, scene.west, scene.south,
            scene.dt, tick, ticks,
        )  # fmt: skip

    return _compiled(joined)


def _robots_of(robots: tuple[tuple[Any, ...], ...], r: int = 0, places: tuple[int, int, int] = (0, 0, 0)) -> Any:
    """Functions for a thread: take the columns of all robots from r on; move them by a tick; the same, if they touch
    nothing meanwhile; put them back. Each robot's is made around those of the robots after it.

    robots: of each its kernel, whether that is of version 0.1, rows of its state, inputs and parameters. `places`:
    where its state, command and settings begin.
    """
    if r == len(robots):
        return [_compiled(each) for each in (_nothing, _nothing, _quiet, _nothing)]
    kernel, is_old, rows, inputs, parameters = robots[r]
    row, entry, number = places
    others = _robots_of(robots, r + 1, (row + rows, entry + inputs, number + parameters))
    take_others, move_others, quiet_others, put_others = others
    advance = _joined(kernel) if is_old else _compiled(kernel)

    def take(fleets: int, w: int, states: Array, commands: Array, settings: Array, extra: Array, tick: int) -> None:
        fleet = _integers_at(fleets + 8 * FLEET_COLUMNS * r, FLEET_COLUMNS)
        width, step = fleet[WIDTH], fleet[PARAMETER_STEP]
        all_states = _float_grid_at(fleet[STATE], rows, width)
        all_commands = _float_grid_at(fleet[COMMAND], inputs, width)
        numbers = _float_grid_at(fleet[PARAMETERS], parameters, width if step else 1)
        for k in range(rows):
            states[row + k, 0] = all_states[k, w]
        for k in range(inputs):
            commands[entry + k, 0] = all_commands[k, w]
        for k in range(parameters):
            settings[number + k, 0] = numbers[k, w * step]
        take_others(fleets, w, states, commands, settings, extra, tick)

    def move(fleets: int, w: int, states: Array, commands: Array, settings: Array, extra: Array, tick: int) -> None:
        fleet = _integers_at(fleets + 8 * FLEET_COLUMNS * r, FLEET_COLUMNS)
        scene = _scene_at(fleet[FLEET_SCENE], w, _floats_at(fleet[FLEET_SCENE], 0))
        own = states[row : row + rows]
        _begin_tick_of(own, r, extra)
        used = commands[entry : entry + inputs], settings[number : number + parameters]
        advance(own, used[0], used[1], _integers_at(fleet[KEYS] + 8 * w, 1), scene, tick, 1)
        move_others(fleets, w, states, commands, settings, extra, tick)

    def quiet(contacts: int, w: int, states: Array, scratch: Array) -> bool:
        table = _integers_at(contacts, TABLE_COLUMNS)
        return _is_quiet(table, r, w, states[row : row + rows], scratch) and quiet_others(contacts, w, states, scratch)

    def put(fleets: int, w: int, states: Array, commands: Array, settings: Array, extra: Array, tick: int) -> None:
        fleet = _integers_at(fleets + 8 * FLEET_COLUMNS * r, FLEET_COLUMNS)
        all_states = _float_grid_at(fleet[STATE], rows, fleet[WIDTH])
        all_commands = _float_grid_at(fleet[COMMAND], inputs, fleet[WIDTH])
        for k in range(rows):
            all_states[k, w] = states[row + k, 0]
        for k in range(inputs):
            all_commands[k, w] = commands[entry + k, 0]
        put_others(fleets, w, states, commands, settings, extra, tick)

    return [_compiled(each) for each in (take, move, quiet, put)]


def _nothing(fleets: int, w: int, states: Array, commands: Array, settings: Array, extra: Array, tick: int) -> None:
    pass


def _quiet(contacts: int, w: int, states: Array, scratch: Array) -> bool:
    return True


def quiet_loop(robots: tuple[tuple[Any, ...], ...]) -> Callable[..., None]:
    """All robots of a world by all ticks, in registers, as long as nothing touches anything.

    Where something does or did, the world stays as it was, and is `left` to `move_loop`.
    """
    take, move, quiet, put = _robots_of(robots)
    rows, inputs, parameters = (sum(each[k] for each in robots) for k in (2, 3, 4))
    count_of, scratch_shape = len(robots), (len(robots), SCRATCH_COLUMNS)

    def loop(count: int, fleets: int, contacts: int, tick: int, ticks: int, left: int) -> None:
        w = cuda.grid(1)
        if w < count:
            is_left, table = False, _integers_at(contacts, TABLE_COLUMNS)
            for r in range(count_of):
                for word in range(table[WORDS]):
                    is_left = is_left or _touch_words(table, r, w, word) != 0
            if not is_left:
                states, commands = cuda.local.array((rows, 1), float64), cuda.local.array((inputs, 1), float64)
                settings, scratch = cuda.local.array((parameters, 1), float64), cuda.local.array(scratch_shape, float64)
                start = _integers_at(tick, count)[w]
                take(fleets, w, states, commands, settings, scratch, start)
                now = start
                while now < start + ticks and not is_left:
                    move(fleets, w, states, commands, settings, scratch, now)
                    is_left = not quiet(contacts, w, states, scratch)
                    now += 1
                if not is_left:
                    put(fleets, w, states, commands, settings, scratch, start)
            _bytes_at(left, count)[w] = 1 if is_left else 0

    return loop


def move_loop(robots: tuple[tuple[Any, ...], ...], marks: int) -> Callable[..., None]:
    """All robots of a world, and what they touch, tick after tick, in memory of the thread's own."""
    take, move, _, put = _robots_of(robots)
    rows, inputs, parameters = (sum(each[k] for each in robots) for k in (2, 3, 4))
    count_of, known_size, scratch_shape = len(robots), len(robots) * ROBOT_COLUMNS, (len(robots), SCRATCH_COLUMNS)
    places = tuple(sum(each[2] for each in robots[:r]) for r in range(len(robots)))

    def loop(count: int, worlds: int, fleets: int, contacts: int, tick: int, ticks: int) -> None:
        index = cuda.grid(1)
        if index < count:
            w = _integers_at(worlds, count)[index]
            states, commands = cuda.local.array((rows, 1), float64), cuda.local.array((inputs, 1), float64)
            settings, scratch = cuda.local.array((parameters, 1), float64), cuda.local.array(scratch_shape, float64)
            table, known = cuda.local.array(TABLE_COLUMNS, int64), cuda.local.array(known_size, int64)
            room, given = cuda.local.array(marks, int64), _integers_at(contacts, TABLE_COLUMNS)
            for k in range(TABLE_COLUMNS):
                table[k] = given[k]
            for k in range(known_size):
                known[k] = _integers_at(given[ROBOTS], known_size)[k]
            for r in range(count_of):
                known[ROBOT_COLUMNS * r + MOVER_STATE] = _table_address(states) + 8 * (places[r] - w)
                known[ROBOT_COLUMNS * r + MOVER_STRIDE] = 1
            table[ROBOTS] = _table_address(known)
            own, start = _table_address(table), _integers_at(tick, w + 1)[w]
            take(fleets, w, states, commands, settings, scratch, start)
            for now in range(start, start + ticks):
                _remember(own, w, scratch)
                move(fleets, w, states, commands, settings, scratch, now)
                _settle_contacts(own, w, now, scratch, room)
            put(fleets, w, states, commands, settings, scratch, start)

    return loop


def start_loop() -> Callable[..., None]:
    def loop(count: int, fleet: int, start: int, keys: int, worlds: int) -> None:
        index = cuda.grid(1)
        if index < count:
            row, w = _integers_at(fleet, FLEET_COLUMNS), _integers_at(worlds, count)[index]
            scene = _scene_at(row[FLEET_SCENE], w, _floats_at(start, 0))
            state = _float_grid_at(row[STATE], row[STATE_ROWS], row[WIDTH])
            _put_at_start(state, w, _float_grid_at(start, 4, 4), scene, _integers_at(keys, count)[index])

    return loop


def settle_loop(settle: Callable[..., None], rows: int, parameters: int) -> Callable[..., None]:
    def loop(count: int, fleet: int, worlds: int) -> None:
        index = cuda.grid(1)
        if index < count:
            row, w = _integers_at(fleet, FLEET_COLUMNS), _integers_at(worlds, count)[index]
            width, step = row[WIDTH], row[PARAMETER_STEP]
            state, settings = cuda.local.array((rows, 1), float64), cuda.local.array((parameters, 1), float64)
            states = _float_grid_at(row[STATE], rows, width)
            numbers = _float_grid_at(row[PARAMETERS], parameters, width if step else 1)
            for k in range(rows):
                state[k, 0] = states[k, w]
            for k in range(parameters):
                settings[k, 0] = numbers[k, w * step]
            scene = _scene_at(row[FLEET_SCENE], w, _floats_at(row[FLEET_SCENE], 0))
            settle(state, settings, scene.elevation, scene.cell, scene.west, scene.south)
            for k in range(rows):
                states[k, w] = state[k, 0]

    return loop


def layout_loop() -> Callable[..., None]:
    def loop(
        count: int, obstacles: int, robots: int, rows: int, columns: int, has_holes: int, table: int, starts: int,
        chances: int, scene: int, lacking: int, moved: int, keys: int, worlds: int,
    ) -> None:  # fmt: skip
        index = cuda.grid(1)
        if index < count:
            w = _integers_at(worlds, count)[index]
            _lay_out(
                _float_grid_at(table, obstacles, 5),
                _float_grid_at(starts, robots, 2),
                _floats_at(chances, 3),
                _scene_at(scene, w, _floats_at(chances, 0)),
                _byte_grid_at(lacking, rows, columns),
                _float_grid_at(moved + 24 * obstacles * w, obstacles, 3),
                has_holes != 0,
                _integers_at(keys, count)[index],
            )

    return loop


def keys_loop() -> Callable[..., None]:
    def loop(count: int, seeds: int, stream: int, keys: int) -> None:
        index = cuda.grid(1)
        if index < count:
            _integers_at(keys, count)[index] = _mix(_integers_at(seeds, count)[index], stream)

    return loop


def places_loop() -> Callable[..., None]:
    def loop(count: int, spans: int, scene: int, worlds: int, keys: int, out: int) -> None:
        index = cuda.grid(1)
        if index < count:
            span, places = _floats_at(spans, 5), _float_grid_at(out, count, 2)
            grid = _scene_at(scene, _integers_at(worlds, count)[index], span)
            key = _integers_at(keys, count)[index]
            x, y, _ = _free_place(grid, span[0], span[1], span[2], span[3], span[4], key)
            places[index, 0], places[index, 1] = x, y

    return loop


def firing_loop() -> Callable[..., None]:
    def loop(count: int, whole: int, rest: int, parts: int, begin: int, ticks: int, offsets: int) -> None:
        index = cuda.grid(1)
        if index < count:
            now = _integers_at(begin, count)[index]
            _integers_at(offsets, count)[index] = _last_offset(whole, rest, parts, now, ticks)

    return loop


def sincos_loop() -> Callable[..., None]:
    def loop(count: int, angles: int, sines: int, cosines: int) -> None:
        index = cuda.grid(1)
        if index < count:
            sine, cosine = _sincos(_floats_at(angles, count)[index])
            _floats_at(sines, count)[index], _floats_at(cosines, count)[index] = sine, cosine

    return loop


def sense_loop(kernel: Callable[..., None], reads_state: bool, is_rounded: bool) -> Callable[..., None]:
    """What `kernels.sense` does for one call of a sensor; `steps` are the call's, `silent` those of its first call."""
    kernel = _compiled(kernel)

    def loop(
        count: int, call: int, steps: int, silent: int, fleet: int, windows: int, window_count: int, worlds: int,
        tick: int, room: int,
    ) -> None:  # fmt: skip
        index = cuda.grid(1)
        if index >= count:
            return
        w = _integers_at(worlds, count)[index]
        now, made, step, first = _integers_at(tick, w + 1)[w], _call_at(call), _step_at(steps), _step_at(silent)
        spans = _windows_at(windows, window_count)
        if _is_within(spans, first.dropouts.first, first.dropouts.end, now):
            if steps == silent:
                _integers_at(first.dropped, w + 1)[w] += 1
            return
        seen = cuda.local.array(SENSOR_FIELDS, float64)
        robot = _integers_at(fleet, FLEET_COLUMNS)
        states = _float_grid_at(robot[STATE], robot[STATE_ROWS], robot[WIDTH])
        if not reads_state:
            _observe_one(states, w, seen)
            x, y, z = _place_of(seen, made.mount[0], made.mount[1], made.mount[2])
            for k in range(made.jumps.first, made.jumps.end):
                window = spans[k]
                if window.first <= now < window.end:
                    x, y, z = x + window.offset[0], y + window.offset[1], z + window.offset[2]
            seen[PLACE_X], seen[PLACE_Y], seen[PLACE_Z] = x, y, z
        settings = _floats_at(made.settings.address + w * step.settings, made.settings.count)
        memory = _floats_at(made.memory.address + w * step.memory, made.memory.count)
        scene = _scene_at(made.scene, w, _floats_in(made.table))
        key, size = _integers_at(step.keys, w + 1)[w], made.reading.count
        if is_rounded:
            numbers = _float_grid_at(room, size, count)[:, index]
        else:
            numbers = _float_grid_at(made.reading.address + w * step.reading, size, 1)[:, 0]
        if reads_state:
            kernel(settings, states[:, w], memory, scene, key, now, numbers)
        else:
            kernel(settings, seen, memory, scene, key, now, numbers)
        if step.is_tracker == 0:
            _integers_at(step.sampled_at, w + 1)[w] = now
        if is_rounded:
            singles = _singles_at(step.singles + w * step.singles_step, size)
            words = _words_at(step.singles + w * step.singles_step, size)
            for k in range(size):
                if numbers[k] == numbers[k]:
                    singles[k] = numbers[k]
                else:
                    words[k] = NAN_BITS

    return loop
