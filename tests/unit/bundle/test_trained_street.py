"""From photographs to driving: the shipped `street`, whose Gaussians were trained from rendered photographs.

`photographed_street.py` took the photographs, `train.py` trained on them, `microsim bundle from-capture` made the
world. The scene is known, so the result can be compared with the truth.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from shapely import Point, Polygon, union_all
from shapely.geometry import shape

from examples.capture.photographed_street import CAMERA_HEIGHT_M
from examples.capture.street_scene import Array, relief, ring
from microsim import Simulation
from microsim.bundle import load_bundle
from microsim.bundle.capture.capture_world import CaptureOptions, CaptureSteps, build_capture
from microsim.bundle.capture.scene_layers import height_at
from tests.support import COMPILED

ROOT = Path(__file__).parents[3]
CAPTURE, WORLD = ROOT / "examples/capture/trained_street", ROOT / "worlds/street"
compiled = pytest.mark.skipif(not COMPILED, reason="minutes without the compiler")


@pytest.fixture(scope="module")
def steps() -> CaptureSteps:
    return build_capture(CAPTURE, CaptureOptions(camera_height_m=CAMERA_HEIGHT_M), lambda *_: None)


class Trained:
    """From the street's frame to that of training."""

    def __init__(self) -> None:
        described = json.loads((CAPTURE / "dataparser_transforms.json").read_text())
        self.scale, transform = described["scale"], np.array(described["transform"])
        self.rotation, self.shift = transform[:, :3], transform[:, 3]

    def points(self, places: Array) -> Array:
        return self.scale * (np.asarray(places) @ self.rotation.T + self.shift)


def road_on_map(steps: CaptureSteps, out: float) -> Array:
    """Points of the road's surface, so far to the outside of its middle [m]."""
    middle, normals, _ = ring()
    x, y = (middle + out * normals).T
    return steps.frame.points(Trained().points(np.stack([x, y, relief(x, y) - 0.02 * abs(out)], axis=1)))


@compiled
def test_it_comes_out_level_and_to_scale(steps: CaptureSteps) -> None:
    trained = Trained()
    up = steps.frame.rotation @ trained.rotation @ np.array([0.0, 0.0, 1.0])
    assert math.degrees(math.acos(min(1.0, float(up[2])))) < 0.5
    assert steps.frame.scale * trained.scale == pytest.approx(1.0, rel=0.02)  # cameras stand 3 cm more or less high


@compiled
def test_the_ground_of_the_road_is_where_it_is(steps: CaptureSteps) -> None:
    points = np.concatenate([road_on_map(steps, out) for out in np.linspace(-3.0, 3.0, 13)])
    errors = np.abs(height_at(steps.layers.ground, points) - points[:, 2])
    assert not np.isnan(errors).any()
    assert float(np.median(errors)) < 0.05
    assert float(np.quantile(errors, 0.95)) < 0.1


@compiled
def test_one_can_drive_on_the_road_and_not_through_houses(steps: CaptureSteps) -> None:
    area = union_all([Polygon(rings[0], rings[1:]) for rings in steps.drivable.polygons])
    on_road = [area.contains(Point(*point[:2])) for point in road_on_map(steps, 0.0)]
    assert float(np.mean(on_road)) > 0.95
    houses = [area.contains(Point(*point[:2])) for point in road_on_map(steps, 11.0)]
    assert float(np.mean(houses)) < 0.05


@compiled
def test_the_shipped_world_is_what_the_command_makes(steps: CaptureSteps) -> None:
    """Not to the bit: linear algebra differs between processors."""
    world = load_bundle(WORLD)
    kept = int((steps.layers.label != 3).sum())
    assert world.gaussians.count == pytest.approx(kept, rel=1e-3)
    assert world.heightmap.values.shape == steps.layers.ground.values.shape
    assert float(np.nanquantile(np.abs(world.heightmap.values - steps.layers.ground.values), 0.99)) < 0.01
    assert world.mesh is not None
    assert steps.mesh is not None
    assert len(world.mesh.triangles) == pytest.approx(len(steps.mesh[1]), rel=0.02)
    features = json.loads((WORLD / "geometry/drivable.geojson").read_text())["features"]
    shipped = union_all([shape(feature["geometry"]) for feature in features])
    assert shipped.area == pytest.approx(steps.drivable.area_m2, rel=0.02)


def test_it_is_small() -> None:
    files = [path for folder in (CAPTURE, WORLD) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20e6


def driven(way: Array, most: int) -> tuple[Simulation, bool]:
    """After a point 4 m ahead on a closed way, once around it if nothing stops the car."""
    yaw = math.atan2(*(way[1] - way[0])[::-1])
    start = {"map_pose": {"x": float(way[0, 0]), "y": float(way[0, 1]), "yaw": yaw}}
    ego = {"start": start, "sensors": {"camera_front": None, "lidar_top": None}}
    sim, at = Simulation({"world": str(WORLD), "robots": {"ego": ego}, "collisions": "stop"}), 0
    for _ in range(most):
        state = sim.state("ego")
        while at < len(way) and math.dist(way[at], (state.x, state.y)) < 4.0:
            at += 1
        if at == len(way):
            return sim, True
        bearing = math.atan2(way[at, 1] - state.y, way[at, 0] - state.x) - state.yaw
        sim.command("ego", steering=math.atan(1.4 * math.sin(bearing)), speed=4.0)
        sim.advance(10)
    return sim, False


@compiled
def test_a_lap(steps: CaptureSteps) -> None:
    sim, is_around = driven(road_on_map(steps, -1.3)[:, :2], 500)
    assert is_around, sim.state("ego")
    assert sim.state("ego").contacts == 0


@compiled
def test_a_parked_car_ends_it(steps: CaptureSteps) -> None:
    sim, is_around = driven(road_on_map(steps, 2.3)[:, :2], 500)
    assert not is_around
    assert sim.state("ego").contacts >= 1
