"""`worlds/oval`: a loop of asphalt in hilly grass, with a pit, walls, cones, trees and a pond without ground.

Everything is made from one description of the course, so that heights, mesh, drivable area and Gaussians agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_writing import BundleContent
from microsim.engine.exact import PI, TWO_PI, sincos
from microsim.engine.random_layout import octaves
from microsim.parts.worlds.generate.surfaces import (
    FORWARD,
    SUN,
    Colour,
    MadeGround,
    Rows,
    Solids,
    camera,
    dice,
    discs,
    jittered_grid,
    lidar,
)

Floats: TypeAlias = npt.NDArray[np.float64]

HALF_STRAIGHT = 40.0  # the straights run from x = -40 m to x = 40 m ...
RADIUS = 30.0  # ... at y = -30 m and y = 30 m
HALF_WIDTH = 5.0  # of the asphalt
LENGTH = 4.0 * HALF_STRAIGHT + TWO_PI * RADIUS

WEST, SOUTH, COLUMNS, ROWS, RESOLUTION = -100.0, -70.0, 800, 560, 0.25
PIT = ((-22.0, -27.0), (22.0, -27.0), (22.0, -15.0), (-22.0, -15.0))  # a paved square beside the southern straight
POND = (-28.0, 4.0, 6.0)  # x, y, radius: no ground in it

WHITE, YELLOW, RED = (0.86, 0.86, 0.83), (0.8, 0.63, 0.2), (0.66, 0.16, 0.14)
ASPHALT, RUBBER, CONCRETE, WATER = (0.31, 0.31, 0.32), (0.2, 0.2, 0.21), (0.52, 0.51, 0.49), (0.3, 0.42, 0.5)
GRASS, DRY_GRASS, SOIL = (0.25, 0.38, 0.15), (0.44, 0.43, 0.23), (0.36, 0.31, 0.22)
TRUNK, ORANGE, BLACK, BARRIER = (0.33, 0.25, 0.18), (0.88, 0.36, 0.1), (0.08, 0.08, 0.08), (0.66, 0.65, 0.62)
CROWNS = ((0.16, 0.3, 0.12), (0.22, 0.36, 0.13), (0.31, 0.39, 0.15))

WALL_OFFSET, WALL_HEIGHT, WALL_THICKNESS = 9.0, 1.0, 0.4
TREES = 90
VERGE = 18.0  # distance from the centre line up to which the grass is dense
FINE_M = 0.19  # between painted Gaussians
FINE_BANDS = ((-5.98, -4.4), (-0.3, 0.3), (4.4, 5.28))  # distances from the centre line
OVERLAP_M = 0.16  # of fine Gaussians and those beside them: no gap
LEAVES = 95  # Gaussians of a crown
START_M = 1.8  # to either side of the start, all of the road is fine


def make_world(name: str = "oval") -> BundleContent:
    """The whole world, in about two seconds."""
    ground = course_ground()
    built, grown, trees = Solids(), Solids(), _places_of_trees(ground)
    _walls(built, ground)
    _cones(built, ground)
    for tree in trees:
        _tree(grown, tree)
    heights = ground.heights.astype(np.float32)
    heights[pond_depth(*_cell_centres(ground)) > 0.0] = np.nan
    pit = np.array([*PIT, PIT[0]])
    calibration = _calibration()
    return BundleContent(
        name=name,
        description="A loop of 348 m in hilly grass, with walls, cones, trees, a pit and a pond.",
        heights=heights,
        resolution_m=ground.resolution_m,
        west=ground.west,
        south=ground.south,
        polygons=[([ring(HALF_WIDTH), ring(-HALF_WIDTH)[::-1]], 0), ([pit], 1)],
        gaussians=np.concatenate([_ground_splats(ground, trees), built.splats(0.36, 0.07), _foliage(trees)]),
        sh_degree=0,
        calibration=calibration,
        mesh=(built + grown).mesh(),
        vehicle={"start": {"x": -20.0, "y": -RADIUS, "yaw": 0.0}},
        render={"background_rgb": [0.76, 0.84, 0.92], "sky_rgb": [0.29, 0.53, 0.82]},
    )


def _cell_centres(ground: MadeGround) -> tuple[Floats, Floats]:
    rows, columns = ground.heights.shape
    x = (np.arange(columns) + 0.5) * ground.resolution_m + ground.west
    y = (np.arange(rows) + 0.5) * ground.resolution_m + ground.south
    return np.broadcast_to(x[None, :], (rows, columns)), np.broadcast_to(y[:, None], (rows, columns))


def _calibration() -> dict[str, dict[str, object]]:
    right, left = (-0.2705980500730985, 0.6532814824381883, -0.6532814824381883, 0.2705980500730985), (
        -0.6532814824381883, 0.2705980500730985, -0.2705980500730985, 0.6532814824381883,
    )  # FORWARD turned by 45 degrees to either side  # fmt: skip
    return {
        "cameras": {
            "front": camera((1.6, 0.0, 1.3), FORWARD),
            "front_left": camera((1.5, 0.5, 1.3), left),
            "front_right": camera((1.5, -0.5, 1.3), right),
        },
        "lidars": {"top": lidar((0.9, 0.0, 1.9), [-25.0 + 1.25 * ring for ring in range(32)], 1024)},
    }


def _walls(solids: Solids, ground: MadeGround) -> None:
    """A barrier around the outside, of concrete, red and white in the bends, with two gaps."""
    pieces = 132
    step = LENGTH / pieces
    for piece in range(pieces):
        if piece in (40, 41, 106, 107):
            continue
        corners = [
            along(s, across)[:2]
            for s, across in (
                (piece * step, WALL_OFFSET + WALL_THICKNESS),
                ((piece + 1) * step, WALL_OFFSET + WALL_THICKNESS),
                ((piece + 1) * step, WALL_OFFSET),
                (piece * step, WALL_OFFSET),
            )
        ]
        x, y = along((piece + 0.5) * step, WALL_OFFSET)[:2]
        base = _height(ground, x, y)
        colour = BARRIER if _is_straight((piece + 0.5) * step) else RED if piece % 2 else WHITE
        solids.prism(corners, base - 0.5, base + WALL_HEIGHT, colour)


def _cones(solids: Solids, ground: MadeGround) -> None:
    """Along the inner edge of the bends, and around the pit."""
    places = [along(HALF_STRAIGHT + 6.0 * index, -HALF_WIDTH - 0.8)[:2] for index in range(16)]
    places += [(-x, -y) for x, y in places]
    places += [(-22.0 + 4.0 * index, -14.6) for index in range(12)]
    for x, y in places:
        base = _height(ground, x, y)
        stripes = (ORANGE, WHITE, ORANGE)
        solids.barrel((x, y, base), (0.22, 0.15, 0.09, 0.02), (0.0, 0.3, 0.48, 0.75), stripes, 10)


@dataclass(frozen=True)
class PlantedTree:
    foot: tuple[float, float, float]
    height: float
    radius: float  # of its crown
    green: Colour

    @property
    def trunk(self) -> float:
        return 0.35 * self.height


def _places_of_trees(ground: MadeGround) -> list[PlantedTree]:
    """Off the road, outside the walls and in the infield; never in the pond or the pit."""
    rolls = dice("trees", 6 * TREES, 5)
    planted: list[tuple[float, float]] = []
    trees: list[PlantedTree] = []
    for across, along, size, girth, kind in rolls.tolist():
        x = ground.west + 3.0 + across * (ground.east - ground.west - 6.0)
        y = ground.south + 3.0 + along * (ground.north - ground.south - 6.0)
        here = np.array([x]), np.array([y])
        off = float(offset(*here)[0])
        inside_pit = -25.0 < x < 25.0 and -30.0 < y < -12.0
        if -10.0 < off < WALL_OFFSET + 4.0 or inside_pit or float(pond_depth(*here)[0]) > -3.0:
            continue
        if any((x - u) * (x - u) + (y - v) * (y - v) < 16.0 for u, v in planted):
            continue
        planted.append((x, y))
        foot = (x, y, _height(ground, x, y))
        trees.append(PlantedTree(foot, 4.0 + 5.0 * size, 1.3 + 1.2 * girth, CROWNS[int(3.0 * kind)]))
        if len(planted) == TREES:
            break
    return trees


def _tree(solids: Solids, tree: PlantedTree) -> None:
    """What a LiDAR and the collision mesh know of it."""
    x, y, z = tree.foot
    solids.barrel((x, y, z - 0.3), (0.18, 0.14), (0.0, tree.trunk + 0.4), (TRUNK,), 6)
    profile = ((0.0, 0.0), (0.75, 0.15), (1.0, 0.4), (0.8, 0.7), (0.45, 0.9), (0.0, 1.0))
    radii, heights = (
        [tree.radius * part for part, _ in profile],
        [(tree.height - tree.trunk) * part for _, part in profile],
    )
    solids.barrel((x, y, z + tree.trunk), radii, heights, (tree.green,) * 5, 9)


def _foliage(trees: Sequence[PlantedTree]) -> Rows:
    """Trunks, and crowns of clumps of leaves: light above and towards the sun, dark below and inside."""
    trunks = Solids()
    points: list[tuple[float, float, float]] = []
    normals: list[tuple[float, float, float]] = []
    radii: list[float] = []
    colours: list[tuple[float, ...]] = []
    for number, tree in enumerate(trees):
        x, y, z = tree.foot
        trunks.barrel((x, y, z - 0.3), (0.2, 0.12), (0.0, tree.trunk + 0.9), (TRUNK,), 5)
        half = 0.5 * (tree.height - tree.trunk)
        clumps = dice(f"clumps {number}", 7, 4).tolist()
        for turn, lift, far, size, bright, lean in dice(f"leaves {number}", LEAVES, 6).tolist():
            around, _, bulge, level = clumps[int(7.0 * size)]
            sin, cos = sincos(TWO_PI * turn)
            up = 2.0 * lift - 1.0
            side, deep = math.sqrt(max(1.0 - up * up, 0.0)), 0.72 + 0.3 * far
            lump = 1.0 + 0.28 * (bulge - 0.4) * max(0.0, 1.0 - abs(turn - around) * 4.0 - abs(lift - level))
            taper = 1.0 - 0.3 * max(up, 0.0)
            reach = tree.radius * side * deep * lump * taper
            points.append((x + reach * cos, y + reach * sin, z + tree.trunk + half * (1.0 + 0.97 * up * deep * lump)))
            tilt = (side * cos + 0.5 * (lean - 0.5), side * sin + 0.5 * (bright - 0.5), up + 0.35)
            length = math.sqrt(tilt[0] * tilt[0] + tilt[1] * tilt[1] + tilt[2] * tilt[2])
            normals.append((tilt[0] / length, tilt[1] / length, tilt[2] / length))
            radii.append(round(tree.radius * (0.16 + 0.1 * size), 2))
            light = (0.55 + 0.4 * lift) * (0.72 + 0.5 * bright) * (0.55 + 0.55 * far)
            colours.append(tuple(1.35 * light * part for part in tree.green))
    leaves = discs(np.array(points), np.array(normals), np.array(radii), np.array(colours), 0.9)
    return np.concatenate([trunks.splats(0.7, 0.2), leaves])


def _height(ground: MadeGround, x: float, y: float) -> float:
    return float(ground.height(np.array([x]), np.array([y]))[0])


def _ground_splats(ground: MadeGround, trees: Sequence[PlantedTree]) -> Rows:
    """Fine where something is painted, dense on the road, sparse far from it.

    Gaussians are sorted by their middles, so a large one beside a painted line would hide it: none is let near.
    """
    near, middle, far = (
        _jittered(ground, "near", 0.44),
        _jittered(ground, "middle", 0.78),
        _jittered(ground, "far", 1.15),
    )
    paved = _is_paved(near) & ~_is_fine(near)
    verge = ~_is_paved(middle) & ~_is_fine(middle) & (_distance(middle) <= VERGE)
    beyond = ~_is_paved(far) & (_distance(far) > VERGE - 0.6)
    parts = ((near[paved], 0.29), (middle[verge], 0.54), (far[beyond], 0.8))
    lying = [
        _lying(ground, places, radius, _ground_colours(places) * _light(ground, places, trees))
        for places, radius in parts
    ]
    return np.concatenate([*lying, _painted(ground, trees)])


def _light(ground: MadeGround, places: Floats, trees: Sequence[PlantedTree]) -> Floats:
    """(n, 1) what reaches the ground: less in the shadow of crowns and of the barrier."""
    x, y = places[:, 0], places[:, 1]
    z = ground.height(x, y)
    light = np.ones(len(x))
    for tree in trees:
        half = 0.5 * (tree.height - tree.trunk)
        dx, dy, dz = tree.foot[0] - x, tree.foot[1] - y, tree.foot[2] + tree.trunk + half - z
        ahead = dx * SUN[0] + dy * SUN[1] + dz * SUN[2]
        off = np.sqrt(np.maximum(dx * dx + dy * dy + dz * dz - ahead * ahead, 0.0))
        light = np.minimum(light, 1.0 - 0.52 * np.clip((0.5 * (tree.radius + half) + 0.5 - off) / 1.0, 0.0, 1.0))
        foot = np.sqrt(dx * dx + dy * dy)
        light = np.minimum(light, 1.0 - 0.3 * np.clip((1.1 - foot) / 0.9, 0.0, 1.0))
    reach = WALL_HEIGHT / SUN[2]
    for share in (0.1, 0.4, 0.7, 1.0):
        past = offset(x + SUN[0] * reach * share, y + SUN[1] * reach * share) - WALL_OFFSET
        light = np.where((past > -0.05) & (past < WALL_THICKNESS + 0.05), np.minimum(light, 0.55), light)
    return light[:, None]


def _distance(places: Floats) -> Floats:
    return np.abs(offset(places[:, 0], places[:, 1]))


def _is_paved(places: Floats) -> npt.NDArray[np.bool_]:
    return (_distance(places) <= HALF_WIDTH) | is_pit(places[:, 0], places[:, 1])


def _is_fine(places: Floats) -> npt.NDArray[np.bool_]:
    """Where `_painted` covers the ground."""
    x, y = places[:, 0], places[:, 1]
    across = offset(x, y)
    bands = [(across >= low) & (across <= high) for low, high in FINE_BANDS]
    start = (np.abs(x) <= START_M) & (y < 0.0) & (np.abs(across) <= HALF_WIDTH)
    return start | bands[0] | bands[1] | bands[2]


def _jittered(ground: MadeGround, name: str, spacing: float) -> Floats:
    """Points over the whole map, about this far apart."""
    columns, rows = int((ground.east - ground.west) / spacing), int((ground.north - ground.south) / spacing)
    return jittered_grid(ground, name, (columns, rows), (spacing, spacing))


def _ground_colours(places: Floats) -> Floats:
    """Grass in patches, worn beside the road; asphalt, dark with rubber where cars drive."""
    x, y, roll = places.T
    dryness, fine = _smooth_noise(x, y, 14.0)[:, None], _smooth_noise(y, x, 3.0)[:, None]
    colours = _mixed(GRASS, DRY_GRASS, dryness) * (0.86 + 0.28 * fine)
    across = offset(x, y)
    distance = np.abs(across)
    worn = np.clip(1.0 - (distance - HALF_WIDTH) / 2.2, 0.0, 1.0)[:, None] * (0.25 + 0.75 * fine)
    colours = colours * (1.0 - worn) + np.array(SOIL) * worn
    colours[pond_depth(x, y) > 0.0] = WATER
    colours[is_pit(x, y)] = CONCRETE
    groove = np.clip(1.0 - np.abs(distance - 1.6) / 1.5, 0.0, 1.0)[:, None]
    asphalt = _mixed(ASPHALT, RUBBER, 0.75 * groove) * (0.94 + 0.12 * fine)
    is_road = distance <= HALF_WIDTH
    colours[is_road] = asphalt[is_road]
    return colours * (0.955 + 0.09 * roll)[:, None]


def _mixed(first: Colour, second: Colour, share: Floats) -> Floats:
    return np.array(first) * (1.0 - share) + np.array(second) * share


def _smooth_noise(x: Floats, y: Floats, size_m: float) -> Floats:
    """From 0 to 1, in patches of that size."""
    side = np.arange(400, dtype=np.float64) * 0.5
    field = np.clip((octaves(side, side, 5, size_m) - 0.6) / 0.7, 0.0, 1.0)
    rows = np.clip((y - SOUTH) * 2.0, 0, 399).astype(np.int64)
    columns = np.clip((x - WEST) * 2.0, 0, 399).astype(np.int64)
    return field[rows, columns]


def _lying(ground: MadeGround, places: Floats, radius: float, colours: Floats, raised: float = 0.0) -> Rows:
    x, y = places[:, 0], places[:, 1]
    points = np.stack([x, y, ground.height(x, y) + raised], axis=1)
    return discs(points, ground.normal(x, y), radius, colours)


def _painted(ground: MadeGround, trees: Sequence[PlantedTree]) -> Rows:
    """The road beside and under its lines, in small Gaussians along the course."""
    low, high = FINE_BANDS[0][0] - OVERLAP_M, FINE_BANDS[-1][1] + OVERLAP_M
    count = int((high - low) / FINE_M)
    places: list[tuple[float, float, float]] = []
    colours: list[Colour | None] = []
    rolls = dice("paint", int(LENGTH / FINE_M), count)
    for column, row_of_rolls in enumerate(rolls.tolist()):
        s = column * LENGTH / len(rolls)
        from_start = min(s, LENGTH - s)
        for row, roll in enumerate(row_of_rolls):
            across = low + (row + 0.5) * (high - low) / count
            if from_start <= START_M or any(
                start - OVERLAP_M <= across <= end + OVERLAP_M for start, end in FINE_BANDS
            ):
                colour = _paint_at(s if from_start == s else -from_start, across)
                is_grass = abs(across) > HALF_WIDTH + 0.1 and colour is None
                aside = FINE_M * (97.0 * roll - math.floor(97.0 * roll) - 0.5) if is_grass else 0.0
                x, y, _, _ = along(s + aside, across + aside)
                places.append((x, y, roll))
                colours.append(colour)
    where = np.array(places)
    chosen = _ground_colours(where)
    painted = np.array([colour is not None for colour in colours])
    worn = (0.88 + 0.12 * where[painted, 2])[:, None]
    chosen[painted] = np.array([colour for colour in colours if colour is not None]) * worn
    return _lying(ground, where, 0.64 * FINE_M, chosen * _light(ground, where, trees))


def _paint_at(s: float, across: float) -> Colour | None:
    """The colour of what is painted there: edge lines, a dashed middle line, kerbs in the bends, a chequered start."""
    half = 0.6 * FINE_M
    if abs(s) <= 1.0 and abs(across) < HALF_WIDTH - 0.4:
        return WHITE if (int((s + 1.0) / 0.5) + int((across + 5.0) / 0.5)) % 2 else BLACK
    if abs(abs(across) - HALF_WIDTH + 0.3) <= half:
        return WHITE
    if abs(across) <= half and s % 9.0 < 3.0:
        return YELLOW
    if -HALF_WIDTH - 0.6 <= across <= -HALF_WIDTH and not _is_straight(s):
        return RED if int(s / 1.5) % 2 else WHITE
    return None


def _is_straight(s: float) -> bool:
    x = along(s)[0]
    return -HALF_STRAIGHT <= x <= HALF_STRAIGHT


# ---- the course: two straights and two half circles ------------------------------------------------------------------


def offset(x: Floats, y: Floats) -> Floats:
    """Distance from the centre line [m], positive outside."""
    dx = x - np.clip(x, -HALF_STRAIGHT, HALF_STRAIGHT)
    return np.sqrt(dx * dx + y * y) - RADIUS


def along(s: float, across: float = 0.0) -> tuple[float, float, float, float]:
    """x, y and the unit direction, s metres counter-clockwise from the middle of the southern straight."""
    s = s - LENGTH * (s // LENGTH)
    straight, bend = 2.0 * HALF_STRAIGHT, PI * RADIUS
    radius = RADIUS + across
    if s < HALF_STRAIGHT or s >= LENGTH - HALF_STRAIGHT:
        x = s if s < HALF_STRAIGHT else s - LENGTH
        return x, -radius, 1.0, 0.0
    s -= HALF_STRAIGHT
    if s < bend:
        sin, cos = sincos(s / RADIUS)
        return HALF_STRAIGHT + radius * sin, -radius * cos, cos, sin
    s -= bend
    if s < straight:
        return HALF_STRAIGHT - s, radius, -1.0, 0.0
    sin, cos = sincos((s - straight) / RADIUS)
    return -HALF_STRAIGHT - radius * sin, radius * cos, -cos, -sin


def ring(across: float, spacing: float = 1.0) -> Floats:
    """The line at that distance from the centre line, closed, counter-clockwise, as a polygon."""
    bend = max(8, round(PI * (RADIUS + across) / spacing))
    east = [along(HALF_STRAIGHT + PI * RADIUS * index / bend, across)[:2] for index in range(bend + 1)]
    points = [(round(x, 4), round(y, 4)) for x, y in east]
    points += [(-x, -y) for x, y in points]
    return np.array([*points, points[0]])


def is_pit(x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
    (west, south), _, (east, north), _ = PIT
    return (x >= west) & (x <= east) & (y >= south) & (y <= north)


def _beside_pit(x: Floats, y: Floats) -> Floats:
    (west, south), _, (east, north), _ = PIT
    dx = np.maximum(np.maximum(west - x, x - east), 0.0)
    dy = np.maximum(np.maximum(south - y, y - north), 0.0)
    return np.sqrt(dx * dx + dy * dy)


def pond_depth(x: Floats, y: Floats) -> Floats:
    """Positive inside the pond [m]."""
    dx, dy = x - POND[0], y - POND[1]
    return POND[2] - np.sqrt(dx * dx + dy * dy)


def course_ground() -> MadeGround:
    """Gentle slopes under the road, hills beside it that grow with the distance."""
    x = (np.arange(COLUMNS, dtype=np.float64) + 0.5) * RESOLUTION + WEST
    y = (np.arange(ROWS, dtype=np.float64) + 0.5) * RESOLUTION + SOUTH
    waves_x = np.array([sincos(TWO_PI * value / 150.0)[0] for value in x.tolist()])
    waves_y = np.array([sincos(TWO_PI * value / 170.0)[0] for value in y.tolist()])
    base = 1.5 * waves_x[None, :] + 1.0 * waves_y[:, None] + 0.6 * waves_x[None, :] * waves_y[:, None]
    beside = np.maximum(np.abs(offset(x[None, :], y[:, None])) - HALF_WIDTH - 2.0, 0.0)
    beside = np.minimum(beside, _beside_pit(x[None, :], y[:, None]))
    grow = np.minimum(beside / 25.0, 1.0)
    bumps = (octaves(x, y, 11, 30.0) - 0.9) * 6.0
    heights = base + grow * grow * (3.0 - 2.0 * grow) * bumps
    return MadeGround(heights, RESOLUTION, WEST, SOUTH)
