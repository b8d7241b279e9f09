"""Splat scenes on which every back end is compared with the float64 reference, and cameras to look at them."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shot:
    """A scene and a camera; `rows` are those of a splat file."""

    rows: np.ndarray
    size: tuple[int, int] = (80, 60)
    focal: tuple[float, float] = (47.0, 49.0)
    principal: tuple[float, float] = (39.5, 29.5)
    position: tuple[float, float, float] = (0.0, 0.0, 1.5)
    yaw: float = 0.3
    pitch: float = -0.1
    degree: int = 3
    bend: tuple[float, ...] | None = None  # k1 to k4 of a fisheye

    @property
    def rotation(self):
        """From the optical frame (x right, y down, z ahead) to the map frame."""
        ahead = np.array(
            [np.cos(self.yaw) * np.cos(self.pitch), np.sin(self.yaw) * np.cos(self.pitch), np.sin(self.pitch)]
        )
        right = np.cross(ahead, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        return tuple(tuple(float(v) for v in row) for row in np.stack([right, np.cross(ahead, right), ahead], 1))


def file_rows(means, scales, quaternions, opacities, harmonics):
    """As a file has them: quaternions x, y, z, w; harmonics (n, k, 3)."""
    opacities = np.clip(np.asarray(opacities, np.float64), 1e-6, 1 - 1e-6)
    rows = np.empty((len(means), 11 + 3 * harmonics.shape[1]), np.float32)
    rows[:, 0:3], rows[:, 3:6], rows[:, 6:10] = means, np.log(scales), quaternions
    rows[:, 10], rows[:, 11:14] = np.log(opacities / (1 - opacities)), harmonics[:, 0]
    rows[:, 14:] = harmonics[:, 1:].transpose(0, 2, 1).reshape(len(means), -1)
    return rows


def yard(count, seed=0, opacity=None, degree=3):
    """Ground 40 m wide, four walls, boxes and mist: flat splats as large as they are far apart."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(4, count, p=[0.42, 0.2, 0.33, 0.05])
    means = rng.uniform([-20, -20, 0], [20, 20, 6], (count, 3))
    means[kinds == 0, 2] = rng.normal(0, 0.02, np.count_nonzero(kinds == 0))
    wall = np.flatnonzero(kinds == 1)
    means[wall, rng.integers(0, 2, wall.size)] = rng.choice([-20.0, 20.0], wall.size)
    box = np.flatnonzero(kinds == 2)
    centres, halves = (
        rng.uniform([-15, -15, 0], [15, 15, 0], (40, 3)),
        rng.uniform([0.3, 0.3, 0.5], [1.5, 1.5, 2.5], (40, 3)),
    )
    centres += np.sign(centres) * 1.5
    which, side = rng.integers(0, 40, box.size), rng.uniform(-1, 1, (box.size, 3))
    face = rng.integers(0, 3, box.size)
    side[np.arange(box.size), face] = np.sign(side[np.arange(box.size), face])
    means[box] = centres[which] + side * halves[which]
    scales = np.exp(rng.normal(np.log(0.9 * np.sqrt(3300.0 / count)), 0.6, (count, 3)))
    scales[np.arange(count), rng.integers(0, 3, count)] *= 0.15
    logits = np.where(rng.random(count) < 0.6, rng.normal(2.5, 1.5, count), rng.normal(-2.5, 1.0, count))
    opacities = 1 / (1 + np.exp(-logits)) if opacity is None else np.full(count, opacity)
    harmonics = rng.standard_normal((count, (degree + 1) ** 2, 3), np.float32) * np.float32(0.06)
    harmonics[:, 0] *= 15.0
    return file_rows(means, scales, rng.normal(size=(count, 4)), opacities, harmonics)


def ties(count=60, seed=1):
    """All at the same depth for a camera that looks along x, in pairs at the same place."""
    rng = np.random.default_rng(seed)
    means = np.stack([np.full(count, 4.0), rng.uniform(-2, 2, count), rng.uniform(0, 3, count)], 1)
    means[1::2] = means[::2]
    scales = np.exp(rng.normal(np.log(0.3), 0.4, (count, 3)))
    return file_rows(
        means, scales, rng.normal(size=(count, 4)), rng.uniform(0.3, 0.95, count), rng.normal(0, 0.7, (count, 16, 3))
    )


