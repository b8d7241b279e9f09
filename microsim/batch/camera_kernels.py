"""Plain cameras of many worlds: what threads of a GPU do for one world, one shape, one patch of ground, one pixel.

They draw with the functions of `microsim.render`, so images have the bytes of a single world's. Each takes the address
of a camera's row, which names all arrays it needs.
"""

from __future__ import annotations

import math

from microsim.batch.batch_columns import Array
from microsim.engine import calls, compiled_tick, motion, noise, robot_loops
from microsim.engine.calls import Rows
from microsim.engine.compiled import kernel
from microsim.engine.compiled_tick import WINDOW
from microsim.engine.geometry import Grid, ground_height
from microsim.engine.motion import FIELDS
from microsim.engine.pipeline import delay_of
from microsim.engine.records import float_grid_in, records_at
from microsim.render.drawing import draw_row
from microsim.render.image_noise import Sums as Words
from microsim.render.image_noise import blur_in_column, blur_in_row, gain_of
from microsim.render.relief import Patches, Surface, patch_span, relief_depth
from microsim.render.screen import Scale, Spans, bounds, fill_span
from microsim.render.shapes import COEFFICIENTS, SHAPE_COLUMNS, aim_one, put_at

# columns of a camera's row: addresses and sizes
(
    ROBOT, SCENE, NUMBERS, KEYS, LATENCY_KEYS, BEFORE, SAMPLED_AT, DROPPED, READINGS, WINDOWS, SILENT, FAILS,
    QUEUE, FRAMES, SLOTS,
    IMAGE_HEIGHT, IMAGE_WIDTH, RAYS, COLUMN_SPANS, COLUMN_BINS, ROW_SPANS, ROW_BINS,
    SHAPES, SHAPE_COUNT, SHAPES_STEP, PAINTED, MOVED, MOVED_COUNT, EXTENTS,
    IS_FLAT, NODES, EDGES_X, EDGES_Y, HOLES, PATCH_ROWS, PATCH_COLUMNS, BLOCKS, BLOCK_ROWS, BLOCK_COLUMNS,
    PALETTE, CLASSES, WEIGHTS, REACH,
    AIMED, SHAPE_SPANS, GROUND_SPANS, SPAN_COUNT, SEEN, SUMS,
) = range(49)  # fmt: skip
CAMERA_COLUMNS = 49

# its numbers
LATENCY, JITTER, SCALE, LOWEST, PLACE, TURNED = 0, 4, 5, 9, 10, 13  # mean, jitter [ms], chance of loss, hz; …
NUMBER_COUNT = 22

# a frame: when it leaves and what it is sent as; the tick and pose that it shows, the ground above the camera [m]
LEAVES, SENT_AS, SHOWS, ABOVE, POSE = 0, 1, 2, 3, 4
FRAME_COLUMNS = 16
BLANK = -1  # a frame that shows nothing: the camera failed before it saw anything
BROKEN = -2  # of a pose that is not finite

# frames of a world: those on their way, then the last that did not fail, then the one to be drawn
KEPT_FRAMES = 2

_floats_at, _integers_at, _bytes_at = calls.floats_at, calls.integers_at, calls.bytes_at
_words_at, _word_grid_at, _float_grid_at = calls.words_at, calls.word_grid_at, calls.float_grid_at
_byte_grid_at, _scene_at = calls.byte_grid_at, calls.scene_at
_room = calls.room
_observe_one, _place_of, _turned_by = motion.observe_one, motion.place_of, motion.turned_by
_is_within, _uniforms, _windows_at = compiled_tick.is_within, noise.uniforms, records_at(WINDOW)
_fleet_at, _float_grid_in = robot_loops.fleet_at, float_grid_in


@kernel
def _frame_at(camera: int, w: int, slot: int) -> int:
    row = _integers_at(camera, CAMERA_COLUMNS)
    return row[FRAMES] + 8 * FRAME_COLUMNS * (w * (row[SLOTS] + KEPT_FRAMES) + slot)


