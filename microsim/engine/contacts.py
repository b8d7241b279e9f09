"""Contacts: what robots touch, in every tick, and what that does to their motion.

`remember` keeps the poses before robots move, `settle` looks at their paths afterwards. Robots go one after another, in
the order of the scenario, past others that are where they are then. A contact begins when a body overlaps something on
its way, or when something stops the robot. It lasts until they are GAP_M apart, or until the robot moves on from what
stopped it. Beginnings are counted (`contacts` of the state), for both of two robots.

A robot that is stopped stays where it began to touch, at rest. Two that overlap already, from their start or a
teleport, can only move apart. A `CONTACTS` record describes one world, or all of a batch: `world` says which.
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import bodies as _bodies
from microsim.engine import calls as _calls
from microsim.engine import components as _components
from microsim.engine import exact, geometry
from microsim.engine import records as _records
from microsim.engine import world as _world
from microsim.engine.bodies import BODY, BOX, CYLINDER, MATRIX, POSE, SOLID, TRIANGLE
from microsim.engine.calls import Scene
from microsim.engine.columns import Column
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid
from microsim.engine.records import (
    ADDRESS,
    GRID,
    SPAN,
    VEC3,
    Record,
    Records,
    grid_in,
    record,
    record_at,
    record_room,
    records_at,
    records_in,
)

Integers: TypeAlias = npt.NDArray[np.int64]

SCENERY = ("obstacle", "mesh", "map edge", "missing ground")  # what robots touch beside each other, by bit
OBSTACLE, MESH, MAP_EDGE, MISSING_GROUND = range(4)
FIRST_ROBOT = len(SCENERY)  # bit of the first robot
_SCENERY_BITS = (1 << FIRST_ROBOT) - 1

GAP_M = 1e-3  # a contact between bodies ends when they are farther apart
_PROBE_M = 5e-3  # how far around a stopped robot its obstacle is looked for
_ALL_PAIRS = 24  # robots; among more, neighbours are found by cells
MOST_KEPT = 4  # rows of a robot's own that stay as they were

MOVER = record(  # a robot
    state=ADDRESS,  # its column, in world 0
    step=int,  # [numbers] from one row to the next
    is_ground_bound=int,
    stops_at_cells=int,  # by itself
    zeroed=int,  # a bit for each row that is 0 after something stopped it
    kept=int,  # a bit for each row that then stays as it was
    body=BODY,
)
PATH = record(  # of a robot in a tick
    start=POSE,
    velocity=VEC3,  # before the tick
    kept=(float, (MOST_KEPT,)),
    end=POSE,
    obstacle=int,  # which it touches, counted from 1: what stopped it, or the first; 0: none
)
OUTLINE = record(half_x=float, half_y=float, is_round=float, base_m=float, height_m=float)  # of an obstacle [m]
OUTLINE_SIZE = OUTLINE.itemsize // 8
PLACE = record(x=float, y=float, is_there=float)  # of an obstacle's middle
HEIGHTS = record(ceiling=float, lowest=float)  # above the first [m] there is no obstacle, below the second no ground
CORNERS = record(corners=MATRIX)  # of a triangle
_CORNERS_BYTES = CORNERS.itemsize
BUCKETS = record(  # a mesh, by squares of the ground
    triangles=ADDRESS,
    starts=SPAN,  # where those of a square begin in `items`, rows from the south
    items=SPAN,  # numbers of triangles
    west=float,
    south=float,
    width=float,  # of a square [m]
    columns=int,
    rows=int,
    lowest=float,
    highest=float,
)
# a contact that began: where the robot is [m], and how fast it was just before [m/s]
EVENT = record(tick=int, robot=int, code=int, x=float, y=float, z=float, speed=float)
EVENTS = 256  # that are kept until they are read
CONTACTS = record(
    remember=ADDRESS,  # compiled for a single world, and called with the address of this record
    settle=ADDRESS,
    tick=int,  # of the call
    movers=SPAN,
    has_bodies=int,  # else only what stops robots by itself counts
    stops_all=int,
    touched=ADDRESS,  # (robots, words + 2, worlds), see `_touched_at`
    words=int,  # of 63 bits
    worlds=int,  # at most
    scene=ADDRESS,
    outlines=SPAN,
    outlines_step=int,  # [bytes] from one world's to the next; 0: shared
    places=ADDRESS,
    places_step=int,
    heights=ADDRESS,
    heights_step=int,
    kinds=GRID,  # what occupies a cell, where it is not an obstacle
    mesh=BUCKETS,
    paths=ADDRESS,  # where a single world works
    marks=SPAN,
    events=SPAN,
    begun=int,  # contacts since the events were read
)

contacts_at = record_at(CONTACTS)
_contacts_at = contacts_at
_movers_in, _paths_at, _outlines_at, _places_at = (
    records_in(MOVER), records_at(PATH), records_at(OUTLINE), records_at(PLACE),
)  # fmt: skip
_triangle_at, _heights_at, _events_in = record_at(CORNERS), record_at(HEIGHTS), records_in(EVENT)
_kinds_in, _integers_in = grid_in(np.uint8), _records.integers_in
_pose_room, _solid_room = record_room(POSE), record_room(SOLID)
_state_from, _trace_at = _components.state_from, _components.trace_at
_first_touch, _meets, _pose_between, _put_box = (
    _bodies.first_touch, _bodies.meets, _bodies.pose_between, _bodies.put_box,
)  # fmt: skip
_floats_at, _integers_at, _scene_at = _calls.floats_at, _calls.integers_at, _calls.scene_at
_ground_height, _is_free, _wrap_angle = geometry.ground_height, geometry.is_free, exact.wrap_angle
_overlaps_cell, _standing = _world.overlaps_cell, _world.standing


@kernel
def _read_pose(state: Column, pose: Record) -> None:
    pose.place[0], pose.place[1], pose.place[2] = state.x, state.y, state.z
    pose.yaw, pose.roll, pose.pitch = state.yaw, state.roll, state.pitch


@kernel
def _state_of(c: Record, r: int, world: int) -> Column:
    mover = _movers_in(c.movers)[r]
    return _state_from(mover.state + 8 * world, 8 * mover.step)


@kernel
def begin_tick_of(state: Column, path: Record) -> None:
    """What `is_quiet` needs of `remember`."""
    state.is_stopped = 0.0
    _read_pose(state, path.start)
    _read_pose(state, path.end)


@kernel
def remember(c: Record, world: int, paths: Records) -> None:
    """Before robots move: keep what is needed afterwards."""
    movers = _movers_in(c.movers)
    for r in range(movers.shape[0]):
        mover, path, state = movers[r], paths[r], _state_of(c, r, world)
        begin_tick_of(state, path)
        path.velocity[0], path.velocity[1], path.velocity[2] = state.velocity_x, state.velocity_y, state.velocity_z
        rows, kept, place = _floats_at(mover.state + 8 * world, 63 * mover.step), mover.kept, 0
        while kept:
            path.kept[place] = rows[_lowest_bit(kept) * mover.step]
            place += 1
            kept &= kept - 1


@kernel
def _lowest_bit(mask: int) -> int:
    bit = 0
    while mask & (1 << bit) == 0:
        bit += 1
    return bit


@kernel
def settle(c: Record, world: int, tick: int, paths: Records, marks: Integers) -> None:
    """After robots moved: stop those that something stops, and count contacts that begin. `marks`: see `marks_for`."""
    count = c.movers.count
    for k in range(count * c.words):
        marks[k] = 0
    for r in range(count):
        paths[r].obstacle = 0
    cells = 0.0
    if count > _ALL_PAIRS and c.has_bodies:
        cells = _sort_into_cells(c, world, paths, marks)
    for r in range(count):
        _settle_one(c, r, world, paths, marks, cells)
    for r in range(count):
        _count_contacts(c, r, world, tick, paths[r], marks)


@kernel
def find_quiet(address: int, first: int, traces: Array, reach: Array, quiet: Integers) -> None:
    """Worlds first … in which `settle` would have left every robot alone in all of some ticks: 1 in `quiet`, else 0.

    traces (robots, 4, len(quiet) or more): where they were, and how far from there at the most. Nothing is so
    near. For loops that run ahead: they need not look at every tick. reach: room as wide to work in.
    """
    c, count = _contacts_at(address), quiet.shape[0]
    quiet[:] = c.has_bodies
    movers = _movers_in(c.movers)
    for r in range(movers.shape[0]):
        for i in range(count):
            reach[r, i] = math.sqrt(_trace_at(traces[r], i).farthest) * 1.000001 + 1e-9  # rounding included
        _drop_stopped(c, r, first, reach[r], quiet)
        for other in range(r):
            apart = movers[r].body.reach + movers[other].body.reach + 2.0 * GAP_M
            for i in range(count):
                one, two = _trace_at(traces[r], i), _trace_at(traces[other], i)
                x, y, z, gap = one.x - two.x, one.y - two.y, one.z - two.z, apart + reach[r, i] + reach[other, i]
                quiet[i] = quiet[i] if x * x + y * y + z * z > gap * gap else 0
        if not movers[r].stops_at_cells:
            _drop_near_scenery(c, r, first, traces[r], reach[r], quiet)


@kernel
def _drop_stopped(c: Record, r: int, first: int, reach: Array, quiet: Integers) -> None:
    """Worlds in which something stopped this robot, or touched it before."""
    mover, count = _movers_in(c.movers)[r], quiet.shape[0]
    states, step = mover.state + 8 * first, 8 * mover.step
    for i in range(count):
        quiet[i] = quiet[i] if (_state_from(states + 8 * i, step).is_stopped == 0.0) & (reach[i] < math.inf) else 0
    for word in range(c.words):
        bits = _integers_at(_touched_at(c, r, first, 1 + word), count)
        for i in range(count):
            quiet[i] = quiet[i] if bits[i] == 0 else 0


@kernel
def is_quiet(c: Record, r: int, world: int, state: Column, paths: Records) -> bool:
    """Whether `settle` would leave a robot alone that touched nothing before; to be asked of one after the other.

    So what runs ahead (`batch.cuda_kernels`) need not look at every contact.
    """
    _read_pose(state, paths[r].end)
    if state.is_stopped != 0.0:
        return False
    movers = _movers_in(c.movers)
    for other in range(paths.shape[0]):
        if other != r and _is_near(movers, r, other, paths):
            return False
    return movers[r].stops_at_cells != 0 or _is_clear_of_scenery(c, movers[r].body, world, paths[r])


@kernel
def _settle_one(c: Record, r: int, world: int, paths: Records, marks: Integers, cells: float) -> None:
    """One robot's way from where it was, past the others where they are now."""
    state, mover = _state_of(c, r, world), _movers_in(c.movers)[r]
    _read_pose(state, paths[r].end)
    near, limit = 0, 1.0
    if c.has_bodies:
        near = _find_near(c, r, paths, marks, cells)
        if near:
            limit = _free_of_robots(c, r, paths, marks, near)
        if not mover.stops_at_cells:
            limit = _past_scenery(c, r, world, paths[r], marks, limit)
    if mover.stops_at_cells and limit == 1.0:
        _note_cells(c, r, world, state, paths[r], marks)
    if limit < 1.0:
        _stop(c, mover, world, limit, paths[r])
    if near:
        _note_robots(c, r, world, paths, marks, near, limit)


