"""Levelling of captures without poses, and of Gaussians that are balls: the ground is found, or options are named."""

import math
from typing import Any

import numpy as np
import pytest

from microsim.parts.worlds.capture.camera_poses import CameraPoses
from microsim.parts.worlds.capture.capture_report import unclear_page
from microsim.parts.worlds.capture.levelling import Splats, UnclearCaptureError, find_level, up_option
from microsim.parts.worlds.capture.scene_layers import SceneSplats


def turned(seed: int) -> Any:
    """A rotation, as trainers leave captures."""
    found, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return found * np.linalg.det(found)


def square(seed: int, ground: float, floaters: float, flat: float, count: int = 20_000) -> tuple[Any, Any, Any]:
    """Points, shortest axes and flatness of a square 40 m wide with houses around it and trees on it, z up.

    ground, floaters: shares of the Gaussians; flat: of a surface's Gaussians, 0 to 1.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.choice(3, count, p=[ground, floaters, 1.0 - ground - floaters])
    points = rng.uniform((-20, -20, 0), (20, 20, 9), (count, 3))
    normals = rng.normal(size=(count, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    on_ground, floating = kinds == 0, kinds == 1
    points[on_ground, 2] = rng.normal(0.0, 0.03, on_ground.sum())
    points[floating] = rng.uniform((-40, -40, -10), (40, 40, 30), (floating.sum(), 3))
    wall = np.flatnonzero(kinds == 2)[::2]  # one of four sides each; the others are leaves
    side, along = rng.integers(0, 4, len(wall)), rng.uniform(-20, 20, len(wall))
    rough = rng.normal(0.0, 1.5, len(wall))  # doors, bushes, cars
    points[wall, 0] = np.where(side < 2, (40 * side - 20) + rough, along)
    points[wall, 1] = np.where(side < 2, along, (40 * (side - 2) - 20) + rough)
    normals[on_ground] = flat * np.array([0.0, 0.0, 1.0]) + (1.0 - flat) * normals[on_ground]
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return points, normals, np.full(count, 0.9 if flat else 0.1)


def tilt(up: Any, rotation: Any) -> float:
    return math.degrees(math.acos(np.clip(up @ rotation @ (0.0, 0.0, 1.0), -1.0, 1.0)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("flat", [0.0, 1.0], ids=["balls", "discs"])
@pytest.mark.parametrize("floaters", [0.0, 0.12])
@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_a_square_without_poses_is_levelled(seed: int, flat: float, floaters: float, scale: float) -> None:
    points, normals, flatness = square(seed, 0.25, floaters, flat)
    rotation = turned(seed)
    level = find_level(Splats(scale * points @ rotation.T + 7.0, normals @ rotation.T, flatness), None)
    assert tilt(level.up, rotation) < 1.0
    assert abs(float(level.plane.heights(np.full((1, 3), 7.0))[0])) < 0.1 * scale


@pytest.mark.parametrize("seed", range(3))
def test_balls_with_poses_are_levelled(seed: int) -> None:
    points, normals, flatness = square(seed, 0.15, 0.1, 0.0)
    rotation, rng = turned(seed), np.random.default_rng(seed)
    yaw = rng.uniform(0.0, 2.0 * math.pi, 180)
    right, ahead = (np.stack([np.cos(a), np.sin(a), np.zeros(180)], axis=1) for a in (yaw - math.pi / 2, yaw))
    axes = np.stack([right, np.broadcast_to((0.0, 0.0, -1.0), (180, 3)), ahead], axis=2)
    places = rng.uniform((-10, -10, 1.5), (10, 10, 1.7), (180, 3))
    cameras = CameraPoses(tuple(map(str, range(180))), places @ rotation.T, rotation @ axes)
    level = find_level(Splats(points @ rotation.T, normals @ rotation.T, flatness), cameras)
    assert tilt(level.up, rotation) < 1.0


@pytest.mark.parametrize("shape", ["ball", "cube"])
def test_an_object_is_refused_with_the_options_that_decide_and_what_is_likeliest(shape: str) -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(8000, 3))
    if shape == "ball":
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    else:
        points = np.clip(points * 1.5, -1.0, 1.0)
    with pytest.raises(UnclearCaptureError) as refused:
        find_level(Splats(points, rng.normal(size=(8000, 3)), np.zeros(8000)), None)
    for option in ("--level ground", "--level cameras", "--up X,Y,Z", "the likeliest: --up="):
        assert option in str(refused.value)


def test_of_two_likely_grounds_each_is_shown_upright_with_the_option_that_takes_it() -> None:
    """Two walls and a floor of equal size: a corner of a room."""
    rng = np.random.default_rng(2)
    points = rng.uniform(0.0, 4.0, (9000, 3))
    for axis in range(3):
        points[axis::3, axis] = rng.normal(0.0, 0.01, 3000)
    rotation = turned(5)
    with pytest.raises(UnclearCaptureError) as refused:
        find_level(Splats(points @ rotation.T, rng.normal(size=points.shape), np.zeros(9000)), None)
    ups = np.abs(np.array(refused.value.ups) @ rotation)
    assert ups.shape == (3, 3)
    np.testing.assert_allclose(ups[np.argsort(ups.argmax(axis=1))], np.eye(3), atol=0.02)
    scene = SceneSplats(
        (points @ rotation.T).astype(np.float32), np.full((9000, 3), 0.05, np.float32), np.ones(9000, np.float32),
        np.tile(np.array([0, 0, 0, 1], np.float32), (9000, 1)), np.full((9000, 3), 90, np.uint8),
    )  # fmt: skip
    page = unclear_page("corner", str(refused.value), scene, None, refused.value.ups)
    for up in refused.value.ups:
        assert up_option(up) in str(refused.value)
        assert f"level with {up_option(up)}' src='data:image/png" in page
