"""Things that stand in a world, made of quadrilaterals: one source for the mesh and for the Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.bundle.generate.splats import Rows, dice, discs
from microsim.engine.exact import TWO_PI, sincos

Floats: TypeAlias = npt.NDArray[np.float64]

Point: TypeAlias = tuple[float, float, float]
Colour: TypeAlias = tuple[float, float, float]


class Solids:
    """Quadrilaterals, counter-clockwise seen from outside; the last two corners may be one."""

    def __init__(self) -> None:
        self.quads: list[tuple[Point, Point, Point, Point]] = []
        self.colours: list[Colour] = []

    def __add__(self, other: Solids) -> Solids:
        both = Solids()
        both.quads, both.colours = self.quads + other.quads, self.colours + other.colours
        return both

    def quad(self, a: Point, b: Point, c: Point, d: Point, colour: Colour) -> None:
        self.quads.append((a, b, c, d))
        self.colours.append(colour)

    def prism(self, corners: Sequence[tuple[float, float]], bottom: float, top: float, colour: Colour) -> None:
        """Upright, over four corners that run counter-clockwise; open below."""
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
            self.quad((x0, y0, bottom), (x1, y1, bottom), (x1, y1, top), (x0, y0, top), colour)
        a, b, c, d = ((x, y, top) for x, y in corners)
        self.quad(a, b, c, d, colour)

    def barrel(
        self, center: Point, radii: Sequence[float], heights: Sequence[float], colours: Sequence[Colour], sides: int
    ) -> None:
        """Rings of these radii at these heights above `center`, joined; one colour between each two."""
        turns = [sincos(TWO_PI * index / sides) for index in range(sides + 1)]
        x, y, z = center
        rings = [
            [(x + radius * cos, y + radius * sin, z + height) for sin, cos in turns]
            for radius, height in zip(radii, heights, strict=True)
        ]
        for low, high, colour in zip(rings[:-1], rings[1:], colours, strict=True):
            for index in range(sides):
                self.quad(low[index], low[index + 1], high[index + 1], high[index], colour)

    def mesh(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Vertices, each once, and triangles; what has no area is left out."""
        import numpy as np

        corners = np.array(self.quads, np.float32).reshape(-1, 3) + np.float32(0.0)  # one zero, not two
        vertices, names = np.unique(corners, axis=0, return_inverse=True)
        quads = names.reshape(-1, 4)
        triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]], axis=1).reshape(-1, 3)
        a, b, c = triangles.T
        return vertices, triangles[(a != b) & (b != c) & (c != a)].astype(np.int32)

    def splats(self, spacing: float, shade: float = 0.0) -> Rows:
        """Discs about so far apart over every quadrilateral; `shade` mixes light and dark into their colours."""
        import numpy as np

        points, normals, radii, colours = [], [], [], []
        for quad, colour in zip(self.quads, self.colours, strict=True):
            places, normal, radius = _lattice(quad, spacing)
            points += places
            normals += [normal] * len(places)
            radii += [radius] * len(places)
            colours += [colour] * len(places)
        tint = 1.0 + shade * (2.0 * dice("shades", len(points), 1) - 1.0)
        return discs(np.array(points), np.array(normals), np.array(radii), np.array(colours) * tint)


def _lattice(quad: Sequence[Point], spacing: float) -> tuple[list[Point], Point, float]:
    """Points spread over a quadrilateral, its normal, and a radius that covers it."""
    a, b, c, d = quad
    along = max(_distance(a, b), _distance(d, c))
    across = max(_distance(a, d), _distance(b, c))
    columns, rows = max(1, math.ceil(along / spacing)), max(1, math.ceil(across / spacing))
    points = []
    for row in range(rows):
        t = (row + 0.5) / rows
        left, right = _between(a, d, t), _between(b, c, t)
        points += [_between(left, right, (column + 0.5) / columns) for column in range(columns)]
    step = max(along / columns, across / rows)
    return points, _normal(a, b, c, d), round(0.5 * step, 3) or 0.001


def _between(a: Point, b: Point, t: float) -> Point:
    return (a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t)


def _distance(a: Point, b: Point) -> float:
    return math.sqrt(sum((p - q) * (p - q) for p, q in zip(a, b, strict=True)))


def _normal(a: Point, b: Point, c: Point, d: Point) -> Point:
    """Of the diagonals, so that it also fits a quadrilateral with two corners in one."""
    u, v = [p - q for p, q in zip(c, a, strict=True)], [p - q for p, q in zip(d, b, strict=True)]
    x, y, z = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
    length = math.sqrt(x * x + y * y + z * z)
    return (x / length, y / length, z / length) if length > 0.0 else (0.0, 0.0, 1.0)
