"""What a thread of a GPU does: the kernels that a single world runs on the CPU.

Each `..._loop` makes a function for the GPU around a kernel that is given; all its arguments are 64-bit integers:
numbers, and addresses of the rows that `engine.calls` describes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.core.config
from numba import cuda, float64, int64

from microsim.batch import kernels
from microsim.batch.batch_columns import Array
from microsim.engine import calls, contacts, exact, motion, noise, random_layout, records, robot_loops, sensor_calls
from microsim.engine.columns import Names, column_at
from microsim.engine.components import state_at
from microsim.engine.contacts import CONTACTS, MOVER, PATH
from microsim.engine.motion import SENSOR_FIELDS
from microsim.engine.records import Records, record_at, record_room, records_at, records_room
from microsim.engine.robot_loops import FLEET
from microsim.engine.sensor_calls import STEP

NAN_BITS = 0x7FC00000  # of a float32: a GPU's own conversion of NaN gives other bits than a CPU's

_floats_at, _integers_at, _words_at, _singles_at = calls.floats_at, calls.integers_at, calls.words_at, calls.singles_at
_float_grid_at, _byte_grid_at, _scene_at = calls.float_grid_at, calls.byte_grid_at, calls.scene_at
_bytes_at = calls.bytes_at
_is_within, _jumped = sensor_calls.is_within, sensor_calls.jumped
_call_at, _step_at, _floats_in = calls.call_at, record_at(STEP), records.floats_in
_observe_one, _place_of, _motion_in = motion.observe_one, motion.place_of, motion.motion_in
_take_command, _put_at_start, _start_at = kernels.take_command, kernels.put_at_start, random_layout.start_at
_last_offset, _free_place = kernels.last_offset, kernels.free_place
_lay_out, _mix, _sincos = random_layout.lay_out, noise.mix, exact.sincos
_remember, _settle_contacts, _table_address = contacts.remember, contacts.settle, calls.table_address
_begin_tick_of, _is_quiet, _touched_bits = contacts.begin_tick_of, contacts.is_quiet, contacts.touched_bits
_fleet_at, _fleets_at, _float_grid_in = robot_loops.fleet_at, records_at(FLEET), records.float_grid_in
_contacts_at, _contacts_room, _state_at = record_at(CONTACTS), record_room(CONTACTS), state_at
_movers_room, _paths_room = records_room(MOVER), records_room(PATH)
_address_of_record = records.address_of_record


def take_loop() -> Callable[..., None]:
    def loop(count: int, new_command: int, fleet: int, age: int, ignored: int) -> None:
        w = cuda.grid(1)
        if w < count:
            row = _fleet_at(fleet)
            given = _float_grid_at(new_command, row.command.rows, row.command.columns)
            taken, state = _float_grid_in(row.command), _float_grid_in(row.state)
            _take_command(given, taken, state, age, _integers_at(ignored, count), w)

    return loop


def _compiled(function: Callable[..., Any]) -> Any:
    """The kernel, also where a plug-in's author left the decorator out."""
    return function if hasattr(function, "py_func") else numba.njit(error_model="numpy")(function)


