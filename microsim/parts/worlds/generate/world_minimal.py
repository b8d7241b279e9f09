"""The smallest possible world: 128 x 128 heights, one polygon, 100 Gaussians, one camera, one LiDAR."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_model import FIRST_HARMONIC
from microsim.bundle.bundle_writing import BundleContent
from microsim.parts.worlds.generate.surfaces import camera, lidar

GAUSSIANS = 100

_SIZE = 128
_RESOLUTION = 0.5  # [m]


def make_world(name: str = "minimal_test") -> BundleContent:
    """A gentle bowl of 64 m x 64 m about the origin, with a drivable square and a grid of grey and green splats."""
    half = 0.5 * _SIZE * _RESOLUTION
    axis = (np.arange(_SIZE, dtype=np.float64) + 0.5) * _RESOLUTION - half
    heights = (axis[None, :] * axis[None, :] + axis[:, None] * axis[:, None]) * 0.0005
    calibration = {
        "cameras": {"front": camera((1.5, 0.0, 1.2), width=320, height=240, intrinsics=_intrinsics())},
        "lidars": {"top": lidar((0.9, 0.0, 1.8), [-15.0 + 2.0 * ring for ring in range(16)], 360)},
    }
    square = np.array([[-24.0, -24.0], [24.0, -24.0], [24.0, 24.0], [-24.0, 24.0], [-24.0, -24.0]])
    return BundleContent(
        name=name,
        description="The smallest world bundle: a gentle bowl with a square to drive on.",
        heights=heights.astype(np.float32),
        resolution_m=_RESOLUTION,
        west=-half,
        south=-half,
        polygons=[([square], 0)],
        gaussians=_gaussians(),
        sh_degree=0,
        calibration=calibration,
        vehicle={"start": {"x": -15.0, "y": 0.0, "yaw": 0.0}},
        render={"background_rgb": [0.53, 0.71, 0.86]},
    )


def _intrinsics() -> dict[str, float]:
    return {"fx": 200.0, "fy": 200.0, "cx": 159.5, "cy": 119.5}


def _gaussians() -> npt.NDArray[np.float32]:
    """Flat discs on the ground, ten by ten: grey on the square, green around it."""
    values = np.zeros((GAUSSIANS, 14), np.float32)
    for index in range(GAUSSIANS):
        x, y = -28.8 + 6.4 * (index % 10), -28.8 + 6.4 * (index // 10)
        on_road = abs(x) < 24.0 and abs(y) < 24.0
        values[index, 0:3] = x, y, (x * x + y * y) * 0.0005
        values[index, 3:6] = 1.0, 1.0, -4.0  # logarithms: 2.7 m wide, 2 cm thick
        values[index, 9] = 1.0  # no turn
        values[index, 10] = 4.0  # logit: 98 %
        colour = (0.35, 0.35, 0.37) if on_road else (0.25, 0.45, 0.2)
        values[index, 11:14] = [(part - 0.5) / FIRST_HARMONIC for part in colour]
    return values
