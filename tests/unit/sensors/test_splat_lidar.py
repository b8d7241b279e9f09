"""LiDARs whose beams end at Gaussians: against closed forms and a second implementation."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.bundle.bundle_writing import mesh_ply, splat_ply
from microsim.engine.geometry import matrix_from_rpy
from microsim.errors import ScenarioError
from microsim.rays import bvh
from microsim.rays.lidar_turn import SPLATS, beam_table
from microsim.render.splat.activation import activate
from microsim.sensors._splat_lidar import SplatScenery
from tests.bundle_support import CUBE_TRIANGLES, CUBE_VERTICES, small_bundle
from tests.support import decoded

AHEAD = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def splat(
    x: float, y: float, z: float, sigma: Any = 0.1, opacity: float = 0.95, turn: Any = (0, 0, 0, 1)
) -> list[float]:
    scales = np.log(np.broadcast_to(sigma, 3)).tolist()
    return [x, y, z, *scales, *turn, math.log(opacity / (1 - opacity)), 0.5, 0.5, 0.5]


def distances(
    rows: Any, elevations: Any, columns: int, place: Any = ((0.0, 0.0, 0.0), AHEAD), reach: float = 50.0
) -> Any:
    beams = beam_table(elevations, columns)
    best, hit = np.full((columns, len(elevations)), reach), np.full((columns, len(elevations)), bvh.NOTHING, np.int32)
    SplatScenery(activate(np.array(rows, np.float32), 0), beams).meet(place, reach, best, hit)
    return best, hit


def test_a_beam_ends_at_the_middle_of_what_it_meets_squarely() -> None:
    best, hit = distances([splat(7.0, 0.0, 0.0, sigma=0.3)], [0.0], 8)
    assert best[0, 0] == pytest.approx(7.0, abs=1e-6)
    assert (hit[:, 0] == SPLATS).tolist() == [True, *[False] * 7]


def test_it_ends_where_half_its_light_is_gone() -> None:
    thin = [splat(x, 0.0, 0.0, opacity=0.3) for x in (9.0, 5.0, 7.0)]
    assert distances(thin, [0.0], 4)[0][0, 0] == pytest.approx(7.0, abs=1e-6)  # 0.7 x 0.7 < 0.5
    assert distances(thin[:1], [0.0], 4)[1][0, 0] == bvh.NOTHING


def test_flat_ones_on_a_road_end_all_beams_on_the_road() -> None:
    x, y = (each.ravel() for each in np.meshgrid(np.arange(-22.0, 22.0, 0.2), np.arange(-22.0, 22.0, 0.2)))
    road = [splat(a, b, -1.8, sigma=(0.15, 0.15, 0.005)) for a, b in zip(x, y, strict=True)]
    elevations = [-0.6, -0.3, -0.12]
    best, hit = distances(road, elevations, 36)
    assert (hit == SPLATS).all()
    for ring, elevation in enumerate(elevations):
        assert best[:, ring] == pytest.approx(np.full(36, 1.8 / math.sin(-elevation)), abs=0.03)


def brute_force(rows: np.ndarray, directions: np.ndarray, position: np.ndarray, reach: float) -> np.ndarray:
    """Every beam against every Gaussian, with matrices."""
    best = np.full(directions.shape[1:], reach)
    order = np.argsort(np.linalg.norm(rows[:, :3] - position, axis=1).astype(np.float32), kind="stable")
    light = np.ones(best.shape)
    for row in rows[order].astype(float):
        x, y, z, w = row[6:10] / np.linalg.norm(row[6:10])
        axes = np.array(
            [[1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
             [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
             [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]]
        )  # fmt: skip
        inverse = axes @ np.diag(np.exp(-2.0 * row[3:6])) @ axes.T
        away = row[:3] - position
        along = np.einsum("kcr,kl,l->cr", directions, inverse, away)
        square = np.einsum("kcr,kl,lcr->cr", directions, inverse, directions)
        aside = away @ inverse @ away - along**2 / square
        opacity = 1 / (1 + np.exp(-row[10]))
        met = (along > 0) & (light >= 0.5) & (aside < 2 * np.log(255 * opacity))
        light = np.where(met, light * (1 - np.minimum(opacity * np.exp(-0.5 * aside), 0.99)), light)
        best = np.where(met & (light < 0.5), np.minimum(best, along / square), best)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_as_every_beam_against_every_gaussian(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = np.zeros((400, 14), np.float32)
    rows[:, :3] = random.normal(0.0, 6.0, (400, 3))
    rows[:, 3:6] = random.uniform(-2.5, 0.4, (400, 3))
    rows[:, 6:10], rows[:, 10] = random.normal(size=(400, 4)), random.normal(1.0, 2.0, 400)
    rotation = matrix_from_rpy(*random.uniform(-0.5, 0.5, 2), random.uniform(-3, 3))
    position, elevations = random.normal(0.0, 1.0, 3), sorted(random.uniform(-1.2, 1.2, 9))
    random.shuffle(elevations)
    found, _ = distances(rows, elevations, 50, (tuple(position.tolist()), rotation), reach=15.0)
    turned = np.einsum("kl,lcr->kcr", np.array(rotation), beam_table(elevations, 50).directions)
    expected = brute_force(rows, turned, position, 15.0)
    assert np.isclose(found, expected, atol=1e-4).mean() > 0.998  # float32 scales: a hair's breadth at an edge
    assert (expected < 15.0).mean() > 0.3


SMALL = """
import hashlib
from tests.unit.sensors.test_splat_lidar import distances, splat
thin = {"sigma": (0.5, 0.3, 0.04), "opacity": 0.6}
rows = [splat(4.0 + 0.3 * k, 0.1 * (7 * k % 30) - 1.5, 0.02 * (3 * k % 20) - 0.2, **thin) for k in range(20)]
best, hit = distances(rows, [-0.1, 0.0, 0.1], 40)
print(hashlib.sha256(best.tobytes() + hit.tobytes()).hexdigest())
"""
GOLDEN = "1be0491dbc62bd13cb2e3aca32201f276d15d5beba03f1205b7210f745501f1f"


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_the_bytes_are_the_golden_ones_with_the_compiler_and_without(disabled: str) -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled}
    ran = subprocess.run([sys.executable, "-c", SMALL], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == GOLDEN, ran.stderr


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A blob of Gaussians 6 m ahead of the car, and a mesh elsewhere, of which no Gaussian knows."""
    bundle = small_bundle(tmp_path / "world")
    (bundle / "geometry/static_mesh.ply").write_bytes(
        mesh_ply(CUBE_VERTICES + np.array([-8.0, 3.0, 0.0]), CUBE_TRIANGLES)
    )
    rows = np.array([splat(-9.0, 0.0, 1.0, sigma=0.4)], np.float32)
    (bundle / "gaussians/background.splat.ply").write_bytes(splat_ply(rows, 0))
    return bundle


