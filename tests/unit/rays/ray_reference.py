"""A second ray caster, written otherwise: every patch and every triangle for every ray, in plain NumPy."""

from typing import Any

import numpy as np


def ground_distance(elevation: Any, cell: float, west: float, south: float, origin: Any, direction: Any) -> float:
    """Distance to the bilinear ground by solving each patch of the map for t; the map ends half a cell beyond."""
    heights = np.pad(elevation, 1, mode="edge")
    rows, columns = heights.shape
    jj, ii = np.meshgrid(np.arange(rows - 1), np.arange(columns - 1), indexing="ij")
    x0, y0 = west + (ii - 0.5) * cell, south + (jj - 0.5) * cell
    low_x, high_x = np.maximum(x0, west), np.minimum(x0 + cell, west + (columns - 2) * cell)
    low_y, high_y = np.maximum(y0, south), np.minimum(y0 + cell, south + (rows - 2) * cell)
    with np.errstate(all="ignore"):
        near, far = np.zeros(x0.shape), np.full(x0.shape, np.inf)
        for low, high, o, d in ((low_x, high_x, origin[0], direction[0]), (low_y, high_y, origin[1], direction[1])):
            if d == 0.0:
                far = np.where((low <= o) & (o <= high), far, -np.inf)
                continue
            a, b = (low - o) / d, (high - o) / d
            near, far = np.maximum(near, np.minimum(a, b)), np.minimum(far, np.maximum(a, b))
        h00, h01, h10, h11 = heights[:-1, :-1], heights[:-1, 1:], heights[1:, :-1], heights[1:, 1:]
        # z(t) - h(p, q) with p = p0 + dp t, q = q0 + dq t
        p0, dp = (origin[0] - x0) / cell, direction[0] / cell
        q0, dq = (origin[1] - y0) / cell, direction[1] / cell
        k = h11 - h10 - h01 + h00
        c = origin[2] - (h00 + (h01 - h00) * p0 + (h10 - h00) * q0 + k * p0 * q0)
        b = direction[2] - ((h01 - h00) * dp + (h10 - h00) * dq + k * (p0 * dq + q0 * dp))
        a = -k * dp * dq
        best = np.inf
        meets = near <= far
        below = meets & (c + b * near + a * near * near <= 0.0)
        best = min(best, near[below].min(initial=np.inf))
        roots = np.sqrt(b * b - 4 * a * c)
        straight = np.abs(a) < 1e-13
        for t in (
            np.where(straight, -c / b, (-b - roots) / (2 * a)),
            np.where(straight, -c / b, (-b + roots) / (2 * a)),
        ):
            good = meets & np.isfinite(t) & (t >= near - 1e-9) & (t <= far + 1e-9) & (t > 0.0)
            best = min(best, t[good].min(initial=np.inf))
    return float(best)


def triangle_distance(corners: Any, origin: Any, direction: Any) -> float:
    """Plane by plane, then three half-planes; corners (m, 3, 3)."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    with np.errstate(all="ignore"):
        t = np.einsum("ij,ij->i", normal, a - origin) / (normal @ direction)
    point = origin + t[:, None] * direction
    inside = np.isfinite(t) & (t > 0.0)
    for p, q in ((a, b), (b, c), (c, a)):
        inside &= np.einsum("ij,ij->i", np.cross(q - p, point - p), normal) >= 0.0
    return float(t[inside].min(initial=np.inf))