# ---- what is touched, in bits ----------------------------------------------------------------------------------------


@kernel
def _mark(c: Record, marks: Integers, r: int, bit: int) -> None:
    marks[r * c.words + bit // 63] |= 1 << (bit % 63)


@kernel
def _touched_at(c: Record, r: int, world: int, row: int) -> int:
    """Address of what is kept of a robot's contacts; the next world's follows.

    Row 0: the code of what it touched last; 1 …: words of bits; then which obstacle it touches.
    """
    return int(c.touched + 8 * ((r * (c.words + 2) + row) * c.worlds + world))


@kernel
def touched_bits(c: Record, r: int, world: int, word: int) -> int:
    """Bits of what a robot touched after the last tick."""
    return int(_integers_at(_touched_at(c, r, world, 1 + word), 1)[0])


@kernel
def _was_touching(c: Record, r: int, world: int, bit: int) -> bool:
    return (touched_bits(c, r, world, bit // 63) >> (bit % 63)) & 1 == 1


@kernel
def code_of(what: int, which: int) -> int:
    """A bit and the obstacle's number as one, above 0."""
    return what + 1 + ((which << 32) if what == OBSTACLE else 0)


def decoded(code: int) -> tuple[int, int]:
    return (code & 0xFFFFFFFF) - 1, code >> 32


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
def _buckets_for(count: int) -> int:
    buckets = 1
    while buckets < count:
        buckets *= 2
    return buckets


@kernel
def marks_for(count: int, words: int) -> int:
    """How many integers `settle` works with: bits of what each robot touches, robots that are near one of them, the
    next robot of each one's chain, and the first of each chain.
    """
    return count * (words + 2) + _buckets_for(count)


@kernel
def _sort_into_cells(c: Record, world: int, paths: Records, marks: Integers) -> float:
    """Chains of robots by cell of the ground before the tick, so wide that only neighbours can touch; gives the width.

    In `marks`; -1: none.
    """
    movers, count = _movers_in(c.movers), c.movers.count
    reach = 0.0
    for r in range(count):
        state, start = _state_of(c, r, world), paths[r].start.place
        dx, dy = state.x - start[0], state.y - start[1]
        way = math.sqrt(dx * dx + dy * dy)
        reach = max(reach, movers[r].body.reach + (way if way < 1e6 else 0.0) + GAP_M)
    size = max(2.0 * reach, 0.01)
    buckets, chain = _buckets_for(count), count * (c.words + 1)
    for k in range(chain + count, chain + count + buckets):
        marks[k] = -1
    for r in range(count - 1, -1, -1):
        start = paths[r].start.place
        head = chain + count + _bucket(_cell_of(start[0], size), _cell_of(start[1], size), buckets)
        marks[chain + r] = marks[head]
        marks[head] = r
    return size


@kernel
def _is_near(movers: Records, r: int, other: int, paths: Records) -> bool:
    """Whether the spheres about two robots can meet on the way of the first."""
    square, way, start, end = 0.0, 0.0, paths[r].start.place, paths[r].end.place
    for k in range(3):
        step = 0.5 * (end[k] - start[k])
        apart = start[k] + step - paths[other].end.place[k]
        square, way = square + apart * apart, way + abs(step)
    reach = movers[r].body.reach + movers[other].body.reach + way + GAP_M
    return square < reach * reach


@kernel
def _find_near(c: Record, r: int, paths: Records, marks: Integers, cells: float) -> int:
    """Robots that the way of this one may touch: how many, and in `marks` after the bits, which."""
    movers, count = _movers_in(c.movers), c.movers.count
    first, found = count * c.words, 0
    if cells == 0.0:
        for other in range(count):
            if other != r and _is_near(movers, r, other, paths):
                marks[first + found] = other
                found += 1
        return found
    buckets, chain = _buckets_for(count), first + count
    start = paths[r].start.place
    column, row = _cell_of(start[0], cells), _cell_of(start[1], cells)
    for j in range(row - 1, row + 2):
        for i in range(column - 1, column + 2):
            other = marks[chain + count + _bucket(i, j, buckets)]
            while other >= 0:
                place = paths[other].start.place
                is_here = _cell_of(place[0], cells) == i and _cell_of(place[1], cells) == j
                if is_here and other != r and _is_near(movers, r, other, paths):
                    marks[first + found] = other
                    found += 1
                other = marks[chain + other]
    return found


@kernel
def _free_of_robots(c: Record, r: int, paths: Records, marks: Integers, near: int) -> float:
    """The share of a robot's way up to the first robot that stops it."""
    movers, box = _movers_in(c.movers), _solid_room()
    first, limit = c.movers.count * c.words, 1.0
    for k in range(near):
        other = marks[first + k]
        if c.stops_all or (movers[r].is_ground_bound and movers[other].is_ground_bound):
            _put_box(paths[other].end, movers[other].body, box)
            share = _first_touch(paths[r].start, paths[r].end, movers[r].body, box)
            if share < 0.0:  # they overlap: it may only move away
                share = 0.0 if _comes_nearer(paths[r], paths[other].end.place) else 2.0
            limit = min(limit, share)
    return limit


@kernel
def _comes_nearer(path: Record, place: Array) -> bool:
    before, after = 0.0, 0.0
    for k in range(3):
        one, other = path.start.place[k] - place[k], path.end.place[k] - place[k]
        before, after = before + one * one, after + other * other
    return after < before


@kernel
def _note_robots(c: Record, r: int, world: int, paths: Records, marks: Integers, near: int, limit: float) -> None:
    """Which robots this one touches on the way that it really went."""
    movers, first = _movers_in(c.movers), c.movers.count * c.words
    box, theirs = _solid_room(), _solid_room()
    _put_box(paths[r].end, movers[r].body, box)
    for k in range(near):
        other = marks[first + k]
        _put_box(paths[other].end, movers[other].body, theirs)
        if _was_touching(c, r, world, other + FIRST_ROBOT):
            is_touched = _meets(box, theirs, GAP_M)
        else:
            share = _first_touch(paths[r].start, paths[r].end, movers[r].body, theirs)
            # after a stop the way ends where it began to touch: what is then a hair's breadth apart
            is_touched = share <= 1.0 or (limit < 1.0 and _meets(box, theirs, 0.01 * GAP_M))
        if is_touched:
            _mark(c, marks, r, other + FIRST_ROBOT)
            _mark(c, marks, other, r + FIRST_ROBOT)


# ---- robots and what stands in the world: solids and triangles for bodies, cells for those that stop at them ---------


@kernel
def _is_beside_mesh(mesh: Record, low: float, high: float) -> bool:
    return mesh.triangles == 0 or not (low < mesh.highest and high > mesh.lowest)


@kernel
def _past_scenery(c: Record, r: int, world: int, path: Record, marks: Integers, limit: float) -> float:
    """A body among solids and triangles: notes what it touches, gives how far it may go."""
    body = _movers_in(c.movers)[r].body
    low = min(path.start.place[2], path.end.place[2]) - body.reach
    high = max(path.start.place[2], path.end.place[2]) + body.reach
    if c.outlines.count and low < _heights_at(c.heights).ceiling:
        limit = _past_obstacles(c, r, world, path, marks, limit)
    if not _is_beside_mesh(c.mesh, low, high):
        limit = _past_mesh(c, r, world, path, marks, limit)
    return limit


@kernel
def _is_clear_of_scenery(c: Record, body: Record, world: int, path: Record) -> bool:
    """Whether heights and free cells alone show that `_past_scenery` finds nothing."""
    low = min(path.start.place[2], path.end.place[2]) - body.reach
    high = max(path.start.place[2], path.end.place[2]) + body.reach
    if not _is_beside_mesh(c.mesh, low, high):
        return False
    if c.outlines.count == 0 or not low < _heights_at(c.heights).ceiling:
        return True
    x, y, reach = _circle_of(path, body)
    return _is_among_free_cells(_scene_at(c.scene, world, _floats_at(c.scene, 0)), x, y, reach)


@kernel
def _circle_of(path: Record, body: Record) -> tuple[float, float, float]:
    """A circle of the ground that holds a robot on its way: middle and radius."""
    start, end = path.start.place, path.end.place
    dx, dy = end[0] - start[0], end[1] - start[1]
    return start[0] + 0.5 * dx, start[1] + 0.5 * dy, body.reach + 0.5 * (abs(dx) + abs(dy)) + GAP_M


@kernel
def _is_among_free_cells(scene: Scene, x: float, y: float, reach: float) -> bool:
    rows, columns = scene.clearance.shape
    u, v = (x - scene.west) / scene.cell, (y - scene.south) / scene.cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return False
    return (float(scene.clearance[int(v), int(u)]) - 1.0) * scene.cell > reach


@kernel
def _obstacles_of(c: Record, world: int) -> tuple[Records, Records]:
    """What they are, and where."""
    count = c.outlines.count
    outlines = _outlines_at(c.outlines.address + world * c.outlines_step, count)
    return outlines, _places_at(c.places + world * c.places_step, count)


@kernel
def _past_obstacles(c: Record, r: int, world: int, path: Record, marks: Integers, limit: float) -> float:
    scene = _scene_at(c.scene, world, _floats_at(c.scene, 0))
    x, y, reach = _circle_of(path, _movers_in(c.movers)[r].body)
    if _is_among_free_cells(scene, x, y, reach):
        return limit
    outlines, places = _obstacles_of(c, world)
    lowest, solid = _heights_at(c.heights + world * c.heights_step).lowest, _solid_room()
    for k in range(outlines.shape[0]):
        outline, place = outlines[k], places[k]
        beside = abs(place.x - x) >= reach + outline.half_x
        if beside or abs(place.y - y) >= reach + outline.half_y or place.is_there == 0.0:
            continue
        _put_obstacle(scene, lowest, outline, place, solid)
        limit = _touch(c, r, world, solid, OBSTACLE, k + 1, path, marks, limit)
    return limit


@kernel
def _put_obstacle(scene: Scene, lowest: float, outline: Record, place: Record, solid: Record) -> None:
    """An obstacle as a solid that bodies meet."""
    ground = _ground_height(scene.elevation, scene.cell, place.x - scene.west, place.y - scene.south)
    bottom, top = _standing(ground, lowest, outline.base_m, outline.height_m)
    solid.kind = CYLINDER if outline.is_round > 0.0 else BOX
    solid.middle[0], solid.middle[1], solid.middle[2] = place.x, place.y, 0.5 * (bottom + top)
    solid.half[0], solid.half[1], solid.half[2] = outline.half_x, outline.half_y, 0.5 * (top - bottom)
    for k in range(3):
        for i in range(3):
            solid.axes[k, i] = 1.0 if i == k else 0.0


@kernel
def _past_mesh(c: Record, r: int, world: int, path: Record, marks: Integers, limit: float) -> float:
    mesh, solid = c.mesh, _solid_room()
    x, y, reach = _circle_of(path, _movers_in(c.movers)[r].body)
    u, v, far = (x - mesh.west) / mesh.width, (y - mesh.south) / mesh.width, reach / mesh.width
    if not (u + far >= 0.0 and v + far >= 0.0 and u - far <= mesh.columns and v - far <= mesh.rows):
        return limit
    starts, items = _integers_in(mesh.starts), _integers_in(mesh.items)
    low = min(path.start.place[2], path.end.place[2]) - reach
    high = max(path.start.place[2], path.end.place[2]) + reach
    solid.kind = TRIANGLE
    for j in range(int(max(v - far, 0.0)), int(min(v + far, mesh.rows - 1.0)) + 1):
        for i in range(int(max(u - far, 0.0)), int(min(u + far, mesh.columns - 1.0)) + 1):
            for k in range(starts[j * mesh.columns + i], starts[j * mesh.columns + i + 1]):
                p = _triangle_at(mesh.triangles + _CORNERS_BYTES * items[k]).corners
                if _is_beside(p, x, y, reach, low, high):
                    continue
                for corner in range(3):
                    for axis in range(3):
                        solid.corners[corner, axis] = p[corner, axis]
                limit = _touch(c, r, world, solid, MESH, 0, path, marks, limit)
    return limit


@kernel
def _is_beside(p: Any, x: float, y: float, reach: float, low: float, high: float) -> bool:
    """Whether a triangle is out of a robot's reach."""
    if min(p[0, 0], p[1, 0], p[2, 0]) > x + reach or max(p[0, 0], p[1, 0], p[2, 0]) < x - reach:
        return True
    if min(p[0, 1], p[1, 1], p[2, 1]) > y + reach or max(p[0, 1], p[1, 1], p[2, 1]) < y - reach:
        return True
    return min(p[0, 2], p[1, 2], p[2, 2]) > high or max(p[0, 2], p[1, 2], p[2, 2]) < low


@kernel
def _touch(
    c: Record, r: int, world: int, solid: Record, bit: int, which: int, path: Record, marks: Integers, limit: float
) -> float:
    """Looks at one thing that stands in the world: notes whether it is touched, gives how far the robot may go."""
    body = _movers_in(c.movers)[r].body
    share = _first_touch(path.start, path.end, body, solid)
    is_stopped = c.stops_all != 0 and share <= limit
    if is_stopped and share < 0.0:  # it is in there already: it may only move away; out of a surface, anywhere
        is_stopped = solid.kind != TRIANGLE and _comes_nearer(path, solid.middle)
    is_touched = is_stopped
    if not is_stopped and _was_touching(c, r, world, bit):
        box = _solid_room()
        _put_box(path.end, body, box)
        is_touched = _meets(box, solid, GAP_M)
    elif not is_stopped:
        is_touched = share <= limit
    if is_touched:
        _mark(c, marks, r, bit)
        if bit == OBSTACLE and (path.obstacle == 0 or (is_stopped and share < limit)):
            path.obstacle = which
    return max(share, 0.0) if is_stopped else limit


@kernel
def _note_cells(c: Record, r: int, world: int, state: Column, path: Record, marks: Integers) -> None:
    """What a robot that stops at cells touches: what stopped it in this tick, or before, and it has not moved since."""
    before = touched_bits(c, r, world, 0) & _SCENERY_BITS
    path.obstacle = touched_bits(c, r, world, c.words)
    if state.is_stopped == 0.0:
        if before and state.x == path.start.place[0] and state.y == path.start.place[1]:
            marks[r * c.words] |= before
        return
    if before:
        marks[r * c.words] |= before
    else:
        path.obstacle = 0
        _mark(c, marks, r, _what_stops(c, r, world, path))


@kernel
def _what_stops(c: Record, r: int, world: int, path: Record) -> int:
    """What is in the way of a robot: around its middle, then around its body."""
    scene, kinds, end = _scene_at(c.scene, world, _floats_at(c.scene, 0)), _kinds_in(c.kinds), path.end.place
    u, v = end[0] - scene.west, end[1] - scene.south
    for j in range(-1, 2):
        for i in range(-1, 2):
            x, y = u + i * _PROBE_M, v + j * _PROBE_M
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(c, scene, kinds, world, x, y, path)
    if not c.has_bodies:
        return OBSTACLE
    box = _solid_room()
    _put_box(path.end, _movers_in(c.movers)[r].body, box)
    half, axes = box.half, box.axes
    steps = int(min(2.0 * max(half[0], half[1]) / scene.cell, 1000.0)) + 2
    for side in range(4):
        for k in range(steps + 1):
            way = 2.0 * k / steps - 1.0
            edge = 1.0 if side < 2 else -1.0
            p = (half[0] + _PROBE_M) * (edge if side % 2 == 0 else way)
            q = (half[1] + _PROBE_M) * (way if side % 2 == 0 else edge)
            x = box.middle[0] + axes[0, 0] * p + axes[0, 1] * q - scene.west
            y = box.middle[1] + axes[1, 0] * p + axes[1, 1] * q - scene.south
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(c, scene, kinds, world, x, y, path)
    return OBSTACLE


@kernel
def _kind_at(c: Record, scene: Scene, kinds: Grid, world: int, x: float, y: float, path: Record) -> int:
    """What blocks a point of the grid; notes which obstacle."""
    rows, columns = scene.footing.shape
    u, v = x / scene.cell, y / scene.cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return MAP_EDGE
    if int(v) < kinds.shape[0] and int(u) < kinds.shape[1] and kinds[int(v), int(u)] > 0:
        return int(kinds[int(v), int(u)])
    path.obstacle = _obstacle_over(c, scene, world, int(u), int(v))
    return OBSTACLE


@kernel
def _obstacle_over(c: Record, scene: Scene, world: int, i: int, j: int) -> int:
    """The first obstacle that overlaps a cell, counted from 1; 0: none."""
    outlines, places = _obstacles_of(c, world)
    for k in range(outlines.shape[0]):
        outline, place = outlines[k], places[k]
        x, y, is_round = place.x - scene.west, place.y - scene.south, outline.is_round > 0.0
        if place.is_there != 0.0 and _overlaps_cell(i, j, scene.cell, x, y, outline.half_x, outline.half_y, is_round):
            return k + 1
    return 0


@kernel
def _drop_near_scenery(c: Record, r: int, first: int, trace: Array, ways: Array, quiet: Integers) -> None:
    """Worlds first … in which a robot could have met something on a way of that length [m], in any direction."""
    radius, mesh = _movers_in(c.movers)[r].body.reach + GAP_M, c.mesh
    if mesh.triangles:
        for i in range(quiet.shape[0]):
            z, reach = _trace_at(trace, i).z, radius + ways[i]
            quiet[i] = quiet[i] if (z - reach >= mesh.highest) | (z + reach <= mesh.lowest) else 0
    if c.outlines.count == 0:
        return
    ceiling, low = _heights_at(c.heights).ceiling, 0
    for i in range(quiet.shape[0]):
        low += 0 if _trace_at(trace, i).z - (radius + ways[i]) >= ceiling else 1
    for i in range(quiet.shape[0] if low else 0):
        place, reach = _trace_at(trace, i), radius + ways[i]
        if quiet[i] and not place.z - reach >= ceiling:
            scene = _scene_at(c.scene, first + i, _floats_at(c.scene, 0))
            quiet[i] = 1 if _is_among_free_cells(scene, place.x, place.y, reach) else 0


# ---- what becomes of it ----------------------------------------------------------------------------------------------


@kernel
def _stop(c: Record, mover: Record, world: int, share: float, path: Record) -> None:
    """A robot goes only a share of its way, and is at rest there. Velocity is what it really did in the tick."""
    scene, pose, before = _scene_at(c.scene, world, _floats_at(c.scene, 0)), _pose_room(), path.start.place
    state = _state_from(mover.state + 8 * world, 8 * mover.step)
    _pose_between(path.start, path.end, share, pose)
    place = pose.place
    if mover.is_ground_bound:
        ground = _ground_height(scene.elevation, scene.cell, place[0] - scene.west, place[1] - scene.south)
        place[2] = ground if ground == ground else place[2]
    x, y, z = (place[0] - before[0]) / scene.dt, (place[1] - before[1]) / scene.dt, (place[2] - before[2]) / scene.dt
    state.acceleration_x = (x - path.velocity[0]) / scene.dt
    state.acceleration_y = (y - path.velocity[1]) / scene.dt
    state.acceleration_z = (z - path.velocity[2]) / scene.dt
    state.velocity_x, state.velocity_y, state.velocity_z = x, y, z
    state.x, state.y, state.z = place[0], place[1], place[2]
    state.yaw_rate *= share
    state.roll_rate *= share
    state.pitch_rate *= share
    pose.yaw = _wrap_angle(pose.yaw)
    state.yaw, state.roll, state.pitch = pose.yaw, pose.roll, pose.pitch
    state.is_stopped = 1.0
    for k in range(3):
        path.end.place[k] = place[k]
    path.end.yaw, path.end.roll, path.end.pitch = pose.yaw, pose.roll, pose.pitch
    rows, zeroed, kept, number = _floats_at(mover.state + 8 * world, 63 * mover.step), mover.zeroed, mover.kept, 0
    while zeroed:
        rows[_lowest_bit(zeroed) * mover.step] = 0.0
        zeroed &= zeroed - 1
    while kept:
        rows[_lowest_bit(kept) * mover.step] = path.kept[number]
        number += 1
        kept &= kept - 1


@kernel
def _count_contacts(c: Record, r: int, world: int, tick: int, path: Record, marks: Integers) -> None:
    """Compare what a robot touches with what it touched before."""
    state, words, touching = _state_of(c, r, world), c.words, 0
    for word in range(words):
        now, before = marks[r * words + word], touched_bits(c, r, world, word)
        if now == 0 and before == 0:
            continue
        begun, rest = now & ~before, now
        while rest:
            touching += 1
            rest &= rest - 1
        while begun:
            state.contacts += 1.0
            code = code_of(63 * word + _lowest_bit(begun), path.obstacle)
            _integers_at(_touched_at(c, r, world, 0), 1)[0] = code
            _note_event(c, tick, r, code, state, path)
            begun &= begun - 1
        _integers_at(_touched_at(c, r, world, 1 + word), 1)[0] = now
    touches_obstacle = (marks[r * words] >> OBSTACLE) & 1
    _integers_at(_touched_at(c, r, world, 1 + words), 1)[0] = path.obstacle if touches_obstacle else 0
    state.touching = float(touching)


@kernel
def _note_event(c: Record, tick: int, r: int, code: int, state: Column, path: Record) -> None:
    """For reports of contacts, as far as there is room."""
    if c.events.count == 0:
        return
    if c.begun < c.events.count:
        event = _events_in(c.events)[c.begun]
        event.tick, event.robot, event.code = tick + 1, r, code
        event.x, event.y, event.z = state.x, state.y, state.z
        u, v, w = path.velocity[0], path.velocity[1], path.velocity[2]
        event.speed = math.sqrt(u * u + v * v + w * w)
    c.begun += 1


# ---- in the tick of a single world -----------------------------------------------------------------------------------


def remember_now(address: int) -> None:
    """Called by address: compiled into every loop over ticks, it would be translated once for each."""
    c = _contacts_at(address)
    remember(c, 0, _paths_at(c.paths, c.movers.count))


def settle_now(address: int) -> None:
    c = _contacts_at(address)
    settle(c, 0, c.tick, _paths_at(c.paths, c.movers.count), _integers_in(c.marks))
