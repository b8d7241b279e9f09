"""A world from above, as an image: free and occupied cells, landmarks, robots with their headings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from microsim.batch import BatchSimulation
from microsim.engine.components import YAW, X, Y
from microsim.engine.exact import sincos
from microsim.engine.world import OBSTACLE, PALETTE, TARGET

SIZE_PX = 400  # of the longer side
COLOURS = ((0x2C, 0x3E, 0x50), (0xD3, 0x54, 0x00), (0x8E, 0x44, 0xAD), (0x16, 0xA0, 0x85))  # of robots, in turn


def draw(
    batch: BatchSimulation, world: int, landmarks: Sequence[tuple[float, float, float]] = ()
) -> npt.NDArray[np.uint8]:
    """(height, width, 3), north up."""
    ground = batch.ground
    clearance = ground.clearances[0 if ground.is_shared else world]
    rows, columns = clearance.shape
    scale = SIZE_PX / (max(rows, columns) * ground.cell)  # px per metre
    height, width = (max(round(count * ground.cell * scale), 1) for count in (rows, columns))
    x = ground.west + (np.arange(width) + 0.5) / scale
    y = ground.south + (np.arange(height)[::-1] + 0.5) / scale
    i = np.minimum(((x - ground.west) / ground.cell).astype(int), columns - 1)
    j = np.minimum(((y - ground.south) / ground.cell).astype(int), rows - 1)
    image: npt.NDArray[np.uint8] = np.full((height, width, 3), 0xF2, np.uint8)
    image[clearance[np.ix_(j, i)] == 0] = PALETTE[OBSTACLE]
    for mark_x, mark_y, radius in landmarks:
        _disc(image, x, y, mark_x, mark_y, radius, PALETTE[TARGET])
    for number, robot in enumerate(batch.robots):
        state = batch.rows(robot)[:, world]
        sine, cosine = sincos(float(state[YAW]))
        size = 5.0 / scale
        for share in (0.0, 0.7, 1.3):  # a head that points ahead
            at = (float(state[X]) + share * size * cosine, float(state[Y]) + share * size * sine)
            _disc(image, x, y, *at, size * (1.0 - 0.3 * share), COLOURS[number % len(COLOURS)])
    return image


def _disc(
    image: npt.NDArray[np.uint8],
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    middle_x: float,
    middle_y: float,
    radius: float,
    colour: Sequence[int] | npt.NDArray[np.uint8],
) -> None:
    inside = np.square(x - middle_x)[None, :] + np.square(y - middle_y)[:, None] <= radius * radius
    image[inside] = colour
