"""Robots and what stands in the world: solids and triangles for bodies, cells for those that mind them."""

from microsim.engine import bodies as _bodies
from microsim.engine import calls as _calls
from microsim.engine import geometry
from microsim.engine.bodies import A_BOX, A_CYLINDER, A_TRIANGLE, BOX_NUMBERS
from microsim.engine.calls import TRACE_X, TRACE_Y, TRACE_Z, Rows, Scene
from microsim.engine.compiled import kernel
from microsim.engine.components import HELD, X, Y
from microsim.engine.contact_rows import (
    A_MESH,
    AN_OBSTACLE,
    BASE,
    BODIES,
    BUCKETS,
    CEILING,
    COUNT,
    GAP_M,
    HALF_X,
    HALF_Y,
    HAS_BODIES,
    HEIGHTS,
    HEIGHTS_STEP,
    HERE,
    IS_ROUND,
    ITEMS,
    KINDS,
    KINDS_COLUMNS,
    KINDS_ROWS,
    LOWEST,
    MAP_EDGE,
    MESH_FACTS,
    PLACES,
    PLACES_STEP,
    PROBE_M,
    RULES,
    SCENE,
    SCENERY_BITS,
    SOLID_COLUMNS,
    SOLID_COUNT,
    SOLIDS,
    SOLIDS_STEP,
    STOPS_ALL,
    TALL,
    TRIANGLES,
    VELOCITY,
    WHICH,
    WORDS,
    Integers,
    comes_nearer,
    mark,
    state_at,
    touch_words,
    was_touching,
)
from microsim.engine.geometry import Array, Grid
from microsim.engine.world import overlaps_cell as _overlaps_cell

_first_touch, _meets, _put_box = _bodies.first_touch, _bodies.meets, _bodies.put_box
_room = _calls.room
_floats_at, _integers_at, _byte_grid_at, _float_grid_at = (
    _calls.floats_at, _calls.integers_at, _calls.byte_grid_at, _calls.float_grid_at,
)  # fmt: skip
_scene_at, _ground_height, _is_free = _calls.scene_at, geometry.ground_height, geometry.is_free


@kernel
def past_scenery(t: Rows, r: int, world: int, scratch: Array, marks: Integers, limit: float) -> float:
    """A body among solids and triangles: notes what it touches, gives how far it may go."""
    heights = _floats_at(t[HEIGHTS], 2)
    body = _float_grid_at(t[BODIES], t[COUNT], 7)[r]
    low = min(scratch[r, 2], scratch[r, HERE + 2]) - body[6]
    if t[SOLID_COUNT] and low < heights[CEILING]:
        limit = _past_solids(t, r, world, scratch, marks, limit)
    if t[TRIANGLES]:
        facts = _floats_at(t[MESH_FACTS], 7)
        if low < facts[6] and max(scratch[r, 2], scratch[r, HERE + 2]) + body[6] > facts[5]:
            limit = _past_mesh(t, r, world, scratch, marks, limit)
    return limit


@kernel
def is_clear_of_scenery(t: Rows, r: int, world: int, scratch: Array) -> bool:
    """Whether heights and free cells alone show that `past_scenery` finds nothing."""
    body = _float_grid_at(t[BODIES], t[COUNT], 7)[r]
    low = min(scratch[r, 2], scratch[r, HERE + 2]) - body[6]
    if t[TRIANGLES]:
        facts = _floats_at(t[MESH_FACTS], 7)
        if low < facts[6] and max(scratch[r, 2], scratch[r, HERE + 2]) + body[6] > facts[5]:
            return False
    if t[SOLID_COUNT] == 0 or not low < _floats_at(t[HEIGHTS], 2)[CEILING]:
        return True
    x, y, reach = _reach(scratch, r, body)
    return _is_among_free_cells(_scene_at(t[SCENE], world, _floats_at(t[SCENE], 0)), x, y, reach)


@kernel
def _reach(scratch: Array, r: int, body: Array) -> tuple[float, float, float]:
    """A circle of the ground that holds a robot on its way: middle and radius."""
    dx, dy = scratch[r, HERE] - scratch[r, 0], scratch[r, HERE + 1] - scratch[r, 1]
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
    scene = _scene_at(t[SCENE], world, _floats_at(t[SCENE], 0))
    body = _float_grid_at(t[BODIES], t[COUNT], 7)[r]
    x, y, reach = _reach(scratch, r, body)
    if _is_among_free_cells(scene, x, y, reach):
        return limit
    solids = _float_grid_at(t[SOLIDS] + world * t[SOLIDS_STEP], t[SOLID_COUNT], SOLID_COLUMNS)
    places = _float_grid_at(t[PLACES] + world * t[PLACES_STEP], t[SOLID_COUNT], 3)
    thing = _room(BOX_NUMBERS)
    for k in range(t[SOLID_COUNT]):
        beside = abs(places[k, 0] - x) >= reach + solids[k, HALF_X]
        if beside or abs(places[k, 1] - y) >= reach + solids[k, HALF_Y] or places[k, 2] == 0.0:
            continue
        kind = _put_solid(t, world, scene, solids[k], places[k], thing)
        limit = _touch(t, r, world, kind, thing, AN_OBSTACLE, k + 1, scratch, marks, limit)
    return limit


