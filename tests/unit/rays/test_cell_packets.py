"""Rays side by side over the grid: what each gives alone."""

import math

import numpy as np
import pytest

from microsim.engine import geometry
from microsim.rays.cell_packets import LANES, is_on_cells, meet_cells
from tests.support import many


@pytest.mark.parametrize("cell", [1.0, 0.37])
def test_a_packet_gives_every_ray_its_own_distance(cell: float) -> None:
    dice = np.random.default_rng(7)
    clearance = geometry.clearance_of((dice.random((23, 31)) < 0.06).astype(np.uint8))
    for _ in range(many(200, 5)):
        xs, ys = dice.uniform(0, 31 * cell, LANES), dice.uniform(0, 23 * cell, LANES)
        xs[:3], ys[1:4] = np.floor(xs[:3] / cell) * cell, np.floor(ys[1:4] / cell) * cell  # on borders of cells
        angles, out = dice.uniform(-4, 4, LANES), np.empty(LANES)
        dxs, dys, reaches = np.cos(angles), np.sin(angles), dice.uniform(0, 15, LANES)
        dxs[4:8], dys[4:8] = (1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 0.0, -1.0)
        meet_cells(clearance, cell, xs, ys, dxs, dys, reaches, out)
        rays = zip(xs, ys, dxs, dys, reaches, strict=True)
        alone = [geometry.distance_to_occupied(clearance, cell, *map(float, ray), False) for ray in rays]
        assert out.tolist() == alone


def test_rays_of_a_packet_start_on_the_grid() -> None:
    cells = np.ones((3, 4), np.uint8)
    inside = [(0.0, 0.0), (1.99, 1.49)]
    outside = [(-1e-9, 0.0), (0.0, -1e-9), (2.0, 0.0), (0.0, 1.5), (math.nan, 0.0), (0.0, math.nan)]
    assert all(is_on_cells(cells, 0.5, x, y) for x, y in inside)
    assert not any(is_on_cells(cells, 0.5, x, y) for x, y in outside)
