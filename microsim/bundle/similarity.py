"""Turn, scale and move: from the frame of a capture to the map frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.geometry import matrix_from_rpy

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Similarity:
    """A point p of the source is at scale · rotation · p + move."""

    rotation: Floats  # (3, 3)
    scale: float = 1.0
    move: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def points(self, points: Any) -> Floats:
        """(n, 3) of the source in the target's frame."""
        return np.asarray(points, np.float64) @ self.rotation.T * self.scale + np.array(self.move)

    def then(self, other: Similarity) -> Similarity:
        """First this one, then the other."""
        x, y, z = other.points(np.array([self.move]))[0].tolist()
        return Similarity(other.rotation @ self.rotation, other.scale * self.scale, (x, y, z))

    @property
    def quaternion(self) -> tuple[float, float, float, float]:
        """Of its rotation, [x, y, z, w]."""
        return quaternion_of_matrix(self.rotation)


UNCHANGED = Similarity(np.eye(3))


def quaternion_of_matrix(matrix: Floats) -> tuple[float, float, float, float]:
    """[x, y, z, w], normalised; from the largest of the four, which keeps the others accurate."""
    m = matrix
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    squares = np.array([2.0 * m[0, 0] - trace, 2.0 * m[1, 1] - trace, 2.0 * m[2, 2] - trace, trace])
    largest = int(np.argmax(squares))
    if largest == 3:
        q = np.array([m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], 1.0 + trace])
    else:
        i, j, k = largest, (largest + 1) % 3, (largest + 2) % 3
        q = np.empty(4)
        q[i], q[j], q[k] = 1.0 + squares[i], m[j, i] + m[i, j], m[k, i] + m[i, k]
        q[3] = m[k, j] - m[j, k]
    x, y, z, w = (q / np.linalg.norm(q)).tolist()
    return x, y, z, w


def matrix_of_rpy(roll: float, pitch: float, yaw: float) -> Floats:
    """Rotations about the fixed axes x, then y, then z [rad]."""
    return np.array(matrix_from_rpy(roll, pitch, yaw))


def upright(up: Floats, keep_x: Floats | None = None) -> Floats:
    """The rotation that takes the unit vector `up` to z, and `keep_x` (or the source's x) to the x-z plane."""
    x = np.array([1.0, 0.0, 0.0]) if keep_x is None else keep_x
    if abs(float(x @ up)) > 0.95:
        x = np.array([0.0, 1.0, 0.0])
    x = x - up * float(x @ up)
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(up, x), up])


def fitted(source: Floats, target: Floats) -> tuple[Similarity, Floats]:
    """The similarity with the least squared error from points to points (Umeyama 1991), and each point's error."""
    from_mean, to_mean = source.mean(axis=0), target.mean(axis=0)
    a, b = source - from_mean, target - to_mean
    left, sizes, right = np.linalg.svd(b.T @ a / len(a))
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(left) * np.linalg.det(right)) or 1.0])
    rotation = left @ np.diag(signs) @ right
    scale = float((sizes * signs).sum() / max((a * a).sum() / len(a), 1e-300))
    x, y, z = (to_mean - scale * rotation @ from_mean).tolist()
    found = Similarity(rotation, scale, (x, y, z))
    return found, np.linalg.norm(found.points(source) - target, axis=1)
