"""Contacts: what robots touch, in every tick, and what that does to their motion.

`remember` keeps the poses before robots move, `settle` looks at their ways afterwards. Robots go one after another, in
the order of the scenario, past others that are where they are then. A contact begins when a body overlaps something on
its way, or when something stops the robot. It lasts until they are GAP_M apart, or until the robot moves on from what
stopped it. Beginnings are counted (row CONTACTS of the state), for both of two robots.

A robot that is stopped stays where it began to touch, at rest. Two that overlap already, from their start or a
teleport, can only move apart. The kernels know a world by a row of addresses, so that they serve one world inside the
compiled tick and a batch of them.
"""

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import bodies as _bodies
from microsim.engine import calls as _calls
from microsim.engine import exact, geometry
from microsim.engine.bodies import A_BOX, A_CYLINDER, A_TRIANGLE, BOX_NUMBERS
from microsim.engine.calls import Rows, Scene
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
from microsim.engine.geometry import Array, Grid

Integers: TypeAlias = npt.NDArray[np.int64]

_first_touch, _meets, _pose_between, _put_box = (
    _bodies.first_touch, _bodies.meets, _bodies.pose_between, _bodies.put_box,
)  # fmt: skip
_floats_at, _integers_at, _byte_grid_at, _float_grid_at = (
    _calls.floats_at, _calls.integers_at, _calls.byte_grid_at, _calls.float_grid_at,
)  # fmt: skip
_scene_at = _calls.scene_at
_ground_height, _is_free, _wrap_angle = geometry.ground_height, geometry.is_free, exact.wrap_angle

SCENERY = ("obstacle", "mesh", "map edge", "missing ground")  # what robots touch beside each other, by bit
_AN_OBSTACLE, A_MESH, _MAP_EDGE, MISSING_GROUND = range(4)
FIRST_ROBOT = len(SCENERY)  # bit of the first robot
_SCENERY_BITS = (1 << FIRST_ROBOT) - 1

GAP_M = 1e-3  # a contact between bodies ends when they are farther apart
_PROBE_M = 5e-3  # how far around a stopped robot its obstacle is looked for
_ALL_PAIRS = 24  # robots; among more, neighbours are found by cells
EVENTS = 256  # contacts that are kept until somebody asks

# columns of a robot
_STATE, _STRIDE, _FLAGS, _ZEROED, _KEPT = range(5)
ROBOT_COLUMNS = 5
IS_GROUND_BOUND, MINDS_CELLS = 1, 2  # flags; _ZEROED and _KEPT have a bit for each row of the state

# columns of a world's table
_ROBOTS, _COUNT, _BODIES, _SCRATCH, _MARKS, _TOUCH, _WORDS, _WIDTH, _SCENE = range(9)
_SOLIDS, _SOLID_COUNT, _PLACES, _PLACES_STEP, _KINDS, _KINDS_ROWS, _KINDS_COLUMNS = range(9, 16)
_TRIANGLES, _BUCKETS, _ITEMS, _MESH_FACTS, _RULES, _EVENT_LIST, _HEIGHTS = range(16, 23)
_TABLE_COLUMNS = 23
STOPS_ALL, HAS_BODIES = 1, 2  # bits of _RULES

# numbers that are kept of a robot during a tick: pose and velocity before it, rows that stay, pose now
_BEFORE, _VELOCITY, _ROWS_KEPT, _HERE = 0, 6, 9, 13
SCRATCH_COLUMNS = 19
MOST_KEPT = _HERE - _ROWS_KEPT

# columns of a solid: half its extent along x and y, whether it is round, base above the ground, height
_HALF_X, _HALF_Y, _IS_ROUND, _BASE, _TALL = range(5)
SOLID_COLUMNS = 5
_CEILING, _LOWEST = range(2)  # of _HEIGHTS: above the first there is no solid