@kernel
def _copy_frame(source: int, target: int) -> None:
    """What it shows."""
    before, after = _integers_at(source, FRAME_COLUMNS), _integers_at(target, FRAME_COLUMNS)
    for k in range(SHOWS, FRAME_COLUMNS):
        after[k] = before[k]


@kernel
def expose(camera: int, w: int, now: int) -> None:
    """Let a camera of world w see what it sees at a tick of its trigger, as `pipeline.Delayed` does."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    numbers, queue = _floats_at(row[NUMBERS], NUMBER_COUNT), _integers_at(row[QUEUE] + 16 * w, 2)
    windows = _windows_at(row[WINDOWS], row[FAILS])
    key = _integers_at(row[LATENCY_KEYS], w + 1)[w]
    delay = delay_of(numbers[LATENCY:], key, now, _floats_at(row[BEFORE] + 16 * w, 2))
    if delay >= 0 and _is_within(windows, 0, row[SILENT], now):
        _integers_at(row[DROPPED], w + 1)[w] += 1
    elif delay >= 0:
        slots = row[SLOTS]
        frame = _frame_at(camera, w, (queue[0] + queue[1]) % slots)
        leaves = now + delay
        if queue[1] > 0:
            leaves = max(leaves, _integers_at(_frame_at(camera, w, (queue[0] + queue[1] - 1) % slots), 1)[LEAVES])
        given = _integers_at(frame, FRAME_COLUMNS)
        given[LEAVES], given[SENT_AS] = leaves, now
        if _is_within(windows, row[SILENT], row[FAILS], now):
            _copy_frame(_frame_at(camera, w, slots), frame)
        else:
            _look(row, w, now, frame)
            _copy_frame(frame, _frame_at(camera, w, slots))
        queue[1] += 1
    release(camera, w, now)


@kernel
def _look(row: Rows, w: int, now: int, frame: int) -> None:
    """Write down where the camera is."""
    robot, numbers = _fleet_at(row[ROBOT]), _floats_at(row[NUMBERS], NUMBER_COUNT)
    seen, pose = _room(FIELDS), _floats_at(frame + 8 * POSE, 12)
    _observe_one(_float_grid_in(robot.state), w, seen)
    pose[0], pose[1], pose[2] = _place_of(seen, numbers[PLACE], numbers[PLACE + 1], numbers[PLACE + 2])
    t = numbers[TURNED:]
    first, second, third = _turned_by(seen, ((t[0], t[1], t[2]), (t[3], t[4], t[5]), (t[6], t[7], t[8])))
    total = 0.0
    for k in range(3):
        pose[3 + k], pose[6 + k], pose[9 + k] = first[k], second[k], third[k]
        total += abs(pose[k]) + abs(first[k]) + abs(second[k]) + abs(third[k])
    scene = _scene_at(row[SCENE], w, pose)
    ground = ground_height(scene.elevation, scene.cell, pose[0] - scene.west, pose[1] - scene.south)
    _floats_at(frame, FRAME_COLUMNS)[ABOVE] = ground - pose[2]
    _integers_at(frame, FRAME_COLUMNS)[SHOWS] = now if total < math.inf else BROKEN


@kernel
def release(camera: int, w: int, now: int) -> None:
    """Frames whose time has come leave the camera; the last of them is to be drawn."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    queue, drawn = _integers_at(row[QUEUE] + 16 * w, 2), _frame_at(camera, w, row[SLOTS] + 1)
    while queue[1] > 0:
        frame = _frame_at(camera, w, queue[0])
        if _integers_at(frame, 1)[LEAVES] > now:
            return
        _copy_frame(frame, drawn)
        _integers_at(drawn, 1)[LEAVES] = 1
        _integers_at(row[SAMPLED_AT], w + 1)[w] = _integers_at(frame, 2)[SENT_AS]
        queue[0], queue[1] = (queue[0] + 1) % row[SLOTS], queue[1] - 1


# ---- a frame that is drawn: that of world w, the nth of those that are drawn at once. Threads have room to work in:
# room (3, 2, 2), words (6,) and a byte (1,).


