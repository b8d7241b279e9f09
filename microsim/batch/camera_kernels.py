"""Plain cameras of many worlds: what threads of a GPU do for one world, one shape, one patch of ground, one pixel.

They draw with the functions of `microsim.render`, so images have the bytes of a single world's. Each takes the address
of a `CAMERA`.
"""

from __future__ import annotations

import math

from microsim.batch.batch_columns import Array
from microsim.engine import calls, delay_line, motion, noise, records, robot_loops, sensor_calls
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Grid, ground_height
from microsim.engine.motion import FIELDS
from microsim.engine.records import ADDRESS, GRID, SPAN, VEC3, Record, record, record_at
from microsim.render.drawing import draw_row
from microsim.render.image_noise import Sums as Words
from microsim.render.image_noise import blur_in_column, blur_in_row, gain_of
from microsim.render.relief import Patches, Surface, patch_span, relief_depth
from microsim.render.screen import Scale, Spans, bounds, fill_span
from microsim.render.shapes import COEFFICIENTS, SHAPE_COLUMNS, aim_one, put_at

CAMERA = record(
    fleet=ADDRESS,  # of its robot
    scene=ADDRESS,
    line=ADDRESS,  # of frames that are under way
    capacity=int,  # of the line, in each world
    frames=ADDRESS,  # what the line keeps
    good=ADDRESS,  # the last frame of each world that did not fail
    drawn=ADDRESS,  # the frame of each world that is to be drawn
    has_left=ADDRESS,  # of each world: 1 where that is so
    keys=ADDRESS,  # of each world's noise
    sampled_at=ADDRESS,
    dropped=ADDRESS,
    readings=ADDRESS,
    silent=SPAN,  # windows of time
    fails=SPAN,
    height=int,  # of images [px]
    width=int,
    rays=ADDRESS,
    columns=GRID,  # which pixels shapes can be in, see `render.screen`
    rows=GRID,
    scale=(float, (4,)),
    lowest=float,  # [m] of the ground
    place=VEC3,  # of the camera in base_link [m]
    turned=(float, (9,)),  # its axes there, row by row
    jitter=float,  # of colours
    shapes=ADDRESS,
    shapes_step=int,  # [bytes] to the next world's; 0: all share them
    shape_count=int,
    painted=int,  # how many of the shapes lie on the ground
    moved=ADDRESS,  # where obstacles are that the seed moves
    moved_count=int,
    extents=ADDRESS,  # of these, base and height [m]
    is_flat=int,
    nodes=ADDRESS,  # of the patches of ground
    edges_x=ADDRESS,
    edges_y=ADDRESS,
    holes=GRID,
    blocks=ADDRESS,  # of patches
    palette=GRID,
    weights=SPAN,  # of the blur
    aimed=ADDRESS,  # room to draw in, of each frame that is drawn at once
    shape_spans=ADDRESS,
    ground_spans=ADDRESS,
    span_count=int,
    seen=ADDRESS,
    sums=ADDRESS,
)
FRAME = record(
    shows=int,  # the tick that it shows
    above=float,  # the ground above the camera [m]
    pose=(float, (12,)),
)
FRAME_SIZE = FRAME.itemsize // 8  # numbers
BLANK = -1  # shown by a frame of nothing: the camera failed before it saw anything
BROKEN = -2  # by one of a pose that is not finite

_camera_at, _frame_at = record_at(CAMERA), record_at(FRAME)
_FRAME_BYTES, _POSE = FRAME.itemsize, FRAME.fields["pose"][1]  # type: ignore[index]
_floats_at, _integers_at, _bytes_at = calls.floats_at, calls.integers_at, calls.bytes_at
_words_at, _word_grid_at, _float_grid_at = calls.words_at, calls.word_grid_at, calls.float_grid_at
_byte_grid_at, _scene_at, _integers_in = calls.byte_grid_at, calls.scene_at, records.integers_in
_room = calls.room
_observe_one, _place_of, _turned_by = motion.observe_one, motion.place_of, motion.turned_by
_is_within, _uniforms = sensor_calls.is_within, noise.uniforms
_fleet_at, _float_grid_in = robot_loops.fleet_at, records.float_grid_in
_delay_at, _push, _pop_due, _sampled_at = (
    delay_line.delay_at, delay_line.push, delay_line.pop_due, delay_line.sampled_at,
)  # fmt: skip


@kernel
def _copy_frame(source: int, target: int) -> None:
    before, after = _integers_at(source, FRAME_SIZE), _integers_at(target, FRAME_SIZE)
    for k in range(FRAME_SIZE):
        after[k] = before[k]