@kernel
def _state_at(t: Rows, robot: int, world: int) -> tuple[Array, int]:
    """A robot's state, and how far it is from one row to the next."""
    row = _integers_at(t[_ROBOTS] + 8 * ROBOT_COLUMNS * robot, ROBOT_COLUMNS)
    return _floats_at(row[_STATE] + 8 * world, 63 * row[_STRIDE]), row[_STRIDE]


@kernel
def _read_pose(state: Array, stride: int, pose: Array) -> None:
    pose[0], pose[1], pose[2] = state[X * stride], state[Y * stride], state[Z * stride]
    pose[3], pose[4], pose[5] = state[YAW * stride], state[ROLL * stride], state[PITCH * stride]


@kernel
def remember(table: int, world: int, scratch: Array) -> None:
    """Before robots move: keep what is needed afterwards, scratch (robots, SCRATCH_COLUMNS)."""
    t = _integers_at(table, _TABLE_COLUMNS)
    for r in range(t[_COUNT]):
        state, stride = _state_at(t, r, world)
        kept = _integers_at(t[_ROBOTS] + 8 * (ROBOT_COLUMNS * r + _KEPT), 1)[0]
        state[HELD * stride] = 0.0
        _read_pose(state, stride, scratch[r])
        _read_pose(state, stride, scratch[r, _HERE:])
        for k in range(3):
            scratch[r, _VELOCITY + k] = state[(VELOCITY_X + k) * stride]
        place = _ROWS_KEPT
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
    t = _integers_at(table, _TABLE_COLUMNS)
    count = t[_COUNT]
    marks[: count * t[_WORDS]] = 0
    cells = 0.0
    if count > _ALL_PAIRS and t[_RULES] & HAS_BODIES:
        cells = _sort_into_cells(t, world, scratch, marks)
    for r in range(count):
        _settle_one(t, r, world, scratch, marks, cells)
    for r in range(count):
        _count_contacts(t, r, world, tick, marks)


@kernel
def _settle_one(t: Rows, r: int, world: int, scratch: Array, marks: Integers, cells: float) -> None:
    """One robot's way from where it was, past the others where they are now."""
    state, stride = _state_at(t, r, world)
    end = scratch[r, _HERE:]
    _read_pose(state, stride, end)
    flags = _integers_at(t[_ROBOTS] + 8 * (ROBOT_COLUMNS * r + _FLAGS), 1)[0]
    near, limit = 0, 1.0
    if t[_RULES] & HAS_BODIES:
        near = _find_near(t, r, scratch, marks, cells)
        if near:
            limit = _free_of_robots(t, r, flags, scratch, marks, near)
        if not flags & MINDS_CELLS:
            limit = _past_scenery(t, r, world, scratch, marks, limit)
    if flags & MINDS_CELLS and limit == 1.0:
        _note_cells(t, r, world, scratch, marks)
    if limit < 1.0:
        _hold(t, r, world, limit, scratch)
    if near:
        _note_robots(t, r, world, scratch, marks, near, limit)


# ---- robots and robots -----------------------------------------------------------------------------------------------


@kernel
def _cell_of(value: float, size: float) -> int:
    """A number that is not one is anywhere: its robot is near nobody."""
    cell = value / size
    return math.floor(cell) if abs(cell) < 1e9 else 0


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
    count = t[_COUNT]
    radii = _floats_at(t[_BODIES], 7 * count)
    reach = 0.0
    for r in range(count):
        state, stride = _state_at(t, r, world)
        dx, dy = state[X * stride] - scratch[r, 0], state[Y * stride] - scratch[r, 1]
        way = math.sqrt(dx * dx + dy * dy)
        reach = max(reach, radii[7 * r + 6] + (way if way < 1e6 else 0.0) + GAP_M)
    size = max(2.0 * reach, 0.01)
    buckets, chain = buckets_for(count), count * (t[_WORDS] + 1)
    marks[chain + count : chain + count + buckets] = -1
    for r in range(count - 1, -1, -1):
        head = chain + count + _bucket(_cell_of(scratch[r, 0], size), _cell_of(scratch[r, 1], size), buckets)
        marks[chain + r] = marks[head]
        marks[head] = r
    return size