@kernel
def _screen_of(row: Rows) -> tuple[Scale, Spans, Spans]:
    numbers = _floats_at(row[NUMBERS] + 8 * SCALE, 4)
    scale = Scale(numbers[0], numbers[1], numbers[2], numbers[3])
    return scale, _word_grid_at(row[COLUMN_SPANS], 2, row[COLUMN_BINS]), _word_grid_at(row[ROW_SPANS], 2, row[ROW_BINS])


@kernel
def place_shape(camera: int, w: int, n: int, k: int, room: Array, words: Words, byte: Grid) -> None:
    """Put the kth obstacle of a world where its seed has put it."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    place = _floats_at(row[MOVED] + 24 * (w * row[MOVED_COUNT] + k), 3)
    index = row[PAINTED] + k
    shape = _floats_at(row[SHAPES] + w * row[SHAPES_STEP] + 8 * SHAPE_COLUMNS * index, SHAPE_COLUMNS)
    extent, lowest = _floats_at(row[EXTENTS] + 16 * k, 2), _floats_at(row[NUMBERS], NUMBER_COUNT)[LOWEST]
    scene = _scene_at(row[SCENE], w, place)
    ground = ground_height(scene.elevation, scene.cell, place[0] - scene.west, place[1] - scene.south)
    put_at(shape, place[0], place[1], ground, lowest, extent[0], extent[1])


@kernel
def _is_absent(row: Rows, w: int, index: int) -> bool:
    k = index - row[PAINTED]
    if k < 0 or k >= row[MOVED_COUNT]:
        return False
    return _floats_at(row[MOVED] + 24 * (w * row[MOVED_COUNT] + k), 3)[2] == 0.0


@kernel
def aim_shape(camera: int, w: int, n: int, index: int, room: Array, words: Words, byte: Grid) -> None:
    """For the frame of world w, the nth that is drawn: where one shape is seen."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    shape, own = _floats_at(row[SHAPES] + w * row[SHAPES_STEP], SHAPE_COLUMNS * row[SHAPE_COUNT]), _room(SHAPE_COLUMNS)
    place, frame = n * row[SHAPE_COUNT] + index, _frame_at(camera, w, row[SLOTS] + 1)
    span = _words_at(row[SHAPE_SPANS] + 16 * place, 4)
    if _is_blank(frame) or _is_absent(row, w, index):
        span[0], span[1], span[2], span[3] = 0, 0, 0, 0
        return
    for k in range(SHAPE_COLUMNS):
        own[k] = shape[SHAPE_COLUMNS * index + k]
    pose = _floats_at(frame + 8 * POSE, 12)
    scale, columns, rows = _screen_of(row)
    coefficients = _floats_at(row[AIMED] + 8 * COEFFICIENTS * place, COEFFICIENTS)
    aim_one(pose, scale, columns, rows, own, coefficients, span)


@kernel
def _patches_of(row: Rows) -> Patches:
    rows, columns = row[PATCH_ROWS], row[PATCH_COLUMNS]
    return Patches(
        _float_grid_at(row[NODES], rows + 1, columns + 1),
        _floats_at(row[EDGES_X], columns + 1),
        _floats_at(row[EDGES_Y], rows + 1),
        _byte_grid_at(row[HOLES], rows, columns),
    )


@kernel
def _is_blank(frame: int) -> bool:
    return _integers_at(frame, FRAME_COLUMNS)[SHOWS] < 0


@kernel
def _is_plane(row: Rows, frame: int) -> bool:
    return row[IS_FLAT] != 0 or _floats_at(frame, FRAME_COLUMNS)[ABOVE] >= 0.0


