"""Contacts: what robots touch, in every tick, and what that does to their motion.

`remember` keeps the poses before robots move, `settle` looks at their paths afterwards. Robots go one after another, in
the order of the scenario, past others that are where they are then. A contact begins when a body overlaps something on
its way, or when something stops the robot. It lasts until they are GAP_M apart, or until the robot moves on from what
stopped it. Beginnings are counted (row CONTACTS of the state), for both of two robots.

A robot that is stopped stays where it began to touch, at rest. Two that overlap already, from their start or a
teleport, can only move apart. The kernels know a world by a row of addresses, so that they serve one world inside the
compiled tick and a batch of them.
"""

import math

from microsim.engine import bodies as _bodies
from microsim.engine import calls as _calls
from microsim.engine import exact, geometry
from microsim.engine.bodies import A_BOX, BOX_NUMBERS
from microsim.engine.calls import FARTHEST, TRACE_X, TRACE_Y, TRACE_Z, Rows
from microsim.engine.compiled import kernel
from microsim.engine.components import (
    ACCELERATION_X,
    CONTACTS,
    HELD,
    PITCH,
    PITCH_RATE,
    ROLL,
    ROLL_RATE,
    TOUCHING,
    VELOCITY_X,
    YAW,
    YAW_RATE,
    X,
    Y,
    Z,
)
from microsim.engine.contact_rows import (
    ALL_PAIRS,
    AN_OBSTACLE,
    BODIES,
    COUNT,
    EVENT_LIST,
    EVENTS,
    FIRST_ROBOT,
    FLAGS,
    GAP_M,
    HAS_BODIES,
    HERE,
    IS_GROUND_BOUND,
    KEPT,
    LAST,
    MARKS,
    MINDS_CELLS,
    ROBOT_COLUMNS,
    ROBOTS,
    ROWS_KEPT,
    RULES,
    SCENE,
    SCRATCH,
    SCRATCH_COLUMNS,
    STOPS_ALL,
    TABLE_COLUMNS,
    VELOCITY,
    WHICH,
    WORDS,
    ZEROED,
    Integers,
    code_of,
    comes_nearer,
    mark,
    state_at,
    touch_address,
    touch_words,
    was_touching,
)
from microsim.engine.contact_scenery import drop_near_scenery, is_clear_of_scenery, note_cells, past_scenery
from microsim.engine.geometry import Array

_first_touch, _meets, _pose_between, _put_box = (
    _bodies.first_touch, _bodies.meets, _bodies.pose_between, _bodies.put_box,
)  # fmt: skip
_floats_at, _integers_at, _float_grid_at = _calls.floats_at, _calls.integers_at, _calls.float_grid_at
_scene_at, _room = _calls.scene_at, _calls.room
_ground_height, _wrap_angle = geometry.ground_height, exact.wrap_angle


@kernel
def _read_pose(state: Array, stride: int, pose: Array) -> None:
    pose[0], pose[1], pose[2] = state[X * stride], state[Y * stride], state[Z * stride]
    pose[3], pose[4], pose[5] = state[YAW * stride], state[ROLL * stride], state[PITCH * stride]


@kernel
def begin_tick_of(state: Array, r: int, scratch: Array) -> None:
    """What `is_quiet` needs of `remember`; state (rows, 1): the robot's own."""
    state[HELD, 0] = 0.0
    _read_pose(state[:, 0], 1, scratch[r])
    _read_pose(state[:, 0], 1, scratch[r, HERE:])


@kernel
def remember(table: int, world: int, scratch: Array) -> None:
    """Before robots move: keep what is needed afterwards, scratch (robots, SCRATCH_COLUMNS)."""
    t = _integers_at(table, TABLE_COLUMNS)
    for r in range(t[COUNT]):
        state, stride = state_at(t, r, world)
        kept = _integers_at(t[ROBOTS] + 8 * (ROBOT_COLUMNS * r + KEPT), 1)[0]
        state[HELD * stride] = 0.0
        _read_pose(state, stride, scratch[r])
        _read_pose(state, stride, scratch[r, HERE:])
        for k in range(3):
            scratch[r, VELOCITY + k] = state[(VELOCITY_X + k) * stride]
        place = ROWS_KEPT
        while kept:
            row = _lowest_bit(kept)
            scratch[r, place] = state[row * stride]
            place += 1
            kept &= kept - 1