@kernel
def _is_near(t: Rows, r: int, other: int, scratch: Array) -> bool:
    """Whether the spheres about two robots can meet on the way of the first."""
    bodies = _floats_at(t[_BODIES], 7 * t[_COUNT])
    square, way = 0.0, 0.0
    for k in range(3):
        step = 0.5 * (scratch[r, _HERE + k] - scratch[r, k])
        apart = scratch[r, k] + step - scratch[other, _HERE + k]
        square, way = square + apart * apart, way + abs(step)
    reach = bodies[7 * r + 6] + bodies[7 * other + 6] + way + GAP_M
    return square < reach * reach


@kernel
def _find_near(t: Rows, r: int, scratch: Array, marks: Integers, cells: float) -> int:
    """Robots that the way of this one may touch: how many, and in `marks` after the bits, which."""
    count = t[_COUNT]
    first, found = count * t[_WORDS], 0
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
    others = _integers_at(t[_ROBOTS] + 8 * (ROBOT_COLUMNS * other + _FLAGS), 1)[0]
    return (t[_RULES] & STOPS_ALL) != 0 or (flags & others & IS_GROUND_BOUND) != 0


@kernel
def _comes_nearer(scratch: Array, r: int, x: float, y: float, z: float) -> bool:
    before, after = 0.0, 0.0
    for k in range(3):
        place = x if k == 0 else y if k == 1 else z
        one, other = scratch[r, k] - place, scratch[r, _HERE + k] - place
        before, after = before + one * one, after + other * other
    return after < before


@kernel
def _free_of_robots(t: Rows, r: int, flags: int, scratch: Array, marks: Integers, near: int) -> float:
    """The share of a robot's way up to the first robot that stops it."""
    first, limit = t[_COUNT] * t[_WORDS], 1.0
    for k in range(near):
        other = marks[first + k]
        if _is_stopped_by(t, flags, other):
            share = _touch_share(t, r, other, scratch)
            if share < 0.0:  # they overlap: it may only move away
                here = scratch[other]
                nearer = _comes_nearer(scratch, r, here[_HERE], here[_HERE + 1], here[_HERE + 2])
                share = 0.0 if nearer else 2.0
            limit = min(limit, share)
    return limit


@kernel
def _touch_share(t: Rows, r: int, other: int, scratch: Array) -> float:
    bodies, box = _float_grid_at(t[_BODIES], t[_COUNT], 7), np.empty(BOX_NUMBERS)
    _put_box(scratch[other, _HERE:], bodies[other], box)
    return _first_touch(scratch[r, :_VELOCITY], scratch[r, _HERE:], bodies[r], A_BOX, box)


@kernel
def _note_robots(t: Rows, r: int, world: int, scratch: Array, marks: Integers, near: int, limit: float) -> None:
    """Which robots this one touches on the way that it really went."""
    first, words = t[_COUNT] * t[_WORDS], t[_WORDS]
    bodies, box, theirs = _float_grid_at(t[_BODIES], t[_COUNT], 7), np.empty(BOX_NUMBERS), np.empty(BOX_NUMBERS)
    _put_box(scratch[r, _HERE:], bodies[r], box)
    for k in range(near):
        other = marks[first + k]
        _put_box(scratch[other, _HERE:], bodies[other], theirs)
        if _was_touching(t, r, world, other + FIRST_ROBOT):
            is_touched = _meets(box, A_BOX, theirs, GAP_M)
        else:
            share = _first_touch(scratch[r, :_VELOCITY], scratch[r, _HERE:], bodies[r], A_BOX, theirs)
            # after a stop the way ends where it began to touch: what is then a hair's breadth apart
            is_touched = share <= 1.0 or (limit < 1.0 and _meets(box, A_BOX, theirs, 0.01 * GAP_M))
        if is_touched:
            _mark(marks, words, r, other + FIRST_ROBOT)
            _mark(marks, words, other, r + FIRST_ROBOT)