def _robots_of(robots: tuple[tuple[Any, ...], ...], r: int = 0, places: tuple[int, int, int] = (0, 0, 0)) -> Any:
    """Functions for a thread: take the columns of all robots from r on; move them by a tick; the same, if they touch
    nothing meanwhile; put them back. Each robot's is made around those of the robots after it.

    robots: of each its kernel, the names of its state's rows, inputs and parameters, and how many there are. `places`:
    where its state, command and parameters begin.
    """
    if r == len(robots):
        return [_compiled(each) for each in (_nothing, _nothing, _quiet, _nothing)]
    kernel, names, rows, inputs, parameters = robots[r]
    robot_at, command_at, parameters_at = (column_at(each) for each in names)
    row, entry, number = places
    others = _robots_of(robots, r + 1, (row + rows, entry + inputs, number + parameters))
    take_others, move_others, quiet_others, put_others = others
    advance = _compiled(kernel)

    def take(fleets: int, w: int, states: Array, commands: Array, settings: Array, paths: Records, tick: int) -> None:
        fleet = _fleets_at(fleets, r + 1)[r]
        all_states, all_commands = _float_grid_in(fleet.state), _float_grid_in(fleet.command)
        numbers, column = _float_grid_in(fleet.parameters), 0 if fleet.parameters.columns == 1 else w
        for k in range(rows):
            states[row + k, 0] = all_states[k, w]
        for k in range(inputs):
            commands[entry + k, 0] = all_commands[k, w]
        for k in range(parameters):
            settings[number + k, 0] = numbers[k, column]
        take_others(fleets, w, states, commands, settings, paths, tick)

    def move(fleets: int, w: int, states: Array, commands: Array, settings: Array, paths: Records, tick: int) -> None:
        fleet = _fleets_at(fleets, r + 1)[r]
        scene = _scene_at(fleet.scene, w, _floats_at(fleet.scene, 0))
        _begin_tick_of(_state_at(states[row:], 0), paths[r])
        robot, command = robot_at(states[row:], 0), command_at(commands[entry:], 0)
        advance(robot, command, parameters_at(settings[number:], 0), _integers_at(fleet.keys, w + 1)[w], scene, tick)
        move_others(fleets, w, states, commands, settings, paths, tick)

    def quiet(contacts: int, w: int, states: Array, paths: Records) -> bool:
        own = _state_at(states[row:], 0)
        return _is_quiet(_contacts_at(contacts), r, w, own, paths) and quiet_others(contacts, w, states, paths)

    def put(fleets: int, w: int, states: Array, commands: Array, settings: Array, paths: Records, tick: int) -> None:
        fleet = _fleets_at(fleets, r + 1)[r]
        all_states, all_commands = _float_grid_in(fleet.state), _float_grid_in(fleet.command)
        for k in range(rows):
            all_states[k, w] = states[row + k, 0]
        for k in range(inputs):
            all_commands[k, w] = commands[entry + k, 0]
        put_others(fleets, w, states, commands, settings, paths, tick)

    return [_compiled(each) for each in (take, move, quiet, put)]


def _nothing(fleets: int, w: int, states: Array, commands: Array, settings: Array, paths: Records, tick: int) -> None:
    pass


def _quiet(contacts: int, w: int, states: Array, paths: Records) -> bool:
    return True


def quiet_loop(robots: tuple[tuple[Any, ...], ...]) -> Callable[..., None]:
    """All robots of a world by all ticks, in registers, as long as nothing touches anything.

    Where something does or did, the world stays as it was, and is `left` to `move_loop`.
    """
    take, move, quiet, put = _robots_of(robots)
    rows, inputs, parameters = (max(sum(each[k] for each in robots), 1) for k in (2, 3, 4))
    count_of = len(robots)

    def loop(count: int, fleets: int, contacts: int, tick: int, ticks: int, left: int) -> None:
        w = cuda.grid(1)
        if w < count:
            is_left, touching = False, _contacts_at(contacts)
            for r in range(count_of):
                for word in range(touching.words):
                    is_left = is_left or _touched_bits(touching, r, w, word) != 0
            if not is_left:
                states, commands = cuda.local.array((rows, 1), float64), cuda.local.array((inputs, 1), float64)
                settings, paths = cuda.local.array((parameters, 1), float64), _paths_room(count_of)
                start = _integers_at(tick, count)[w]
                take(fleets, w, states, commands, settings, paths, start)
                now = start
                while now < start + ticks and not is_left:
                    move(fleets, w, states, commands, settings, paths, now)
                    is_left = not quiet(contacts, w, states, paths)
                    now += 1
                if not is_left:
                    put(fleets, w, states, commands, settings, paths, start)
            _bytes_at(left, count)[w] = 1 if is_left else 0

    return loop