def around_the_near_plane(count=200, seed=2):
    """Splats behind the camera, at it, across the near plane and before it."""
    rng = np.random.default_rng(seed)
    means = np.stack([rng.uniform(-1.5, 2.0, count), rng.uniform(-1, 1, count), rng.uniform(0.8, 2.2, count)], 1)
    means[:8, 0], means[:8, 1:] = np.linspace(0.19, 0.21, 8), (0.0, 1.5)
    scales = np.exp(rng.normal(np.log(0.08), 0.7, (count, 3)))
    return file_rows(
        means, scales, rng.normal(size=(count, 4)), rng.uniform(0.1, 0.99, count), rng.normal(0, 0.5, (count, 16, 3))
    )


def degenerate(seed=3):
    """Needles, discs, dots and giants, with quaternions of any length."""
    rng = np.random.default_rng(seed)
    shapes = [(1e-9, 1e-9, 1e-9), (3.0, 1e-7, 1e-7), (2.0, 2.0, 1e-8), (30.0, 30.0, 30.0), (50.0, 1e-3, 1e-3)]
    scales = np.repeat(np.array(shapes), 12, 0)
    count = len(scales)
    means = np.stack([rng.uniform(3, 12, count), rng.uniform(-4, 4, count), rng.uniform(-1, 4, count)], 1)
    quaternions = rng.normal(size=(count, 4)) * np.exp(rng.uniform(-9, 9, (count, 1)))
    quaternions[::12] = (0.0, 0.0, 0.0, -2.0)
    return file_rows(means, scales, quaternions, rng.uniform(0.02, 0.9999, count), rng.normal(0, 0.6, (count, 16, 3)))


def shots():
    """Every scene of the comparison, by what is special about it."""
    return {
        "few": Shot(yard(300)),
        "many": Shot(yard(4000)),
        "small splats": Shot(yard(12000), size=(48, 40), focal=(50.0, 50.0), principal=(23.5, 19.5)),
        "very opaque": Shot(yard(1500, opacity=0.9999)),
        "hardly visible": Shot(yard(800, opacity=1.02 / 255.0)),
        "off-centre principal point": Shot(yard(1500), principal=(-10.0, 70.0), focal=(40.0, 75.0)),
        "odd size": Shot(yard(800), size=(101, 37), principal=(50.0, 18.0)),
        "narrow": Shot(yard(1500), focal=(450.0, 450.0)),
        "wide": Shot(yard(1500), focal=(13.0, 13.0)),
        "ties in depth": Shot(ties(), yaw=0.0, pitch=0.0),
        "near plane": Shot(around_the_near_plane(), yaw=0.0, pitch=0.0),
        "degenerate": Shot(degenerate(), yaw=0.0, pitch=0.0),
        "looking down": Shot(yard(1500), position=(2.0, -3.0, 15.0), pitch=-1.57),
        "degree 0": Shot(yard(600, degree=0), degree=0),
        "degree 1": Shot(yard(600), degree=1),
        "degree 2": Shot(yard(600, degree=2), degree=2),
        "far from the origin": Shot(shifted(yard(600), (30000.0, -20000.0, 0.0)), position=(30000.0, -20000.0, 1.5)),
        "fisheye": Shot(yard(1500), focal=(26.0, 27.0), bend=(0.0,) * 4),
        "bent fisheye": Shot(yard(1500), focal=(22.0, 21.0), principal=(36.0, 31.0), bend=(-0.03, 0.02, -0.01, 0.002)),
        "fisheye around the camera": Shot(around_the_near_plane(), focal=(20.0, 20.0), bend=(0.02, 0.0, 0.0, 0.0)),
        "nothing": Shot(yard(10)[:0]),
    }


def shifted(rows, by):
    rows = rows.copy()
    rows[:, :3] += np.array(by, np.float32)
    return rows