@kernel
def _lowest_bit(mask: int) -> int:
    bit = 0
    while mask & (1 << bit) == 0:
        bit += 1
    return bit


@kernel
def settle(table: int, world: int, tick: int, scratch: Array, marks: Integers) -> None:
    """After robots moved: stop those that something stops, and count contacts that begin. `marks`: see `marks_for`."""
    t = _integers_at(table, TABLE_COLUMNS)
    count = t[COUNT]
    for k in range(count * t[WORDS]):
        marks[k] = 0
    for r in range(count):
        scratch[r, WHICH] = 0.0
    cells = 0.0
    if count > ALL_PAIRS and t[RULES] & HAS_BODIES:
        cells = _sort_into_cells(t, world, scratch, marks)
    for r in range(count):
        _settle_one(t, r, world, scratch, marks, cells)
    for r in range(count):
        _count_contacts(t, r, world, tick, scratch, marks)


@kernel
def find_quiet(table: int, first: int, traces: Array, ways: Array, quiet: Integers) -> None:
    """Worlds first … in which `settle` would have left every robot alone in all of some ticks: 1 in `quiet`, else 0.

    traces (robots, TRACE_ROWS, len(quiet) or more): where they were, and how far from there at the most. Nothing is so
    near. For loops that run ahead: they need not look at every tick. ways: room as wide to work in.
    """
    t, count = _integers_at(table, TABLE_COLUMNS), quiet.shape[0]
    quiet[:] = 1 if t[RULES] & HAS_BODIES else 0
    bodies = _float_grid_at(t[BODIES], t[COUNT], 7)
    for r in range(t[COUNT]):
        for i in range(count):
            ways[r, i] = math.sqrt(traces[r, FARTHEST, i]) * 1.000001 + 1e-9  # rounding included
        _drop_stopped(t, r, first, ways[r], quiet)
        for other in range(r):
            apart = bodies[r, 6] + bodies[other, 6] + 2.0 * GAP_M
            for i in range(count):
                x, y = (
                    traces[r, TRACE_X, i] - traces[other, TRACE_X, i],
                    traces[r, TRACE_Y, i] - traces[other, TRACE_Y, i],
                )
                z, gap = traces[r, TRACE_Z, i] - traces[other, TRACE_Z, i], apart + ways[r, i] + ways[other, i]
                quiet[i] = quiet[i] if x * x + y * y + z * z > gap * gap else 0
        flags = _integers_at(t[ROBOTS] + 8 * (ROBOT_COLUMNS * r + FLAGS), 1)[0]
        if not flags & MINDS_CELLS:
            drop_near_scenery(t, r, first, traces[r], ways[r], quiet)


@kernel
def _drop_stopped(t: Rows, r: int, first: int, ways: Array, quiet: Integers) -> None:
    """Worlds in which something stopped this robot, or touched it before."""
    state, stride = state_at(t, r, first)
    held, count = state[HELD * stride :], quiet.shape[0]
    for i in range(count):
        quiet[i] = quiet[i] if (held[i] == 0.0) & (ways[i] < math.inf) else 0
    for word in range(t[WORDS]):
        bits = _integers_at(touch_address(t, r, first, word), count)
        for i in range(count):
            quiet[i] = quiet[i] if bits[i] == 0 else 0