@kernel
def _put_solid(t: Rows, world: int, scene: Scene, solid: Array, place: Array, thing: Array) -> int:
    """A solid as a thing that bodies meet; gives its kind. What stands on the ground reaches under it."""
    lowest = _floats_at(t[HEIGHTS] + world * t[HEIGHTS_STEP], 2)[LOWEST]
    ground = _ground_height(scene.elevation, scene.cell, place[0] - scene.west, place[1] - scene.south)
    base = (ground if ground == ground else lowest) + solid[BASE]
    top = base + solid[TALL]
    bottom = min(base, lowest) if solid[BASE] <= 0.0 else base
    for k in range(BOX_NUMBERS):
        thing[k] = 0.0
    thing[0], thing[1], thing[2] = place[0], place[1], 0.5 * (bottom + top)
    if solid[IS_ROUND] > 0.0:
        thing[3], thing[4] = solid[HALF_X], 0.5 * (top - bottom)
        return A_CYLINDER
    thing[3], thing[7], thing[11] = 1.0, 1.0, 1.0
    thing[12], thing[13], thing[14] = solid[HALF_X], solid[HALF_Y], 0.5 * (top - bottom)
    return A_BOX


@kernel
def _past_mesh(t: Rows, r: int, world: int, scratch: Array, marks: Integers, limit: float) -> float:
    facts = _floats_at(t[MESH_FACTS], 7)  # west, south, width of a bucket, columns, rows, lowest, highest
    columns, rows = int(facts[3]), int(facts[4])
    x, y, reach = _reach(scratch, r, _float_grid_at(t[BODIES], t[COUNT], 7)[r])
    u, v, far = (x - facts[0]) / facts[2], (y - facts[1]) / facts[2], reach / facts[2]
    if not (u + far >= 0.0 and v + far >= 0.0 and u - far <= columns and v - far <= rows):
        return limit
    buckets = _integers_at(t[BUCKETS], rows * columns + 1)
    items = _integers_at(t[ITEMS], max(buckets[rows * columns], 1))
    for j in range(int(max(v - far, 0.0)), int(min(v + far, rows - 1.0)) + 1):
        for i in range(int(max(u - far, 0.0)), int(min(u + far, columns - 1.0)) + 1):
            for k in range(buckets[j * columns + i], buckets[j * columns + i + 1]):
                triangle = _floats_at(t[TRIANGLES] + 72 * items[k], 9)
                if _is_beside(triangle, scratch, r, x, y, reach):
                    continue
                limit = _touch(t, r, world, A_TRIANGLE, triangle, A_MESH, 0, scratch, marks, limit)
    return limit


@kernel
def _is_beside(p: Array, scratch: Array, r: int, x: float, y: float, reach: float) -> bool:
    """Whether a triangle is out of a robot's reach."""
    low, high = min(scratch[r, 2], scratch[r, HERE + 2]) - reach, max(scratch[r, 2], scratch[r, HERE + 2]) + reach
    if min(p[0], p[3], p[6]) > x + reach or max(p[0], p[3], p[6]) < x - reach:
        return True
    if min(p[1], p[4], p[7]) > y + reach or max(p[1], p[4], p[7]) < y - reach:
        return True
    return min(p[2], p[5], p[8]) > high or max(p[2], p[5], p[8]) < low


@kernel
def _touch(
    t: Rows,
    r: int,
    world: int,
    kind: int,
    thing: Array,
    bit: int,
    which: int,
    scratch: Array,
    marks: Integers,
    limit: float,
) -> float:
    """Looks at one thing that stands in the world: notes whether it is touched, gives how far the robot may go."""
    body = _float_grid_at(t[BODIES], t[COUNT], 7)[r]
    share = _first_touch(scratch[r, :VELOCITY], scratch[r, HERE:], body, kind, thing)
    is_stopped = (t[RULES] & STOPS_ALL) != 0 and share <= limit
    if is_stopped and share < 0.0:  # it is in there already: it may only move away; out of a surface, anywhere
        is_stopped = kind != A_TRIANGLE and comes_nearer(scratch, r, thing[0], thing[1], thing[2])
    is_touched = is_stopped
    if not is_stopped and was_touching(t, r, world, bit):
        box = _room(BOX_NUMBERS)
        _put_box(scratch[r, HERE:], body, box)
        is_touched = _meets(box, kind, thing, GAP_M)
    elif not is_stopped:
        is_touched = share <= limit
    if is_touched:
        mark(marks, t[WORDS], r, bit)
        if bit == AN_OBSTACLE and (scratch[r, WHICH] == 0.0 or (is_stopped and share < limit)):
            scratch[r, WHICH] = float(which)
    return max(share, 0.0) if is_stopped else limit