@kernel
def expose(camera: int, w: int, now: int) -> None:
    """Let a camera of world w see what it sees at a tick of its trigger, as `pipeline.Delayed` does."""
    own = _camera_at(camera)
    delay = _delay_at(own.line, w, now)
    if delay >= 0 and _is_within(own.silent, now):
        _integers_at(own.dropped, w + 1)[w] += 1
    elif delay >= 0:
        good, place = own.good + _FRAME_BYTES * w, _push(own.line, w, now, delay)
        frame = own.frames + _FRAME_BYTES * (own.capacity * w + place)
        if _is_within(own.fails, now):
            _copy_frame(good, frame)
        else:
            _look(own, w, now, frame)
            _copy_frame(frame, good)
    release(camera, w, now)


@kernel
def _look(own: Record, w: int, now: int, frame: int) -> None:
    """Write down where the camera is."""
    seen, pose = _room(FIELDS), _floats_at(frame + _POSE, 12)
    _observe_one(_float_grid_in(_fleet_at(own.fleet).state), w, seen)
    pose[0], pose[1], pose[2] = _place_of(seen, own.place[0], own.place[1], own.place[2])
    t = own.turned
    first, second, third = _turned_by(seen, ((t[0], t[1], t[2]), (t[3], t[4], t[5]), (t[6], t[7], t[8])))
    total = 0.0
    for k in range(3):
        pose[3 + k], pose[6 + k], pose[9 + k] = first[k], second[k], third[k]
        total += abs(pose[k]) + abs(first[k]) + abs(second[k]) + abs(third[k])
    scene = _scene_at(own.scene, w, pose)
    ground = ground_height(scene.elevation, scene.cell, pose[0] - scene.west, pose[1] - scene.south)
    _frame_at(frame).above = ground - pose[2]
    _frame_at(frame).shows = now if total < math.inf else BROKEN


@kernel
def release(camera: int, w: int, now: int) -> None:
    """Frames whose time has come leave the camera; the last of them is to be drawn."""
    own = _camera_at(camera)
    place = _pop_due(own.line, w, now)
    while place >= 0:
        _copy_frame(own.frames + _FRAME_BYTES * (own.capacity * w + place), own.drawn + _FRAME_BYTES * w)
        _integers_at(own.has_left, w + 1)[w] = 1
        _integers_at(own.sampled_at, w + 1)[w] = _sampled_at(own.line, w, place)
        place = _pop_due(own.line, w, now)


# ---- a frame that is drawn: that of world w, the nth of those that are drawn at once. Threads have room to work in:
# room (3, 2, 2), words (6,) and a byte (1,).


@kernel
def _screen_of(own: Record) -> tuple[Scale, Spans, Spans]:
    scale = Scale(own.scale[0], own.scale[1], own.scale[2], own.scale[3])
    columns = _word_grid_at(own.columns.address, own.columns.rows, own.columns.columns)
    return scale, columns, _word_grid_at(own.rows.address, own.rows.rows, own.rows.columns)


@kernel
def place_shape(camera: int, w: int, n: int, k: int, room: Array, words: Words, byte: Grid) -> None:
    """Put the kth obstacle of a world where its seed has put it."""
    own = _camera_at(camera)
    place = _floats_at(own.moved + 24 * (w * own.moved_count + k), 3)
    index = own.painted + k
    shape = _floats_at(own.shapes + w * own.shapes_step + 8 * SHAPE_COLUMNS * index, SHAPE_COLUMNS)
    extent, lowest = _floats_at(own.extents + 16 * k, 2), own.lowest
    scene = _scene_at(own.scene, w, place)
    ground = ground_height(scene.elevation, scene.cell, place[0] - scene.west, place[1] - scene.south)
    put_at(shape, place[0], place[1], ground, lowest, extent[0], extent[1])


@kernel
def _is_absent(own: Record, w: int, index: int) -> bool:
    k = index - own.painted
    if k < 0 or k >= own.moved_count:
        return False
    return _floats_at(own.moved + 24 * (w * own.moved_count + k), 3)[2] == 0.0


@kernel
def aim_shape(camera: int, w: int, n: int, index: int, room: Array, words: Words, byte: Grid) -> None:
    """For the frame of world w, the nth that is drawn: where one shape is seen."""
    own = _camera_at(camera)
    shape, one = _floats_at(own.shapes + w * own.shapes_step, SHAPE_COLUMNS * own.shape_count), _room(SHAPE_COLUMNS)
    place, frame = n * own.shape_count + index, own.drawn + _FRAME_BYTES * w
    span = _words_at(own.shape_spans + 16 * place, 4)
    if _is_blank(frame) or _is_absent(own, w, index):
        span[0], span[1], span[2], span[3] = 0, 0, 0, 0
        return
    for k in range(SHAPE_COLUMNS):
        one[k] = shape[SHAPE_COLUMNS * index + k]
    pose = _floats_at(frame + _POSE, 12)
    scale, columns, rows = _screen_of(own)
    coefficients = _floats_at(own.aimed + 8 * COEFFICIENTS * place, COEFFICIENTS)
    aim_one(pose, scale, columns, rows, one, coefficients, span)


