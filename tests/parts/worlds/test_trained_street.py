"""From photographs to driving: the shipped `street`, whose Gaussians were trained from rendered photographs.

`photographed_street.py` took the photographs, `train.py` trained on them, `microsim bundle from-capture` made the
world. The scene is known, so the world can be compared with the truth.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapely import Point, union_all
from shapely.geometry import shape

from examples.capture.photographed_street import CAMERA_HEIGHT_M
from examples.capture.street_scene import Array, relief, ring
from microsim import Simulation
from microsim.bundle import Bundle, load_bundle
from microsim.bundle.similarity import Similarity
from microsim.bundle.splat_sources import open_splats
from microsim.parts.worlds.capture import capture_world
from microsim.parts.worlds.capture.camera_poses import read_cameras
from microsim.parts.worlds.capture.capture_world import CaptureNotes, CaptureOptions, build_capture
from microsim.parts.worlds.capture.scene_layers import height_at
from tests.support import COMPILED

ROOT = Path(__file__).parents[3]
CAPTURE, WORLD = ROOT / "examples/capture/trained_street", ROOT / "worlds/street"
compiled = pytest.mark.skipif(not COMPILED, reason="minutes without the compiler")


@pytest.fixture(scope="module")
def frame() -> Similarity:
    """From the frame of training to the map, as the command finds it."""
    options = CaptureOptions(camera_height_m=CAMERA_HEIGHT_M)
    scene = capture_world._read(open_splats(capture_world.find_splats(CAPTURE)), lambda *_: None)
    return capture_world._frame(CAPTURE, scene, read_cameras(CAPTURE), options, CaptureNotes())[0]


@pytest.fixture(scope="module")
def world() -> Bundle:
    return load_bundle(WORLD)


@pytest.fixture(scope="module")
def shipped(world: Bundle) -> Any:
    """The drivable area, as one shape."""
    features = json.loads((WORLD / "geometry/drivable.geojson").read_text())["features"]
    return union_all([shape(feature["geometry"]) for feature in features])


class Trained:
    """From the street's frame to that of training."""

    def __init__(self) -> None:
        described = json.loads((CAPTURE / "dataparser_transforms.json").read_text())
        self.scale, transform = described["scale"], np.array(described["transform"])
        self.rotation, self.shift = transform[:, :3], transform[:, 3]

    def points(self, places: Array) -> Array:
        return self.scale * (np.asarray(places) @ self.rotation.T + self.shift)


def road_on_map(frame: Similarity, out: float) -> Array:
    """Points of the road's surface, so far to the outside of its middle [m]."""
    middle, normals, _ = ring()
    x, y = (middle + out * normals).T
    return frame.points(Trained().points(np.stack([x, y, relief(x, y) - 0.02 * abs(out)], axis=1)))


@compiled
def test_it_comes_out_level_and_to_scale(frame: Similarity) -> None:
    trained = Trained()
    up = frame.rotation @ trained.rotation @ np.array([0.0, 0.0, 1.0])
    assert math.degrees(math.acos(min(1.0, float(up[2])))) < 0.5
    assert frame.scale * trained.scale == pytest.approx(1.0, rel=0.02)  # cameras stand 3 cm more or less high


@compiled
def test_the_ground_of_the_road_is_where_it_is(frame: Similarity, world: Bundle) -> None:
    points = np.concatenate([road_on_map(frame, out) for out in np.linspace(-3.0, 3.0, 13)])
    errors = np.abs(height_at(world.heightmap, points) - points[:, 2])
    assert not np.isnan(errors).any()
    assert float(np.median(errors)) < 0.05
    assert float(np.quantile(errors, 0.95)) < 0.1


@compiled
def test_one_can_drive_on_the_road_and_not_through_houses(frame: Similarity, shipped: Any) -> None:
    on_road = [shipped.contains(Point(*point[:2])) for point in road_on_map(frame, 0.0)]
    assert float(np.mean(on_road)) > 0.95
    houses = [shipped.contains(Point(*point[:2])) for point in road_on_map(frame, 11.0)]
    assert float(np.mean(houses)) < 0.05


@pytest.mark.slow
@compiled
def test_the_shipped_world_is_what_the_command_makes(frame: Similarity, world: Bundle, shipped: Any) -> None:
    """Not to the bit: linear algebra differs between processors."""
    steps = build_capture(CAPTURE, CaptureOptions(camera_height_m=CAMERA_HEIGHT_M), lambda *_: None)
    np.testing.assert_array_equal(steps.frame.rotation, frame.rotation)
    assert steps.frame.scale == frame.scale
    kept = int((steps.layers.label != 3).sum())
    assert world.gaussians.count == pytest.approx(kept, rel=1e-3)
    assert world.heightmap.values.shape == steps.layers.ground.values.shape
    assert float(np.nanquantile(np.abs(world.heightmap.values - steps.layers.ground.values), 0.99)) < 0.01
    assert world.mesh is not None
    assert steps.mesh is not None
    assert len(world.mesh.triangles) == pytest.approx(len(steps.mesh[1]), rel=0.02)
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
def test_a_lap(frame: Similarity) -> None:
    sim, is_around = driven(road_on_map(frame, -1.3)[:, :2], 500)
    assert is_around, sim.state("ego")
    assert sim.state("ego").contacts == 0


@compiled
def test_a_parked_car_ends_it(frame: Similarity) -> None:
    sim, is_around = driven(road_on_map(frame, 2.3)[:, :2], 500)
    assert not is_around
    assert sim.state("ego").contacts >= 1