# ---- robots and what stands in the world -----------------------------------------------------------------------------


@kernel
def _past_scenery(t: Rows, r: int, world: int, scratch: Array, marks: Integers, limit: float) -> float:
    """A body among solids and triangles: notes what it touches, gives how far it may go."""
    heights = _floats_at(t[_HEIGHTS], 2)
    body = _float_grid_at(t[_BODIES], t[_COUNT], 7)[r]
    low = min(scratch[r, 2], scratch[r, _HERE + 2]) - body[6]
    if t[_SOLID_COUNT] and low < heights[_CEILING]:
        limit = _past_solids(t, r, world, scratch, marks, limit)
    if t[_TRIANGLES]:
        facts = _floats_at(t[_MESH_FACTS], 7)
        if low < facts[6] and max(scratch[r, 2], scratch[r, _HERE + 2]) + body[6] > facts[5]:
            limit = _past_mesh(t, r, world, scratch, marks, limit)
    return limit


@kernel
def _reach(scratch: Array, r: int, body: Array) -> tuple[float, float, float]:
    """A circle of the ground that holds a robot on its way: middle and radius."""
    dx, dy = scratch[r, _HERE] - scratch[r, 0], scratch[r, _HERE + 1] - scratch[r, 1]
    return scratch[r, 0] + 0.5 * dx, scratch[r, 1] + 0.5 * dy, body[6] + 0.5 * (abs(dx) + abs(dy)) + GAP_M


@kernel
def _is_among_free_cells(scene: Scene, x: float, y: float, reach: float) -> bool:
    rows, columns = scene.clearance.shape
    u, v = (x - scene.west) / scene.cell, (y - scene.south) / scene.cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return False
    return (float(scene.clearance[int(v), int(u)]) - 1.0) * scene.cell > reach


@kernel
def _past_solids(t: Rows, r: int, world: int, scratch: Array, marks: Integers, limit: float) -> float:
    scene = _scene_at(t[_SCENE], world, _floats_at(t[_SCENE], 0))
    body = _float_grid_at(t[_BODIES], t[_COUNT], 7)[r]
    x, y, reach = _reach(scratch, r, body)
    if _is_among_free_cells(scene, x, y, reach):
        return limit
    solids = _float_grid_at(t[_SOLIDS], t[_SOLID_COUNT], SOLID_COLUMNS)
    places = _float_grid_at(t[_PLACES] + world * t[_PLACES_STEP], t[_SOLID_COUNT], 3)
    thing = np.zeros(BOX_NUMBERS)
    for k in range(t[_SOLID_COUNT]):
        beside = abs(places[k, 0] - x) >= reach + solids[k, _HALF_X]
        if beside or abs(places[k, 1] - y) >= reach + solids[k, _HALF_Y] or places[k, 2] == 0.0:
            continue
        kind = _put_solid(t, scene, solids[k], places[k], thing)
        limit = _touch(t, r, world, kind, thing, _AN_OBSTACLE, scratch, marks, limit)
    return limit