def driving(world: Path, **more: Any) -> dict[str, Any]:
    level = {"hz": 10, "elevations": [0.0], "columns": 72, "sigma_m": 0.0, "mount": {"xyz": [0.0, 0.0, 1.0]}}
    return {"world": str(world), "robots": {"ego": {"lidar": level | more}}}


def points(scenario: Any) -> np.ndarray:
    message = decoded(microsim.Simulation(scenario).step(1), "/ego/lidar/points")[0]
    numbers = np.frombuffer(bytes(message.data), np.uint8).reshape(-1, message.point_step)[:, :12].copy()
    return numbers.view("<f4").reshape(-1, 3)


def test_in_a_run_beams_meet_gaussians_and_obstacles_but_not_the_mesh(world: Path) -> None:
    seen = points(driving(world, splats=True))
    assert len(seen) > 0
    assert np.linalg.norm(seen, axis=1).min() == pytest.approx(6.0, abs=0.05)
    assert np.abs(seen[:, 1]).max() < 1.5, "nothing but the blob"
    assert np.abs(points(driving(world))[:, 1]).max() > 2.0, "the mesh, as usual"
    box = {"type": "box", "center": [-15.0, 8.0, 0.0], "size": [1.0, 1.0, 3.0]}
    assert np.abs(points({**driving(world, splats=True), "obstacles": [box]})[:, 1]).max() > 6.0


def test_batches_read_what_single_worlds_do(world: Path) -> None:
    batch = BatchSimulation(driving(world, splats=True), 2)
    batch.step(1)
    reading = batch.readings["ego/lidar"]
    single = points(driving(world, splats=True))
    own = np.stack([reading[0][axis][: len(single)] for axis in "xyz"], axis=1)
    np.testing.assert_array_equal(own, single)


def test_without_a_world_bundle_it_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"lidar\.splats.*splats belong to a world bundle"):
        microsim.Simulation({"robots": {"rover": {"lidar": {"splats": True}}}})


def test_runs_without_the_key_do_not_mention_it(world: Path) -> None:
    assert "splats" not in microsim.Simulation(driving(world)).scenario.robots["ego"].lidar.model_dump()
    assert microsim.Simulation(driving(world, splats=True)).scenario.robots["ego"].lidar.model_dump()["splats"] is True
