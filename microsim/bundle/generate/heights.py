"""A heightmap while a world is being made: heights and normals anywhere on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ground:
    heights: Floats  # (ny, nx) [m] at cell centres, row 0 in the south
    resolution_m: float
    west: float
    south: float

    @property
    def east(self) -> float:
        return self.west + self.heights.shape[1] * self.resolution_m

    @property
    def north(self) -> float:
        return self.south + self.heights.shape[0] * self.resolution_m

    def height(self, x: Floats, y: Floats) -> Floats:
        """Bilinear between cell centres, continued from the edge."""
        import numpy as np

        rows, columns = self.heights.shape
        u = np.clip((x - self.west) / self.resolution_m - 0.5, 0.0, columns - 1.0)
        v = np.clip((y - self.south) / self.resolution_m - 0.5, 0.0, rows - 1.0)
        i = np.minimum(u.astype(np.int64), max(columns - 2, 0))
        j = np.minimum(v.astype(np.int64), max(rows - 2, 0))
        s, t = u - i, v - j
        east, north = np.minimum(i + 1, columns - 1), np.minimum(j + 1, rows - 1)
        low = self.heights[j, i] * (1.0 - s) + self.heights[j, east] * s
        high = self.heights[north, i] * (1.0 - s) + self.heights[north, east] * s
        return low * (1.0 - t) + high * t

    def normal(self, x: Floats, y: Floats) -> Floats:
        """Unit normals, from the slope over one cell to either side."""
        import numpy as np

        step = self.resolution_m
        slope_x = (self.height(x + step, y) - self.height(x - step, y)) / (2.0 * step)
        slope_y = (self.height(x, y + step) - self.height(x, y - step)) / (2.0 * step)
        length = np.sqrt(slope_x * slope_x + slope_y * slope_y + 1.0)
        return np.stack([-slope_x / length, -slope_y / length, 1.0 / length], axis=1)