@kernel
def is_quiet(t: Rows, r: int, world: int, state: Array, scratch: Array) -> bool:
    """Whether `settle` would leave a robot alone that touched nothing before; to be asked of one after the other.

    state (rows, 1): its own. So what runs ahead (`batch.cuda_kernels`) need not look at every contact.
    """
    _read_pose(state[:, 0], 1, scratch[r, HERE:])
    if state[HELD, 0] != 0.0:
        return False
    for other in range(scratch.shape[0]):
        if other != r and _is_near(t, r, other, scratch):
            return False
    flags = _integers_at(t[ROBOTS] + 8 * (ROBOT_COLUMNS * r + FLAGS), 1)[0]
    return (flags & MINDS_CELLS) != 0 or is_clear_of_scenery(t, r, world, scratch)


@kernel
def _settle_one(t: Rows, r: int, world: int, scratch: Array, marks: Integers, cells: float) -> None:
    """One robot's way from where it was, past the others where they are now."""
    state, stride = state_at(t, r, world)
    end = scratch[r, HERE:]
    _read_pose(state, stride, end)
    flags = _integers_at(t[ROBOTS] + 8 * (ROBOT_COLUMNS * r + FLAGS), 1)[0]
    near, limit = 0, 1.0
    if t[RULES] & HAS_BODIES:
        near = _find_near(t, r, scratch, marks, cells)
        if near:
            limit = _free_of_robots(t, r, flags, scratch, marks, near)
        if not flags & MINDS_CELLS:
            limit = past_scenery(t, r, world, scratch, marks, limit)
    if flags & MINDS_CELLS and limit == 1.0:
        note_cells(t, r, world, scratch, marks)
    if limit < 1.0:
        _hold(t, r, world, limit, scratch)
    if near:
        _note_robots(t, r, world, scratch, marks, near, limit)


# ---- robots and robots -----------------------------------------------------------------------------------------------


@kernel
def _cell_of(value: float, size: float) -> int:
    """A number that is not one is anywhere: its robot is near nobody."""
    cell = value / size
    return int(math.floor(cell)) if abs(cell) < 1e9 else 0  # noqa: RUF046 - numba-cuda rounds to a float


@kernel
def _bucket(i: int, j: int, buckets: int) -> int:
    return ((i * 73856093) ^ (j * 19349663)) & (buckets - 1)


@kernel
def buckets_for(count: int) -> int:
    buckets = 1
    while buckets < count:
        buckets *= 2
    return buckets


@kernel
def _sort_into_cells(t: Rows, world: int, scratch: Array, marks: Integers) -> float:
    """Chains of robots by cell of the ground before the tick, so wide that only neighbours can touch; gives the width.

    In `marks`, after bits and `near`: the next robot of each one's chain, then the first of each chain; -1: none.
    """
    count = t[COUNT]
    radii = _floats_at(t[BODIES], 7 * count)
    reach = 0.0
    for r in range(count):
        state, stride = state_at(t, r, world)
        dx, dy = state[X * stride] - scratch[r, 0], state[Y * stride] - scratch[r, 1]
        way = math.sqrt(dx * dx + dy * dy)
        reach = max(reach, radii[7 * r + 6] + (way if way < 1e6 else 0.0) + GAP_M)
    size = max(2.0 * reach, 0.01)
    buckets, chain = buckets_for(count), count * (t[WORDS] + 1)
    for k in range(chain + count, chain + count + buckets):
        marks[k] = -1
    for r in range(count - 1, -1, -1):
        head = chain + count + _bucket(_cell_of(scratch[r, 0], size), _cell_of(scratch[r, 1], size), buckets)
        marks[chain + r] = marks[head]
        marks[head] = r
    return size


@kernel
def _is_near(t: Rows, r: int, other: int, scratch: Array) -> bool:
    """Whether the spheres about two robots can meet on the way of the first."""
    bodies = _floats_at(t[BODIES], 7 * t[COUNT])
    square, way = 0.0, 0.0
    for k in range(3):
        step = 0.5 * (scratch[r, HERE + k] - scratch[r, k])
        apart = scratch[r, k] + step - scratch[other, HERE + k]
        square, way = square + apart * apart, way + abs(step)
    reach = bodies[7 * r + 6] + bodies[7 * other + 6] + way + GAP_M
    return square < reach * reach


