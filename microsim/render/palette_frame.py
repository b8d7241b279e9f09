"""A frame of the plain camera without Python: from the robot's motion to the bytes of the image where it is sent.

The arrays of a `Renderer` and of its noise are in a table of addresses, so that one compiled function serves all
cameras. It gives the bytes of `Renderer.render` and `ImageNoise.apply`, for level ground without a mesh, other robots,
jitter of colours and appearance.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine import motion as _motion
from microsim.engine.calls import Rows, call_now, picture_address
from microsim.engine.compiled import kernel
from microsim.engine.delayed_readings import DELAYED, MOST_UNDER_WAY
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.motion import Rotation, motion_in
from microsim.engine.records import Record, address_of, bytes_in, floats_in, integers_in, record_at
from microsim.engine.schedule import CHUNK
from microsim.render import drawing as _drawing
from microsim.render import image_noise as _image_noise
from microsim.render.image_noise import NoiseParts
from microsim.render.relief import Surface
from microsim.render.screen import Pose, Scale, ScreenIndex
from microsim.render.shapes import COEFFICIENTS, SHAPE_COLUMNS, Shapes

Bytes: TypeAlias = npt.NDArray[np.uint8]

_motion_in = motion_in
_call, _copy, _table_address, _integers_at = _calls.call, _calls.copy, _calls.table_address, _calls.integers_at
_floats_at, _words_at, _bytes_at = _calls.floats_at, _calls.words_at, _calls.bytes_at
_float_grid_at, _byte_grid_at = _calls.float_grid_at, _calls.byte_grid_at
_call_at, _bytes_in, _floats_in, _integers_in = _calls.call_at, bytes_in, floats_in, integers_in
_delayed_at = record_at(DELAYED)
_place_of, _is_level_row = _motion.place_of, _motion.is_level_row
_draw, _colour_rows = _drawing.draw, _drawing.colour_rows
_mark_edges, _blur_and_scale = _image_noise.mark_edges, _image_noise.blur_and_scale

# places of a camera's table: sizes, the addresses of numbers and of arrays, images that are not blurred yet, and the
# function that blurs: many runs see one colour at first, and start without it
HEIGHT, WIDTH, BANDS, TILES_ACROSS, COLUMN_BINS, ROW_BINS, GROUND_ROWS, GROUND_COLUMNS = range(8)
SHAPE_COUNT, PAINTED, CLASS_COUNT, WEIGHT_COUNT, EXTENDED_COUNT, MARK_ROWS, MARK_COLUMNS = range(8, 15)
NUMBERS, RAYS, TILES, COLUMNS, ROWS, GROUND, SHAPE_TABLE, SHAPE_COEFFICIENTS, SHAPE_SPANS = range(15, 24)
ROW_ROOM, DEPTHS, CLASSES, PALETTE_COLOURS, DRAWN = range(24, 29)
WEIGHTS, GAINS, EXTENDED, BLURRED, MARKS = range(29, 34)
UNFINISHED, BLUR, UNFINISHED_COUNT = range(34, 37)
FRAME_COLUMNS = 37
# its numbers: of the screen's index, of the ground, and where the camera is mounted; then room for its pose
_SCALE, _CELL, _HEIGHT_OF_GROUND, _MOUNT, _ROTATION, _POSE = 0, 4, 7, 8, 11, 20
_FRAME_NUMBERS = 32
_BAR_BYTES = 96  # of one colour, which are then copied
_MOST_UNFINISHED = MOST_UNDER_WAY + CHUNK  # images that leave in one call


class DrawnParts(NamedTuple):
    """What a renderer draws with."""

    rays: Array
    tiles: Array
    screen: ScreenIndex
    surface: Surface
    shapes: Shapes
    row: Array
    depths: Array
    classes: Grid
    palette: Grid


class FrameTable:
    """The table of a camera, and what its addresses point to."""

    def __init__(self, parts: DrawnParts, ground_m: float, noise: NoiseParts, xyz: Vector, rotation: Rotation) -> None:
        screen, surface, shapes = parts.screen, parts.surface, parts.shapes
        mount = *xyz, *rotation[0], *rotation[1], *rotation[2]
        self._numbers = np.zeros(_FRAME_NUMBERS)
        self._numbers[:_POSE] = *screen.scale, surface.cell_m, surface.west, surface.south, ground_m, *mount
        height, width = parts.classes.shape
        self._drawn: Bytes = np.empty((height, 3 * width), np.uint8)
        drawn_with = parts.rays, parts.tiles, screen.columns, screen.rows, surface.classes
        shaped = shapes.table, shapes.coefficients, shapes.spans
        room = parts.row, parts.depths, parts.classes, parts.palette, self._drawn
        self._unfinished: Rows = np.zeros(_MOST_UNFINISHED, np.int64)  # addresses
        self._arrays = (self._numbers, *drawn_with, *shaped, *room, *noise, self._unfinished)  # as in the table
        sizes = (
            height, width, *parts.tiles.shape[:2], screen.columns.shape[1], screen.rows.shape[1],
            *surface.classes.shape, len(shapes.table), shapes.painted, len(parts.palette), noise.weights.size,
            noise.extended_row.size, *noise.marks.shape,
        )  # fmt: skip
        self.row: Rows = np.array([*sizes, *map(address_of, self._arrays), 0, 0], np.int64)
        self.address, self.bytes = picture_address(palette_frame), 3 * width * height

    def finish(self, call: Record) -> None:
        """Blur what compiled code has not, and have it do so from now on."""
        self.row[BLUR] = picture_address(blur_image)
        for image in self._unfinished[: self.row[UNFINISHED_COUNT]].tolist():
            call.reading.address = image
            call_now(int(self.row[BLUR]), address_of(call))
        self.row[UNFINISHED_COUNT] = 0


@kernel
def aim_camera(numbers: Array, motion: Array) -> Pose:
    """Fill in where the camera is: `motion.mounted_at` and `motion.turned` of its mount."""
    pose, turn = numbers[_POSE:_FRAME_NUMBERS], numbers[_ROTATION:_POSE]
    x, y, z = _place_of(motion, numbers[_MOUNT], numbers[_MOUNT + 1], numbers[_MOUNT + 2])
    pose[0], pose[1], pose[2] = x, y, z
    seen = _motion_in(motion)
    if _is_level_row(motion):
        sine, cosine = seen.sin_yaw, seen.cos_yaw
        for k in range(3):
            pose[3 + k] = cosine * turn[k] - sine * turn[3 + k]
            pose[6 + k] = sine * turn[k] + cosine * turn[3 + k]
            pose[9 + k] = turn[6 + k]
    else:
        for k in range(3):
            a, b, c = turn[k], turn[3 + k], turn[6 + k]
            pose[3 + k] = seen.x_forward * a + seen.x_left * b + seen.x_up * c
            pose[6 + k] = seen.y_forward * a + seen.y_left * b + seen.y_up * c
            pose[9 + k] = seen.z_forward * a + seen.z_left * b + seen.z_up * c
    return pose


def palette_frame(address: int) -> None:
    """The picture of a call, see `calls.picture_address`."""
    call = _call_at(address)
    row, image = _integers_in(call.table), _bytes_in(call.reading)
    height, width, count = row[HEIGHT], row[WIDTH], row[SHAPE_COUNT]
    numbers = _floats_at(row[NUMBERS], _FRAME_NUMBERS)
    pose = aim_camera(numbers, _floats_in(call.motion))
    scale = Scale(numbers[_SCALE], numbers[_SCALE + 1], numbers[_SCALE + 2], numbers[_SCALE + 3])
    columns = _words_at(row[COLUMNS], 2 * row[COLUMN_BINS]).reshape(2, row[COLUMN_BINS])
    rows = _words_at(row[ROWS], 2 * row[ROW_BINS]).reshape(2, row[ROW_BINS])
    ground = _byte_grid_at(row[GROUND], row[GROUND_ROWS], row[GROUND_COLUMNS])
    shapes = Shapes(
        _float_grid_at(row[SHAPE_TABLE], count, SHAPE_COLUMNS),
        row[PAINTED],
        _float_grid_at(row[SHAPE_COEFFICIENTS], count, COEFFICIENTS),
        _words_at(row[SHAPE_SPANS], 4 * count).reshape(count, 4),
    )
    classes = _byte_grid_at(row[CLASSES], height, width)
    only = _draw(
        pose,
        numbers[_HEIGHT_OF_GROUND] - pose[2],
        True,
        False,
        _floats_at(row[RAYS], 2 * height * width).reshape(2, height, width),
        _floats_at(row[TILES], 4 * row[BANDS] * row[TILES_ACROSS]).reshape(row[BANDS], row[TILES_ACROSS], 4),
        ScreenIndex(scale, columns, rows),
        Surface(ground, numbers[_CELL], numbers[_CELL + 1], numbers[_CELL + 2]),
        shapes,
        _floats_at(row[ROW_ROOM], width),
        _float_grid_at(row[DEPTHS], height, width),
        classes,
    )
    palette = _byte_grid_at(row[PALETTE_COLOURS], row[CLASS_COUNT], 3)
    if only >= 0:
        fill_with_colour(palette[only], image)
        return
    _colour_rows(classes, palette, image.reshape(height, 3 * width))
    if row[WEIGHT_COUNT] == 1:  # there is no blur
        return
    if row[BLUR] != 0:
        _call(row[BLUR], address)
    else:
        _integers_at(row[UNFINISHED], _MOST_UNFINISHED)[row[UNFINISHED_COUNT]] = call.reading.address
        row[UNFINISHED_COUNT] += 1
        _delayed_at(call.memory.address).needs_python = 1


def blur_image(address: int) -> None:
    """The image of a call, if it has edges."""
    call = _call_at(address)
    row = _integers_in(call.table)
    height, width = row[HEIGHT], row[WIDTH]
    image, drawn = _byte_grid_at(call.reading.address, height, 3 * width), _byte_grid_at(row[DRAWN], height, 3 * width)
    marks = _byte_grid_at(row[MARKS], row[MARK_ROWS], row[MARK_COLUMNS])
    if not _mark_edges(image, row[WEIGHT_COUNT] - 1, marks):
        return
    _copy(row[DRAWN], call.reading.address, call.reading.count)
    weights, gains = _integers_at(row[WEIGHTS], row[WEIGHT_COUNT]), _words_at(row[GAINS], 3 * width)
    extended = _words_at(row[EXTENDED], row[EXTENDED_COUNT])
    blurred = _words_at(row[BLURRED], 3 * width * height).reshape(height, 3 * width)
    _blur_and_scale(drawn, marks, weights, gains, extended, blurred, image)


@kernel
def fill_with_colour(colour: Bytes, image: Bytes) -> None:
    """Every pixel: a bar of it, then ever longer copies."""
    size, done = image.shape[0], min(_BAR_BYTES, image.shape[0])
    for i in range(done):
        image[i] = colour[i % 3]
    begin = _table_address(image)
    while done < size:
        part = min(done, size - done)
        _copy(begin + done, begin, part)
        done += part
