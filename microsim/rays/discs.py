"""Upright round obstacles that move: where they are at a tick, and how far a ray or a round robot is from them.

Discs are columns of an array (3, n): x, y [m] in the map frame, radius [m].
"""

import math

import numpy as np
import numpy.typing as npt

from microsim.engine import exact, geometry, noise
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid

_is_free = geometry.is_free
_sincos = exact.sincos
_uniforms = noise.uniforms

X, Y, RADIUS = range(3)

# rows of the plan of one that follows a path, and the values of REPEAT
PACE, START_S, REPEAT = range(3)
ONCE, LOOP, BACK_AND_FORTH = range(3)

# rows of a random walker's state and of its parameters
HEADING = 2  # [rad], after X and Y
SPEED, TURN_TICKS, WEST, SOUTH, EAST, NORTH = range(6)  # [m/s] [ticks] [m] [m] [m] [m]


@kernel
def see_discs(discs: Array, x: float, y: float, sine: float, cosine: float, beams: Array, out: Array) -> None:
    """Shorten `out`, distances along beams (2, n: cos and sin in the sensor's frame), to the nearest disc; 0 inside."""
    for k in range(discs.shape[1]):
        east, north = discs[X, k] - x, discs[Y, k] - y
        radius = discs[RADIUS, k]
        outside = east * east + north * north - radius * radius
        for i in range(beams.shape[1]):
            dx = cosine * beams[0, i] - sine * beams[1, i]
            dy = sine * beams[0, i] + cosine * beams[1, i]
            along = dx * east + dy * north
            beside = along * along - outside
            distance = math.inf
            if outside <= 0.0:
                distance = 0.0
            elif along > 0.0 and beside >= 0.0:
                distance = along - math.sqrt(beside)
            out[i] = min(out[i], distance)


@kernel
def way_to_discs(discs: Array, x: float, y: float, dx: float, dy: float, radius: float) -> float:
    """How far a round robot can drive along the unit vector (dx, dy) until it touches a disc, inf when it never does.

    0 when it touches one already and drives further into it.
    """
    free = math.inf
    for k in range(discs.shape[1]):
        east, north = discs[X, k] - x, discs[Y, k] - y
        along, aside = dx * east + dy * north, dx * north - dy * east
        reach = radius + discs[RADIUS, k]
        if along > 0.0 and abs(aside) < reach:
            free = min(free, max(along - math.sqrt(reach * reach - aside * aside), 0.0))
    return free


@kernel
def along_paths(
    points: Array, lengths: Array, first: npt.NDArray[np.int64], plans: Array, time_s: float, discs: Array
) -> None:
    """Put disc i where its path is at a time.

    points (2, p): corners of all paths in a row, those of path i from first[i] to first[i + 1]; lengths (p,): way from
    the path's first corner; plans (3, n): PACE [m/s], START_S [s], REPEAT. Nothing adds up: any time can be asked for.
    """
    for i in range(first.shape[0] - 1):
        k, last = first[i], first[i + 1] - 1
        whole = lengths[last]
        way = plans[PACE, i] * max(time_s - plans[START_S, i], 0.0)
        if plans[REPEAT, i] == ONCE or whole == 0.0:
            way = min(way, whole)
        elif plans[REPEAT, i] == LOOP:
            way -= whole * math.floor(way / whole)
        else:
            way -= 2.0 * whole * math.floor(way / (2.0 * whole))
            way = min(way, 2.0 * whole - way)
        while k < last - 1 and way >= lengths[k + 1]:
            k += 1
        after = min(k + 1, last)
        stretch = lengths[after] - lengths[k]
        share = min(max((way - lengths[k]) / stretch, 0.0), 1.0) if stretch > 0.0 else 0.0
        discs[X, i] = points[0, k] + (points[0, after] - points[0, k]) * share
        discs[Y, i] = points[1, k] + (points[1, after] - points[1, k]) * share


@kernel
def walk(
    state: Array,
    parameters: Array,
    keys: npt.NDArray[np.int64],
    tick: int,
    dt: float,
    has_grid: bool,
    clearance: Grid,
    cell: float,
    frame: Array,
) -> None:
    """Random walkers from tick to tick + 1: straight ahead, with a new heading every TURN_TICKS.

    Who would leave their rectangle or enter an occupied cell stays, and takes a new heading at the next tick. Any
    tick's heading is a function of (key, tick), whatever happened before. `frame`: x, y, sin, cos of the grid's corner.
    """
    for i in range(state.shape[1]):
        if tick % int(parameters[TURN_TICKS, i]) == 0 or state[HEADING, i] == math.inf:
            state[HEADING, i] = (_uniforms(keys[i], tick, 0)[0] - 0.5) * exact.TWO_PI
        sine, cosine = _sincos(state[HEADING, i])
        x = state[X, i] + parameters[SPEED, i] * cosine * dt
        y = state[Y, i] + parameters[SPEED, i] * sine * dt
        inside = parameters[WEST, i] <= x <= parameters[EAST, i] and parameters[SOUTH, i] <= y <= parameters[NORTH, i]
        if inside and has_grid:
            east, north = x - frame[0], y - frame[1]
            u, v = frame[3] * east + frame[2] * north, frame[3] * north - frame[2] * east
            rows, columns = clearance.shape
            on_grid = 0.0 <= u < columns * cell and 0.0 <= v < rows * cell
            inside = not on_grid or _is_free(clearance, cell, u, v)
        if inside:
            state[X, i], state[Y, i] = x, y
        else:
            state[HEADING, i] = math.inf
