"""What every reader of meshes gives back, and how it refuses."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]  # (n, 3) vertices [m], map frame
Corners: TypeAlias = npt.NDArray[np.int32]  # (m, 3) rows of vertices; what cannot be one is -1

MAX_VERTICES = 2**31 - 1  # what an int32 can name


class MeshError(Exception):
    """Why a mesh cannot be used; with the line of its text, where it has one."""

    def __init__(self, message: str, line: int | None = None, rule: str = "mesh-format") -> None:
        super().__init__(message)
        self.line = line
        self.rule = rule


def fans(polygons: npt.NDArray[Any]) -> Corners:
    """Triangles (m·(k-2), 3) of m polygons with k corners each, of whatever kind of number."""
    if polygons.dtype != np.int32:
        with np.errstate(invalid="ignore"):
            fits = (polygons >= 0) & (polygons < MAX_VERTICES)
            polygons = np.where(fits, polygons, -1).astype(np.int32)
    count = polygons.shape[1]
    if count == 3:
        return polygons
    parts = [polygons[:, [0, index, index + 1]] for index in range(1, count - 1)]
    return np.stack(parts, axis=1).reshape(-1, 3) if parts else np.zeros((0, 3), np.int32)