@kernel
def note_cells(t: Rows, r: int, world: int, scratch: Array, marks: Integers) -> None:
    """What a robot that minds cells touches: what stopped it in this tick, or before, and it has not moved since."""
    state, stride = state_at(t, r, world)
    before = touch_words(t, r, world, 0) & SCENERY_BITS
    scratch[r, WHICH] = float(touch_words(t, r, world, t[WORDS]))
    if state[HELD * stride] == 0.0:
        if before and state[X * stride] == scratch[r, 0] and state[Y * stride] == scratch[r, 1]:
            marks[r * t[WORDS]] |= before
        return
    if before:
        marks[r * t[WORDS]] |= before
    else:
        scratch[r, WHICH] = 0.0
        mark(marks, t[WORDS], r, _what_stops(t, r, world, scratch))


@kernel
def _what_stops(t: Rows, r: int, world: int, scratch: Array) -> int:
    """What is in the way of a robot: around its middle, then around its body."""
    scene = _scene_at(t[SCENE], world, _floats_at(t[SCENE], 0))
    kinds = _byte_grid_at(t[KINDS], t[KINDS_ROWS], t[KINDS_COLUMNS])
    u, v = scratch[r, HERE] - scene.west, scratch[r, HERE + 1] - scene.south
    for j in range(-1, 2):
        for i in range(-1, 2):
            x, y = u + i * PROBE_M, v + j * PROBE_M
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(t, scene, kinds, r, world, x, y, scratch)
    if not t[RULES] & HAS_BODIES:
        return AN_OBSTACLE
    box, body = _room(BOX_NUMBERS), _float_grid_at(t[BODIES], t[COUNT], 7)[r]
    _put_box(scratch[r, HERE:], body, box)
    steps = int(min(2.0 * max(box[12], box[13]) / scene.cell, 1000.0)) + 2
    for side in range(4):
        for k in range(steps + 1):
            way = 2.0 * k / steps - 1.0
            edge = 1.0 if side < 2 else -1.0
            p = (box[12] + PROBE_M) * (edge if side % 2 == 0 else way)
            q = (box[13] + PROBE_M) * (way if side % 2 == 0 else edge)
            x, y = box[0] + box[3] * p + box[4] * q - scene.west, box[1] + box[6] * p + box[7] * q - scene.south
            if not _is_free(scene.footing, scene.cell, x, y):
                return _kind_at(t, scene, kinds, r, world, x, y, scratch)
    return AN_OBSTACLE


@kernel
def _kind_at(t: Rows, scene: Scene, kinds: Grid, r: int, world: int, x: float, y: float, scratch: Array) -> int:
    """What blocks a point of the grid; notes which obstacle."""
    rows, columns = scene.footing.shape
    u, v = x / scene.cell, y / scene.cell
    if not (0.0 <= u < columns and 0.0 <= v < rows):
        return MAP_EDGE
    if int(v) < kinds.shape[0] and int(u) < kinds.shape[1] and kinds[int(v), int(u)] > 0:
        return int(kinds[int(v), int(u)])
    scratch[r, WHICH] = float(_obstacle_over(t, scene, world, int(u), int(v)))
    return AN_OBSTACLE


@kernel
def _obstacle_over(t: Rows, scene: Scene, world: int, i: int, j: int) -> int:
    """The first obstacle that overlaps a cell, counted from 1; 0: none."""
    solids = _float_grid_at(t[SOLIDS] + world * t[SOLIDS_STEP], t[SOLID_COUNT], SOLID_COLUMNS)
    places = _float_grid_at(t[PLACES] + world * t[PLACES_STEP], t[SOLID_COUNT], 3)
    for k in range(t[SOLID_COUNT]):
        x, y, is_round = places[k, 0] - scene.west, places[k, 1] - scene.south, solids[k, IS_ROUND] > 0.0
        if places[k, 2] != 0.0 and _overlaps_cell(
            i, j, scene.cell, x, y, solids[k, HALF_X], solids[k, HALF_Y], is_round
        ):
            return k + 1
    return 0


@kernel
def drop_near_scenery(t: Rows, r: int, first: int, trace: Array, ways: Array, quiet: Integers) -> None:
    """Worlds first … in which a robot could have met something on a way of that length [m], in any direction."""
    radius = _float_grid_at(t[BODIES], t[COUNT], 7)[r, 6] + GAP_M
    if t[TRIANGLES]:
        facts = _floats_at(t[MESH_FACTS], 7)
        for i in range(quiet.shape[0]):
            z, reach = trace[TRACE_Z, i], radius + ways[i]
            quiet[i] = quiet[i] if (z - reach >= facts[6]) | (z + reach <= facts[5]) else 0
    if t[SOLID_COUNT] == 0:
        return
    ceiling, low = _floats_at(t[HEIGHTS], 2)[CEILING], 0
    for i in range(quiet.shape[0]):
        low += 0 if trace[TRACE_Z, i] - (radius + ways[i]) >= ceiling else 1
    for i in range(quiet.shape[0] if low else 0):
        reach = radius + ways[i]
        if quiet[i] and not trace[TRACE_Z, i] - reach >= ceiling:
            scene = _scene_at(t[SCENE], first + i, _floats_at(t[SCENE], 0))
            quiet[i] = 1 if _is_among_free_cells(scene, trace[TRACE_X, i], trace[TRACE_Y, i], reach) else 0