@kernel
def _find_near(t: Rows, r: int, scratch: Array, marks: Integers, cells: float) -> int:
    """Robots that the way of this one may touch: how many, and in `marks` after the bits, which."""
    count = t[COUNT]
    first, found = count * t[WORDS], 0
    if cells == 0.0:
        for other in range(count):
            if other != r and _is_near(t, r, other, scratch):
                marks[first + found] = other
                found += 1
        return found
    buckets, chain = buckets_for(count), first + count
    column, row = _cell_of(scratch[r, 0], cells), _cell_of(scratch[r, 1], cells)
    for j in range(row - 1, row + 2):
        for i in range(column - 1, column + 2):
            other = marks[chain + count + _bucket(i, j, buckets)]
            while other >= 0:
                is_here = _cell_of(scratch[other, 0], cells) == i and _cell_of(scratch[other, 1], cells) == j
                if is_here and other != r and _is_near(t, r, other, scratch):
                    marks[first + found] = other
                    found += 1
                other = marks[chain + other]
    return found


@kernel
def _is_stopped_by(t: Rows, flags: int, other: int) -> bool:
    others = _integers_at(t[ROBOTS] + 8 * (ROBOT_COLUMNS * other + FLAGS), 1)[0]
    return (t[RULES] & STOPS_ALL) != 0 or (flags & others & IS_GROUND_BOUND) != 0


@kernel
def _free_of_robots(t: Rows, r: int, flags: int, scratch: Array, marks: Integers, near: int) -> float:
    """The share of a robot's way up to the first robot that stops it."""
    first, limit = t[COUNT] * t[WORDS], 1.0
    for k in range(near):
        other = marks[first + k]
        if _is_stopped_by(t, flags, other):
            share = _touch_share(t, r, other, scratch)
            if share < 0.0:  # they overlap: it may only move away
                here = scratch[other]
                nearer = comes_nearer(scratch, r, here[HERE], here[HERE + 1], here[HERE + 2])
                share = 0.0 if nearer else 2.0
            limit = min(limit, share)
    return limit


@kernel
def _touch_share(t: Rows, r: int, other: int, scratch: Array) -> float:
    bodies, box = _float_grid_at(t[BODIES], t[COUNT], 7), _room(BOX_NUMBERS)
    _put_box(scratch[other, HERE:], bodies[other], box)
    return _first_touch(scratch[r, :VELOCITY], scratch[r, HERE:], bodies[r], A_BOX, box)


@kernel
def _note_robots(t: Rows, r: int, world: int, scratch: Array, marks: Integers, near: int, limit: float) -> None:
    """Which robots this one touches on the way that it really went."""
    first, words = t[COUNT] * t[WORDS], t[WORDS]
    bodies, box, theirs = _float_grid_at(t[BODIES], t[COUNT], 7), _room(BOX_NUMBERS), _room(BOX_NUMBERS)
    _put_box(scratch[r, HERE:], bodies[r], box)
    for k in range(near):
        other = marks[first + k]
        _put_box(scratch[other, HERE:], bodies[other], theirs)
        if was_touching(t, r, world, other + FIRST_ROBOT):
            is_touched = _meets(box, A_BOX, theirs, GAP_M)
        else:
            share = _first_touch(scratch[r, :VELOCITY], scratch[r, HERE:], bodies[r], A_BOX, theirs)
            # after a stop the way ends where it began to touch: what is then a hair's breadth apart
            is_touched = share <= 1.0 or (limit < 1.0 and _meets(box, A_BOX, theirs, 0.01 * GAP_M))
        if is_touched:
            mark(marks, words, r, other + FIRST_ROBOT)
            mark(marks, words, other, r + FIRST_ROBOT)


# ---- what becomes of it ----------------------------------------------------------------------------------------------


