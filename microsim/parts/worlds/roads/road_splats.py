"""Lanes as Gaussians that are long along them and narrow across: lane marks keep their edges, however large the map is.

Renderers order Gaussians by their middles, so that a wide one of asphalt would cover half of the mark beside it.
Towards marks and kerbs, stripes therefore become narrower.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.road_map import RoadLane, RoadMap
from microsim.parts.worlds.generate.surfaces import MadeGround, dice, discs

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

GRASS, ASPHALT, MARK, KERB = (0.33, 0.45, 0.24), (0.29, 0.29, 0.31), (0.86, 0.86, 0.84), (0.58, 0.57, 0.55)
VERGE_M = 10.0  # beside the lanes, so far at the most
MOST_SPLATS = 500_000

_MARK_SIGMA_M = 0.05  # a mark of 12 cm
# Distance from the border [m] and standard deviation across [m]: asphalt, from either border; kerb and grass, outwards
_TOWARDS_THE_MIDDLE = ((0.16, 0.05), (0.3, 0.07), (0.48, 0.1), (0.75, 0.15))
_MIDDLE_M, _MIDDLE_SIGMA_M = 0.45, 0.26
_OUTWARDS = ((0.4, 0.1), (0.65, 0.14), (1.0, 0.2), (1.5, 0.3), (2.2, 0.45), (3.3, 0.7), (5.0, 1.0), (7.5, 1.5))
_KERB = (0.2, 0.06)
_INSIDE_M = 0.3  # farther inside another lane there is no border: lanes cross there
_DASH_M, _GAP_M = 3.0, 3.0
_STEP_M, _ACROSS = 0.7, 30  # between splats along a lane; so many are across it with both verges


def road_splats(roads: RoadMap, ground: MadeGround, away_m: Floats) -> npt.NDArray[np.float32]:
    """`away_m` (ny, nx): how far each of the ground's cells is from the lanes."""
    lanes = list(roads.lanes.values())
    borders = _Borders(lanes)
    step = max(_STEP_M, _ACROSS * sum(lane.length_m for lane in lanes) / MOST_SPLATS)
    parts = [part for lane in lanes for part in _stripes(lane, step, borders)]
    points, along, sigmas, colours = (np.concatenate(each) for each in zip(*parts, strict=True))
    i = np.clip((points[:, 0] - ground.west) / ground.resolution_m, 0, away_m.shape[1] - 1).astype(np.int64)
    j = np.clip((points[:, 1] - ground.south) / ground.resolution_m, 0, away_m.shape[0] - 1).astype(np.int64)
    is_grass = (colours == GRASS).all(axis=1)
    kept = ~is_grass | (away_m[j, i] > 1.2 * sigmas[:, 1])  # a verge is not on another lane
    points, along, sigmas, colours = points[kept], along[kept], sigmas[kept], colours[kept]
    points[:, 2] = ground.height(points[:, 0], points[:, 1])
    shades = colours * (0.95 + 0.1 * dice("road", len(points), 1))
    rows = discs(points, ground.normal(points[:, 0], points[:, 1]), 1.0, shades)
    rows[:, 3:5] = np.log(sigmas)
    rows[:, 6:10] = _turned(rows[:, 6:10].astype(np.float64), along)
    return rows[np.isfinite(rows).all(axis=1)]


def _turned(tilts: Floats, along: Floats) -> Floats:
    """x, y, z, w of first a turn about z, which takes x to `along`, then the tilt."""
    cos = along[:, 0]
    w, z = np.sqrt(0.5 * np.maximum(1.0 + cos, 0.0)), np.sqrt(0.5 * np.maximum(1.0 - cos, 0.0))
    z = np.where(along[:, 1] < 0.0, -z, z)
    tx, ty, _, tw = tilts.T
    out: Floats = np.stack([tx * w + ty * z, ty * w - tx * z, tw * z, tw * w], axis=1)
    return out / np.linalg.norm(out, axis=1, keepdims=True)


_Part: TypeAlias = tuple[Floats, Floats, Floats, Floats]  # points, directions, sigmas along and across, colours