@kernel
def _put_solid(t: Rows, scene: Scene, solid: Array, place: Array, thing: Array) -> int:
    """A solid as a thing that bodies meet; gives its kind. What stands on the ground reaches under it."""
    lowest = _floats_at(t[_HEIGHTS], 2)[_LOWEST]
    ground = _ground_height(scene.elevation, scene.cell, place[0] - scene.west, place[1] - scene.south)
    base = (ground if ground == ground else lowest) + solid[_BASE]
    top = base + solid[_TALL]
    bottom = min(base, lowest) if solid[_BASE] <= 0.0 else base
    thing[:] = 0.0
    thing[0], thing[1], thing[2] = place[0], place[1], 0.5 * (bottom + top)
    if solid[_IS_ROUND] > 0.0:
        thing[3], thing[4] = solid[_HALF_X], 0.5 * (top - bottom)
        return A_CYLINDER
    thing[3], thing[7], thing[11] = 1.0, 1.0, 1.0
    thing[12], thing[13], thing[14] = solid[_HALF_X], solid[_HALF_Y], 0.5 * (top - bottom)
    return A_BOX


@kernel
def _past_mesh(t: Rows, r: int, world: int, scratch: Array, marks: Integers, limit: float) -> float:
    facts = _floats_at(t[_MESH_FACTS], 7)  # west, south, width of a bucket, columns, rows, lowest, highest
    columns, rows = int(facts[3]), int(facts[4])
    x, y, reach = _reach(scratch, r, _float_grid_at(t[_BODIES], t[_COUNT], 7)[r])
    u, v, far = (x - facts[0]) / facts[2], (y - facts[1]) / facts[2], reach / facts[2]
    if not (u + far >= 0.0 and v + far >= 0.0 and u - far <= columns and v - far <= rows):
        return limit
    buckets = _integers_at(t[_BUCKETS], rows * columns + 1)
    items = _integers_at(t[_ITEMS], max(buckets[rows * columns], 1))
    for j in range(int(max(v - far, 0.0)), int(min(v + far, rows - 1.0)) + 1):
        for i in range(int(max(u - far, 0.0)), int(min(u + far, columns - 1.0)) + 1):
            for k in range(buckets[j * columns + i], buckets[j * columns + i + 1]):
                triangle = _floats_at(t[_TRIANGLES] + 72 * items[k], 9)
                if _is_beside(triangle, scratch, r, x, y, reach):
                    continue
                limit = _touch(t, r, world, A_TRIANGLE, triangle, A_MESH, scratch, marks, limit)
    return limit


@kernel
def _is_beside(p: Array, scratch: Array, r: int, x: float, y: float, reach: float) -> bool:
    """Whether a triangle is out of a robot's reach."""
    low, high = min(scratch[r, 2], scratch[r, _HERE + 2]) - reach, max(scratch[r, 2], scratch[r, _HERE + 2]) + reach
    if min(p[0], p[3], p[6]) > x + reach or max(p[0], p[3], p[6]) < x - reach:
        return True
    if min(p[1], p[4], p[7]) > y + reach or max(p[1], p[4], p[7]) < y - reach:
        return True
    return min(p[2], p[5], p[8]) > high or max(p[2], p[5], p[8]) < low


@kernel
def _touch(
    t: Rows, r: int, world: int, kind: int, thing: Array, bit: int, scratch: Array, marks: Integers, limit: float
) -> float:
    """Looks at one thing that stands in the world: notes whether it is touched, gives how far the robot may go."""
    body = _float_grid_at(t[_BODIES], t[_COUNT], 7)[r]
    share = _first_touch(scratch[r, :_VELOCITY], scratch[r, _HERE:], body, kind, thing)
    is_stopped = (t[_RULES] & STOPS_ALL) != 0 and share <= limit
    if is_stopped and share < 0.0:  # it is in there already: it may only move away; out of a surface, anywhere
        is_stopped = kind != A_TRIANGLE and _comes_nearer(scratch, r, thing[0], thing[1], thing[2])
    is_touched = is_stopped
    if not is_stopped and _was_touching(t, r, world, bit):
        box = np.empty(BOX_NUMBERS)
        _put_box(scratch[r, _HERE:], body, box)
        is_touched = _meets(box, kind, thing, GAP_M)
    elif not is_stopped:
        is_touched = share <= limit
    if is_touched:
        _mark(marks, t[_WORDS], r, bit)
    return max(share, 0.0) if is_stopped else limit