@kernel
def _patches_of(own: Record) -> Patches:
    rows, columns = own.holes.rows, own.holes.columns
    return Patches(
        _float_grid_at(own.nodes, rows + 1, columns + 1),
        _floats_at(own.edges_x, columns + 1),
        _floats_at(own.edges_y, rows + 1),
        _byte_grid_at(own.holes.address, rows, columns),
    )


@kernel
def _is_blank(frame: int) -> bool:
    return _frame_at(frame).shows < 0


@kernel
def _is_plane(own: Record, frame: int) -> bool:
    return own.is_flat != 0 or _frame_at(frame).above >= 0.0


@kernel
def aim_ground(camera: int, w: int, n: int, index: int, room: Array, words: Words, byte: Grid) -> None:
    """Likewise of one patch of ground, or of one block of them."""
    own = _camera_at(camera)
    frame = own.drawn + _FRAME_BYTES * w
    if _is_blank(frame) or _is_plane(own, frame):
        return
    pose, span = _floats_at(frame + _POSE, 12), _words_at(own.ground_spans + 16 * (n * own.span_count + index), 4)
    scale, columns, rows = _screen_of(own)
    block = index - own.holes.rows * own.holes.columns
    if block < 0:
        patch_span(pose, scale, columns, rows, _patches_of(own), index, room, span)
    else:
        fill_span(scale, columns, rows, bounds(pose, _floats_at(own.blocks + 80 * block, 10)), span)


@kernel
def see_pixel(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Which class one pixel of the nth frame shows."""
    own = _camera_at(camera)
    frame, count = own.drawn + _FRAME_BYTES * w, own.height * own.width
    if _is_blank(frame):
        _bytes_at(own.seen + n * count, count)[pixel] = 0
        return
    pose, above = _floats_at(frame + _POSE, 12), _frame_at(frame).above
    is_plane = _is_plane(own, frame)
    v, u = pixel // own.width, pixel % own.width
    ray_x, ray_y = _floats_at(own.rays + 8 * pixel, 1), _floats_at(own.rays + 8 * (count + pixel), 1)
    depth, inverse_dz = _room(1), _room(1)
    if not is_plane:
        spans = _word_grid_at(own.ground_spans + 16 * n * own.span_count, own.span_count, 4)
        relief_depth(pose, _patches_of(own), spans, ray_x, ray_y, v, u, depth)
    scene, shapes = _scene_at(own.scene, w, pose), own.shape_count
    surface = Surface(scene.surface, scene.cell, scene.west, scene.south)
    table = _float_grid_at(own.shapes + w * own.shapes_step, shapes, SHAPE_COLUMNS)
    coefficients = _float_grid_at(own.aimed + 8 * COEFFICIENTS * n * shapes, shapes, COEFFICIENTS)
    spans = _word_grid_at(own.shape_spans + 16 * n * shapes, shapes, 4)
    draw_row(
        pose, above, is_plane, ray_x, ray_y, surface, table, own.painted, coefficients, spans, inverse_dz, depth, byte,
        v, u,
    )  # fmt: skip
    _bytes_at(own.seen + n * count, count)[pixel] = byte[0]


@kernel
def sum_in_row(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Its colours, blurred along the row."""
    own = _camera_at(camera)
    width, count = own.width, own.height * own.width
    line = _bytes_at(own.seen + n * count + pixel // width * width, width)
    palette, weights = _word_grid_at(own.palette.address, own.palette.rows, 3), _integers_in(own.weights)
    sums = _words_at(own.sums + 12 * (n * count + pixel), 3)
    blur_in_row(line, palette, weights, pixel % width, sums)


@kernel
def finish_pixel(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Its colours in the reading of world w."""
    own = _camera_at(camera)
    height, width = own.height, own.width
    image = _bytes_at(own.readings + 3 * height * width * w, 3 * height * width)
    frame = own.drawn + _FRAME_BYTES * w
    if _is_blank(frame):
        for k in range(3):
            image[3 * pixel + k] = 0
        return
    key, jitter = _integers_at(own.keys, w + 1)[w], own.jitter
    gains, tick = words[:3], _frame_at(frame).shows
    red, green = _uniforms(key, tick, 0)
    blue, _ = _uniforms(key, tick, 1)
    gains[0], gains[1], gains[2] = gain_of(jitter, red), gain_of(jitter, green), gain_of(jitter, blue)
    sums = _word_grid_at(own.sums + 12 * n * height * width, height, 3 * width)
    weights = _integers_in(own.weights)
    blur_in_column(sums, weights, gains, pixel // width, pixel % width, words[3:], image[3 * pixel : 3 * pixel + 3])