def _stripes(lane: RoadLane, step: float, borders: _Borders) -> list[_Part]:
    count = max(2, int(lane.length_m / step) + 1)
    at = np.linspace(0.0, len(lane.left) - 1.0, count)
    index = np.minimum(at.astype(np.int64), len(lane.left) - 2)
    part = (at - index)[:, None]
    left, right = (line[index] * (1.0 - part) + line[index + 1] * part for line in (lane.left, lane.right))
    ends = 0.5 * (left + right)
    pieces = ends[1:] - ends[:-1]
    lengths = np.linalg.norm(pieces[:, :2], axis=1)
    good = lengths > 1e-3
    left, right = 0.5 * (left[1:] + left[:-1])[good], 0.5 * (right[1:] + right[:-1])[good]
    lengths, along = lengths[good], pieces[good, :2] / lengths[good, None]
    far = np.cumsum(lengths)
    across = right - left
    widths = np.linalg.norm(across[:, :2], axis=1)
    across = across / np.maximum(widths, 1e-6)[:, None]
    found: list[_Part] = []

    def stripe(points: Floats, sigma: float, colour: tuple[float, float, float], where: Mask) -> None:
        sigmas = np.stack([0.62 * lengths[where], np.full(int(where.sum()), sigma)], axis=1)
        found.append((points[where].copy(), along[where], sigmas, np.tile(colour, (int(where.sum()), 1))))

    for border, inwards, is_left in ((left, across, True), (right, -across, False)):
        crossed, beside, is_opposite = borders.at(border, border - _INSIDE_M * inwards, along)
        is_dash = np.mod(far, _DASH_M + _GAP_M) < _DASH_M
        shown = ~crossed & (~beside | is_opposite | (is_dash & is_left))
        stripe(border, _MARK_SIGMA_M, MARK, shown)
        stripe(border, _MARK_SIGMA_M, ASPHALT, ~shown)
        for off, sigma in _TOWARDS_THE_MIDDLE:
            stripe(border + off * inwards, sigma, ASPHALT, off < 0.5 * widths)
        outside = ~beside & ~crossed
        stripe(border - _KERB[0] * inwards, _KERB[1], KERB, outside)
        for off, sigma in _OUTWARDS:
            stripe(border - off * inwards, sigma, GRASS, outside)
    edge = _TOWARDS_THE_MIDDLE[-1][0]
    count = max(2, math.ceil((float(widths.max(initial=0.0)) - 2.0 * edge) / _MIDDLE_M))
    for number in range(1, count):
        off = edge + (widths - 2.0 * edge) * number / count
        stripe(left + off[:, None] * across, _MIDDLE_SIGMA_M, ASPHALT, widths > 2.0 * edge)
    return found


class _Borders:
    """What is beside a border: nothing, a lane of the same or of the opposite direction, or a lane across it."""

    def __init__(self, lanes: list[RoadLane]) -> None:
        import shapely

        outlines = [shapely.make_valid(shapely.Polygon(lane.outline)) for lane in lanes]
        self.whole = shapely.STRtree(outlines)
        self.inner = shapely.STRtree(shapely.buffer(outlines, -_INSIDE_M))
        self.headings = [lane.centre[-1, :2] - lane.centre[0, :2] for lane in lanes]

    def at(self, border: Floats, outside: Floats, along: Floats) -> tuple[Mask, Mask, Mask]:
        """For each point: is it inside another lane; is a lane beside it; is that one's direction opposite."""
        import shapely

        crossed, beside, opposite = (np.zeros(len(border), np.bool_) for _ in range(3))
        crossed[self.inner.query(shapely.points(border[:, :2]), predicate="within")[0]] = True
        points, lanes = self.whole.query(shapely.points(outside[:, :2]), predicate="within")
        beside[points] = True
        for point, lane in zip(points.tolist(), lanes.tolist(), strict=True):
            opposite[point] |= bool(self.headings[lane] @ along[point] < 0.0)
        return crossed, beside, opposite