@kernel
def _note_cells(t: Rows, r: int, world: int, scratch: Array, marks: Integers) -> None:
    """What a robot that minds cells touches: what stopped it in this tick, or before, and it has not moved since."""
    state, stride = _state_at(t, r, world)
    before = _touch_words(t, r, world, 0) & _SCENERY_BITS
    if state[HELD * stride] == 0.0:
        if before and state[X * stride] == scratch[r, 0] and state[Y * stride] == scratch[r, 1]:
            marks[r * t[_WORDS]] |= before
        return
    if before:
        marks[r * t[_WORDS]] |= before
    else:
        _mark(marks, t[_WORDS], r, _what_stops(t, r, world, scratch))


@kernel
def _what_stops(t: Rows, r: int, world: int, scratch: Array) -> int:
    """What is in the way of a robot: around its middle, then around its body."""
    scene = _scene_at(t[_SCENE], world, _floats_at(t[_SCENE], 0))
    kinds = _byte_grid_at(t[_KINDS], t[_KINDS_ROWS], t[_KINDS_COLUMNS])
    u, v = scratch[r, _HERE] - scene.west, scratch[r, _HERE + 1] - scene.south
    for j in range(-1, 2):
        for i in range(-1, 2):
            x, y = u + i * _PROBE_M, v + j * _PROBE_M
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(scene, kinds, x, y)
    if not t[_RULES] & HAS_BODIES:
        return _AN_OBSTACLE
    box, body = np.empty(BOX_NUMBERS), _float_grid_at(t[_BODIES], t[_COUNT], 7)[r]
    _put_box(scratch[r, _HERE:], body, box)
    steps = int(min(2.0 * max(box[12], box[13]) / scene.cell, 1000.0)) + 2
    for side in range(4):
        for k in range(steps + 1):
            way = 2.0 * k / steps - 1.0
            edge = 1.0 if side < 2 else -1.0
            p = (box[12] + _PROBE_M) * (edge if side % 2 == 0 else way)
            q = (box[13] + _PROBE_M) * (way if side % 2 == 0 else edge)
            x, y = box[0] + box[3] * p + box[4] * q - scene.west, box[1] + box[6] * p + box[7] * q - scene.south
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(scene, kinds, x, y)
    return _AN_OBSTACLE


@kernel
def _kind_at(scene: Scene, kinds: Grid, x: float, y: float) -> int:
    """What blocks a point of the grid."""
    rows, columns = scene.footing.shape
    u, v = x / scene.cell, y / scene.cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return _MAP_EDGE
    if int(v) < kinds.shape[0] and int(u) < kinds.shape[1] and kinds[int(v), int(u)] > 0:
        return int(kinds[int(v), int(u)])
    return _AN_OBSTACLE


# ---- what becomes of it ----------------------------------------------------------------------------------------------


@kernel
def _hold(t: Rows, r: int, world: int, share: float, scratch: Array) -> None:
    """A robot goes only a share of its way, and is at rest there. Velocity is what it really did in the tick."""
    state, stride = _state_at(t, r, world)
    row = _integers_at(t[_ROBOTS] + 8 * ROBOT_COLUMNS * r, ROBOT_COLUMNS)
    scene, before, pose = _scene_at(t[_SCENE], world, _floats_at(t[_SCENE], 0)), scratch[r, :_VELOCITY], np.empty(6)
    _pose_between(before, scratch[r, _HERE:], share, pose)
    if row[_FLAGS] & IS_GROUND_BOUND:
        ground = _ground_height(scene.elevation, scene.cell, pose[0] - scene.west, pose[1] - scene.south)
        pose[2] = ground if ground == ground else pose[2]
    for k in range(3):
        velocity = (pose[k] - before[k]) / scene.dt
        state[(ACCELERATION_X + k) * stride] = (velocity - scratch[r, _VELOCITY + k]) / scene.dt
        state[(VELOCITY_X + k) * stride] = velocity
        state[(X + k) * stride] = pose[k]
    state[YAW_RATE * stride] *= share
    state[ROLL_RATE * stride] *= share
    state[PITCH_RATE * stride] *= share
    pose[3] = _wrap_angle(pose[3])
    state[YAW * stride], state[ROLL * stride], state[PITCH * stride] = pose[3], pose[4], pose[5]
    state[HELD * stride] = 1.0
    scratch[r, _HERE:] = pose
    zeroed, kept, place = row[_ZEROED], row[_KEPT], _ROWS_KEPT
    while zeroed:
        state[_lowest_bit(zeroed) * stride] = 0.0
        zeroed &= zeroed - 1
    while kept:
        state[_lowest_bit(kept) * stride] = scratch[r, place]
        place += 1
        kept &= kept - 1