def move_loop(robots: tuple[tuple[Any, ...], ...], marks: int) -> Callable[..., None]:
    """All robots of a world, and what they touch, tick after tick, in memory of the thread's own."""
    take, move, _, put = _robots_of(robots)
    rows, inputs, parameters = (max(sum(each[k] for each in robots), 1) for k in (2, 3, 4))
    places = tuple(sum(each[2] for each in robots[:r]) for r in range(len(robots)))
    count_of, record_numbers, mover_numbers = len(robots), CONTACTS.itemsize // 8, len(robots) * MOVER.itemsize // 8

    def loop(count: int, worlds: int, fleets: int, contacts: int, tick: int, ticks: int) -> None:
        index = cuda.grid(1)
        if index < count:
            w = _integers_at(worlds, count)[index]
            states, commands = cuda.local.array((rows, 1), float64), cuda.local.array((inputs, 1), float64)
            settings, paths = cuda.local.array((parameters, 1), float64), _paths_room(count_of)
            own, movers, room = _contacts_room(), _movers_room(count_of), cuda.local.array(marks, int64)
            copied = _integers_at(_address_of_record(own), record_numbers)
            for k in range(record_numbers):
                copied[k] = _integers_at(contacts, record_numbers)[k]
            copied = _integers_at(_address_of_record(movers[0]), mover_numbers)
            for k in range(mover_numbers):
                copied[k] = _integers_at(own.movers.address, mover_numbers)[k]
            for r in range(count_of):
                mover = movers[r]
                mover.state, mover.step = _table_address(states) + 8 * (places[r] - w), 1
            own.movers.address = _address_of_record(movers[0])
            start = _integers_at(tick, w + 1)[w]
            take(fleets, w, states, commands, settings, paths, start)
            for now in range(start, start + ticks):
                _remember(own, w, paths)
                move(fleets, w, states, commands, settings, paths, now)
                _settle_contacts(own, w, now, paths, room)
            put(fleets, w, states, commands, settings, paths, start)

    return loop


def start_loop() -> Callable[..., None]:
    def loop(count: int, fleet: int, start: int, keys: int, worlds: int) -> None:
        index = cuda.grid(1)
        if index < count:
            row, w = _fleet_at(fleet), _integers_at(worlds, count)[index]
            scene, state = _scene_at(row.scene, w, _floats_at(row.scene, 0)), _float_grid_in(row.state)
            _put_at_start(state, w, _start_at(start), scene, _integers_at(keys, count)[index])

    return loop


def settle_loop(
    kernel: Callable[..., None], row_names: Names, parameter_names: Names, rows: int, parameters: int
) -> Callable[..., None]:
    settle, robot_at, parameters_at = _compiled(kernel), column_at(row_names), column_at(parameter_names)

    def loop(count: int, fleet: int, worlds: int) -> None:
        index = cuda.grid(1)
        if index < count:
            row, w = _fleet_at(fleet), _integers_at(worlds, count)[index]
            state, settings = cuda.local.array((rows, 1), float64), cuda.local.array((parameters, 1), float64)
            states, numbers = _float_grid_in(row.state), _float_grid_in(row.parameters)
            column = 0 if row.parameters.columns == 1 else w
            for k in range(rows):
                state[k, 0] = states[k, w]
            for k in range(parameters):
                settings[k, 0] = numbers[k, column]
            scene = _scene_at(row.scene, w, _floats_at(row.scene, 0))
            settle(robot_at(state, 0), parameters_at(settings, 0), scene)
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
        count: int, call: int, steps: int, silent: int, fleet: int, worlds: int, tick: int, room: int
    ) -> None:  # fmt: skip
        index = cuda.grid(1)
        if index >= count:
            return
        w = _integers_at(worlds, count)[index]
        now, made, step, first = _integers_at(tick, w + 1)[w], _call_at(call), _step_at(steps), _step_at(silent)
        if _is_within(first.dropouts, now):
            if steps == silent:
                _integers_at(first.dropped, w + 1)[w] += 1
            return
        seen = cuda.local.array(SENSOR_FIELDS, float64)
        states = _float_grid_in(_fleet_at(fleet).state)
        if not reads_state:
            _observe_one(states, w, seen)
            x, y, z = _place_of(seen, made.mount[0], made.mount[1], made.mount[2])
            x, y, z = _jumped(made, now, x, y, z)
            sensor = _motion_in(seen)
            sensor.place_x, sensor.place_y, sensor.place_z = x, y, z
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