@kernel
def _hold(t: Rows, r: int, world: int, share: float, scratch: Array) -> None:
    """A robot goes only a share of its way, and is at rest there. Velocity is what it really did in the tick."""
    state, stride = state_at(t, r, world)
    row = _integers_at(t[ROBOTS] + 8 * ROBOT_COLUMNS * r, ROBOT_COLUMNS)
    scene, before, pose = _scene_at(t[SCENE], world, _floats_at(t[SCENE], 0)), scratch[r, :VELOCITY], _room(6)
    _pose_between(before, scratch[r, HERE:], share, pose)
    if row[FLAGS] & IS_GROUND_BOUND:
        ground = _ground_height(scene.elevation, scene.cell, pose[0] - scene.west, pose[1] - scene.south)
        pose[2] = ground if ground == ground else pose[2]
    for k in range(3):
        velocity = (pose[k] - before[k]) / scene.dt
        state[(ACCELERATION_X + k) * stride] = (velocity - scratch[r, VELOCITY + k]) / scene.dt
        state[(VELOCITY_X + k) * stride] = velocity
        state[(X + k) * stride] = pose[k]
    state[YAW_RATE * stride] *= share
    state[ROLL_RATE * stride] *= share
    state[PITCH_RATE * stride] *= share
    pose[3] = _wrap_angle(pose[3])
    state[YAW * stride], state[ROLL * stride], state[PITCH * stride] = pose[3], pose[4], pose[5]
    state[HELD * stride] = 1.0
    for k in range(6):
        scratch[r, HERE + k] = pose[k]
    zeroed, kept, place = row[ZEROED], row[KEPT], ROWS_KEPT
    while zeroed:
        state[_lowest_bit(zeroed) * stride] = 0.0
        zeroed &= zeroed - 1
    while kept:
        state[_lowest_bit(kept) * stride] = scratch[r, place]
        place += 1
        kept &= kept - 1


@kernel
def _count_contacts(t: Rows, r: int, world: int, tick: int, scratch: Array, marks: Integers) -> None:
    """Compare what a robot touches with what it touched before."""
    state, stride = state_at(t, r, world)
    words, touching, which = t[WORDS], 0, int(scratch[r, WHICH])
    for word in range(words):
        now, before = marks[r * words + word], touch_words(t, r, world, word)
        if now == 0 and before == 0:
            continue
        begun, rest = now & ~before, now
        while rest:
            touching += 1
            rest &= rest - 1
        while begun:
            what = 63 * word + _lowest_bit(begun)
            state[CONTACTS * stride] += 1.0
            code = code_of(what, which)
            _integers_at(touch_address(t, r, world, LAST), 1)[0] = code
            _note_event(t, tick, r, code)
            begun &= begun - 1
        _integers_at(touch_address(t, r, world, word), 1)[0] = now
    _integers_at(touch_address(t, r, world, words), 1)[0] = which if (marks[r * words] >> AN_OBSTACLE) & 1 else 0
    state[TOUCHING * stride] = float(touching)


@kernel
def _note_event(t: Rows, tick: int, r: int, code: int) -> None:
    """For reports of contacts: how many there were, then tick, robot and code of each, as far as there is room."""
    if t[EVENT_LIST] == 0:
        return
    events = _integers_at(t[EVENT_LIST], 1 + 3 * EVENTS)
    n = events[0]
    if n < EVENTS:
        events[1 + 3 * n], events[2 + 3 * n], events[3 + 3 * n] = tick + 1, r, code
    events[0] = n + 1


# ---- tables ----------------------------------------------------------------------------------------------------------


@kernel
def remember_now(table: int, world: int, tick: int) -> None:
    """As a call inside a tick, with the table's own scratch."""
    t = _integers_at(table, TABLE_COLUMNS)
    remember(table, world, _float_grid_at(t[SCRATCH], t[COUNT], SCRATCH_COLUMNS))


@kernel
def settle_now(table: int, world: int, tick: int) -> None:
    t = _integers_at(table, TABLE_COLUMNS)
    count = t[COUNT]
    marks = _integers_at(t[MARKS], count * (t[WORDS] + 2) + buckets_for(count))
    settle(table, world, tick, _float_grid_at(t[SCRATCH], count, SCRATCH_COLUMNS), marks)
