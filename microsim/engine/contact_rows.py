"""How `contacts` writes down a world: columns of its tables, and functions that read them."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import calls as _calls
from microsim.engine.calls import Rows
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array

Integers: TypeAlias = npt.NDArray[np.int64]

_floats_at, _integers_at = _calls.floats_at, _calls.integers_at

SCENERY = ("obstacle", "mesh", "map edge", "missing ground")  # what robots touch beside each other, by bit
AN_OBSTACLE, A_MESH, MAP_EDGE, MISSING_GROUND = range(4)
FIRST_ROBOT = len(SCENERY)  # bit of the first robot
SCENERY_BITS = (1 << FIRST_ROBOT) - 1

GAP_M = 1e-3  # a contact between bodies ends when they are farther apart
PROBE_M = 5e-3  # how far around a stopped robot its obstacle is looked for
ALL_PAIRS = 24  # robots; among more, neighbours are found by cells
EVENTS = 256  # contacts that are kept until they are read

# columns of a robot
STATE, STRIDE, FLAGS, ZEROED, KEPT = range(5)
ROBOT_COLUMNS = 5
IS_GROUND_BOUND, MINDS_CELLS = 1, 2  # flags; ZEROED and KEPT have a bit for each row of the state

# columns of a world's table
ROBOTS, COUNT, BODIES, SCRATCH, MARKS, TOUCH, WORDS, WIDTH, SCENE = range(9)
SOLIDS, SOLID_COUNT, PLACES, PLACES_STEP, KINDS, KINDS_ROWS, KINDS_COLUMNS = range(9, 16)
TRIANGLES, BUCKETS, ITEMS, MESH_FACTS, RULES, EVENT_LIST, HEIGHTS = range(16, 23)
SOLIDS_STEP, HEIGHTS_STEP = range(23, 25)  # bytes from one world's to the next; 0: shared
TABLE_COLUMNS = 25
STOPS_ALL, HAS_BODIES = 1, 2  # bits of RULES

# numbers that are kept of a robot during a tick: pose and velocity before it, rows that stay, pose now, and which of
# the obstacles it touches, counted from 1: what stopped it, or the first; 0: none
BEFORE, VELOCITY, ROWS_KEPT, HERE, WHICH = 0, 6, 9, 13, 19
SCRATCH_COLUMNS = 20
MOST_KEPT = HERE - ROWS_KEPT

# columns of a solid: half its extent along x and y, whether it is round, base above the ground, height
HALF_X, HALF_Y, IS_ROUND, BASE, TALL = range(5)
SOLID_COLUMNS = 5
CEILING, LOWEST = range(2)  # of HEIGHTS: above the first there is no solid


@kernel
def state_at(t: Rows, robot: int, world: int) -> tuple[Array, int]:
    """A robot's state, and how far it is from one row to the next."""
    row = _integers_at(t[ROBOTS] + 8 * ROBOT_COLUMNS * robot, ROBOT_COLUMNS)
    return _floats_at(row[STATE] + 8 * world, 63 * row[STRIDE]), row[STRIDE]


@kernel
def comes_nearer(scratch: Array, r: int, x: float, y: float, z: float) -> bool:
    before, after = 0.0, 0.0
    for k in range(3):
        place = x if k == 0 else y if k == 1 else z
        one, other = scratch[r, k] - place, scratch[r, HERE + k] - place
        before, after = before + one * one, after + other * other
    return after < before


@kernel
def mark(marks: Integers, words: int, r: int, bit: int) -> None:
    marks[r * words + bit // 63] |= 1 << (bit % 63)


# what is kept of a robot's contacts, beside words of bits: what it touched last (see `code_of`), which obstacle now
LAST, AROUND_WORDS = -1, 2


@kernel
def touch_address(t: Rows, r: int, world: int, word: int) -> int:
    """Where its `touch_words` are, LAST before them, and WHICH after them; those of the next world follow."""
    return int(t[TOUCH] + 8 * ((r * (t[WORDS] + AROUND_WORDS) + 1 + word) * t[WIDTH] + world))


@kernel
def code_of(what: int, which: int) -> int:
    """A bit and the obstacle's number as one, above 0."""
    return what + 1 + ((which << 32) if what == AN_OBSTACLE else 0)


def decoded(code: int) -> tuple[int, int]:
    return (code & 0xFFFFFFFF) - 1, code >> 32


@kernel
def touch_words(t: Rows, r: int, world: int, word: int) -> int:
    """Bits of what a robot touched after the last tick."""
    return int(_integers_at(touch_address(t, r, world, word), 1)[0])


@kernel
def was_touching(t: Rows, r: int, world: int, bit: int) -> bool:
    return (touch_words(t, r, world, bit // 63) >> (bit % 63)) & 1 == 1