@kernel
def aim_ground(camera: int, w: int, n: int, index: int, room: Array, words: Words, byte: Grid) -> None:
    """Likewise of one patch of ground, or of one block of them."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    frame = _frame_at(camera, w, row[SLOTS] + 1)
    if _is_blank(frame) or _is_plane(row, frame):
        return
    pose, span = _floats_at(frame + 8 * POSE, 12), _words_at(row[GROUND_SPANS] + 16 * (n * row[SPAN_COUNT] + index), 4)
    scale, columns, rows = _screen_of(row)
    block = index - row[PATCH_ROWS] * row[PATCH_COLUMNS]
    if block < 0:
        patch_span(pose, scale, columns, rows, _patches_of(row), index, room, span)
    else:
        fill_span(scale, columns, rows, bounds(pose, _floats_at(row[BLOCKS] + 80 * block, 10)), span)


@kernel
def see_pixel(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Which class one pixel of the nth frame shows."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    frame, count = _frame_at(camera, w, row[SLOTS] + 1), row[IMAGE_HEIGHT] * row[IMAGE_WIDTH]
    if _is_blank(frame):
        _bytes_at(row[SEEN] + n * count, count)[pixel] = 0
        return
    pose, above = _floats_at(frame + 8 * POSE, 12), _floats_at(frame, FRAME_COLUMNS)[ABOVE]
    is_plane = _is_plane(row, frame)
    v, u = pixel // row[IMAGE_WIDTH], pixel % row[IMAGE_WIDTH]
    ray_x, ray_y = _floats_at(row[RAYS] + 8 * pixel, 1), _floats_at(row[RAYS] + 8 * (count + pixel), 1)
    depth, inverse_dz = _room(1), _room(1)
    if not is_plane:
        spans = _word_grid_at(row[GROUND_SPANS] + 16 * n * row[SPAN_COUNT], row[SPAN_COUNT], 4)
        relief_depth(pose, _patches_of(row), spans, ray_x, ray_y, v, u, depth)
    scene, shapes = _scene_at(row[SCENE], w, pose), row[SHAPE_COUNT]
    surface = Surface(scene.surface, scene.cell, scene.west, scene.south)
    table = _float_grid_at(row[SHAPES] + w * row[SHAPES_STEP], shapes, SHAPE_COLUMNS)
    coefficients = _float_grid_at(row[AIMED] + 8 * COEFFICIENTS * n * shapes, shapes, COEFFICIENTS)
    spans = _word_grid_at(row[SHAPE_SPANS] + 16 * n * shapes, shapes, 4)
    draw_row(
        pose, above, is_plane, ray_x, ray_y, surface, table, row[PAINTED], coefficients, spans, inverse_dz, depth, byte,
        v, u,
    )  # fmt: skip
    _bytes_at(row[SEEN] + n * count, count)[pixel] = byte[0]


@kernel
def sum_in_row(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Its colours, blurred along the row."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    width, count = row[IMAGE_WIDTH], row[IMAGE_HEIGHT] * row[IMAGE_WIDTH]
    line = _bytes_at(row[SEEN] + n * count + pixel // width * width, width)
    palette, weights = _word_grid_at(row[PALETTE], row[CLASSES], 3), _integers_at(row[WEIGHTS], row[REACH] + 1)
    sums = _words_at(row[SUMS] + 12 * (n * count + pixel), 3)
    blur_in_row(line, palette, weights, pixel % width, sums)


@kernel
def finish_pixel(camera: int, w: int, n: int, pixel: int, room: Array, words: Words, byte: Grid) -> None:
    """Its colours in the reading of world w."""
    row = _integers_at(camera, CAMERA_COLUMNS)
    height, width = row[IMAGE_HEIGHT], row[IMAGE_WIDTH]
    image = _bytes_at(row[READINGS] + 3 * height * width * w, 3 * height * width)
    frame = _frame_at(camera, w, row[SLOTS] + 1)
    if _is_blank(frame):
        for k in range(3):
            image[3 * pixel + k] = 0
        return
    key, jitter = _integers_at(row[KEYS], w + 1)[w], _floats_at(row[NUMBERS], NUMBER_COUNT)[JITTER]
    gains, tick = words[:3], _integers_at(frame, FRAME_COLUMNS)[SHOWS]
    red, green = _uniforms(key, tick, 0)
    blue, _ = _uniforms(key, tick, 1)
    gains[0], gains[1], gains[2] = gain_of(jitter, red), gain_of(jitter, green), gain_of(jitter, blue)
    sums = _word_grid_at(row[SUMS] + 12 * n * height * width, height, 3 * width)
    weights = _integers_at(row[WEIGHTS], row[REACH] + 1)
    blur_in_column(sums, weights, gains, pixel // width, pixel % width, words[3:], image[3 * pixel : 3 * pixel + 3])
