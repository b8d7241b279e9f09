"""/scan: rays against the map and the moving obstacles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.geometry import Array
from microsim.rays.discs import see_discs
from microsim.ros2.robot_simulator.grids import GridMap
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings
from microsim.sensors.scan import beam_table, cast, measure


class Scanner:
    """What one scan sees; the same for all robots of a node."""

    def __init__(self, settings: RobotSimulatorSettings) -> None:
        self.angle_min = settings.scan_angle_min
        self.beams, self.step = beam_table(settings.scan_angle_min, settings.scan_angle_max, settings.scan_beams, 0.0)
        self.min_m, self.max_m, self.sigma_m = (
            settings.scan_range_min,
            settings.scan_range_max,
            settings.scan_noise_std_m,
        )
        self._distances = np.empty(settings.scan_beams)
        self._ranges = np.empty(settings.scan_beams, np.float32)

    def distances(self, pose: tuple[float, float, float], grid: GridMap, discs: Array) -> Array:
        """Without noise [m], inf beyond reach; valid until the next call. `pose` in the map frame."""
        x, y, yaw = pose
        out, frame = self._distances, grid.frame
        sine, cosine = exact.sincos(yaw)
        east, north = x - frame[0], y - frame[1]
        u, v = frame[3] * east + frame[2] * north, frame[3] * north - frame[2] * east
        in_grid = (sine * frame[3] - cosine * frame[2], cosine * frame[3] + sine * frame[2])
        reach = self.max_m + 10.0 * self.sigma_m
        cast(grid.clearance, grid.cell_m, u, v, *in_grid, self.beams, reach, out)
        see_discs(discs, x, y, sine, cosine, self.beams, out)
        return out

    def ranges(
        self, pose: tuple[float, float, float], grid: GridMap, discs: Array, key: int, tick: int
    ) -> npt.NDArray[np.float32]:
        """As REP-117 wants them: +inf too far, -inf too near; valid until the next call."""
        measure(self.distances(pose, grid, discs), self._ranges, key, tick, self.min_m, self.max_m, self.sigma_m, 0.0)
        return self._ranges