@kernel
def _mark(marks: Integers, words: int, r: int, bit: int) -> None:
    marks[r * words + bit // 63] |= 1 << (bit % 63)


@kernel
def _touch_words(t: Rows, r: int, world: int, word: int) -> int:
    """Bits of what a robot touched after the last tick."""
    place = ((r * (t[_WORDS] + 1) + 1 + word) * t[_WIDTH]) + world
    return int(_integers_at(t[_TOUCH] + 8 * place, 1)[0])


@kernel
def _was_touching(t: Rows, r: int, world: int, bit: int) -> bool:
    return (_touch_words(t, r, world, bit // 63) >> (bit % 63)) & 1 == 1


@kernel
def _count_contacts(t: Rows, r: int, world: int, tick: int, marks: Integers) -> None:
    """Compare what a robot touches with what it touched before."""
    state, stride = _state_at(t, r, world)
    words, touching = t[_WORDS], 0
    for word in range(words):
        now, before = marks[r * words + word], _touch_words(t, r, world, word)
        if now == 0 and before == 0:
            continue
        begun, rest = now & ~before, now
        while rest:
            touching += 1
            rest &= rest - 1
        while begun:
            what = 63 * word + _lowest_bit(begun)
            state[CONTACTS * stride] += 1.0
            _integers_at(t[_TOUCH] + 8 * (r * (words + 1) * t[_WIDTH] + world), 1)[0] = what + 1
            _note_event(t, tick, r, what)
            begun &= begun - 1
        place = (r * (words + 1) + 1 + word) * t[_WIDTH] + world
        _integers_at(t[_TOUCH] + 8 * place, 1)[0] = now
    state[TOUCHING * stride] = float(touching)


@kernel
def _note_event(t: Rows, tick: int, r: int, what: int) -> None:
    """For whoever reports contacts: how many there were, then tick, robot and what of each, as far as there is room."""
    if t[_EVENT_LIST] == 0:
        return
    events = _integers_at(t[_EVENT_LIST], 1 + 3 * EVENTS)
    n = events[0]
    if n < EVENTS:
        events[1 + 3 * n], events[2 + 3 * n], events[3 + 3 * n] = tick + 1, r, what
    events[0] = n + 1


# ---- tables ----------------------------------------------------------------------------------------------------------


@kernel
def remember_now(table: int, world: int, tick: int) -> None:
    """As a call inside a tick, with the table's own scratch."""
    t = _integers_at(table, _TABLE_COLUMNS)
    remember(table, world, _float_grid_at(t[_SCRATCH], t[_COUNT], SCRATCH_COLUMNS))


@kernel
def settle_now(table: int, world: int, tick: int) -> None:
    t = _integers_at(table, _TABLE_COLUMNS)
    count = t[_COUNT]
    marks = _integers_at(t[_MARKS], count * (t[_WORDS] + 2) + buckets_for(count))
    settle(table, world, tick, _float_grid_at(t[_SCRATCH], count, SCRATCH_COLUMNS), marks)
