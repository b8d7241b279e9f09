"""What only world bundles have: the edges of the drivable area, and their Gaussian splats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from microsim.bundle import Bundle, load_bundle
from microsim.view.web.interface import Scene
from microsim.view.web.page.meshes import heights_at

_MOST_SPLATS = 250_000  # the most opaque ones are drawn
_SH_DC = 0.28209479177387814  # of a colour of 3D Gaussian splatting, beside the grey of 0.5


def draw_bundle(server: Any, scene: Scene) -> None:
    bundle = load_bundle(Path(scene.bundle))
    edges = bundle.drivable.edges
    if len(edges):
        lines = _on_the_ground(scene, edges)
        server.scene.add_line_segments(
            "/drivable/edges", lines, colors=(255, 214, 64), thickness=2.5, thickness_units="screen"
        )
    splats = gaussians(bundle)
    if splats is not None:
        server.scene.add_gaussian_splats("/splats/background", **splats)


def _on_the_ground(scene: Scene, edges: Any) -> Any:
    """(n, 2, 3): each edge in pieces of at most two metres, a little above the ground."""
    lines = []
    for x0, y0, x1, y1 in edges:
        count = max(1, min(200, int(np.hypot(x1 - x0, y1 - y0) / 2.0) + 1))
        x, y = np.linspace(x0, x1, count + 1), np.linspace(y0, y1, count + 1)
        z = np.array([heights_at(scene.world, x[k : k + 1], y[k : k + 1])[0, 0] for k in range(count + 1)]) + 0.06
        points = np.stack([x, y, z], axis=1)
        lines.append(np.stack([points[:-1], points[1:]], axis=1))
    return np.concatenate(lines).astype(np.float32)


def gaussians(bundle: Bundle) -> dict[str, Any] | None:
    """Centres, covariances, colours and opacities as viser wants them; colours are the same from everywhere."""
    found = bundle.gaussians
    count = len(found.values)
    if not count:
        return None
    opacity = 1.0 / (1.0 + np.exp(-np.asarray(found.column("opacity"), np.float64)[:, 0]))
    rows = np.arange(count)
    if count > _MOST_SPLATS:
        rows = np.sort(np.argsort(-opacity, kind="stable")[:_MOST_SPLATS])
    centres, scales = (np.asarray(found.column(name, 3), np.float64)[rows] for name in ("x", "scale_0"))
    x, y, z, w = np.asarray(found.column("rot_0", 4), np.float64)[rows].T
    turn = np.empty((len(rows), 3, 3))
    turn[:, 0] = np.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], axis=1)
    turn[:, 1] = np.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], axis=1)
    turn[:, 2] = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1)
    stretched = turn * np.exp(scales)[:, None, :]
    return {
        "centers": centres.astype(np.float32),
        "covariances": (stretched @ stretched.transpose(0, 2, 1)).astype(np.float32),
        "rgbs": np.clip(0.5 + _SH_DC * np.asarray(found.column("f_dc_0", 3), np.float64)[rows], 0.0, 1.0).astype(
            np.float32
        ),
        "opacities": opacity[rows, None].astype(np.float32),
    }
