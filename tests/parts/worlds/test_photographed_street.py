"""The street that is photographed: its surfaces, and the cameras among them."""

from pathlib import Path

import numpy as np
import pytest

from examples.capture import photographed_street as photographs
from examples.capture.street_scene import KERB, ROAD, Scene, relief, ring, street
from microsim.bundle.mesh_files import read_mesh
from microsim.bundle.rules import BundleFile, BundleReport
from microsim.parts.worlds.capture.camera_poses import read_cameras


@pytest.fixture(scope="module")
def scene() -> Scene:
    return street()


def surfaces_above(triangles: np.ndarray, x: float, y: float) -> np.ndarray:
    """Heights at which a plumb line meets the triangles, by brute force."""
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = np.moveaxis(triangles, 0, 2)
    area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay)
    area = np.where(np.abs(area) > 1e-12, area, np.inf)  # upright ones are not met
    u = ((x - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area
    v = ((bx - ax) * (y - ay) - (x - ax) * (by - ay)) / area
    hit = np.isfinite(area) & (u >= 0) & (v >= 0) & (u + v <= 1)
    return np.sort((az + u * (bz - az) + v * (cz - az))[hit])


def test_cameras_stand_at_eye_height_with_nothing_around_them(scene: Scene) -> None:
    triangles = np.concatenate([vertices[faces] for own in scene.parts.values() for vertices, faces, _ in own])
    poses = photographs.cameras()
    assert len(poses) > 250
    for pose in poses:
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-12)
        assert abs(pose[2, 2]) < 0.5, "they look about level"
        x, y, z = pose[:3, 3]
        heights = surfaces_above(triangles, x, y)
        below, above = heights[heights < z], heights[heights > z]
        assert z - below.max() == pytest.approx(photographs.CAMERA_HEIGHT_M, abs=0.03)
        assert not len(above) or above.min() - z > 0.8


def test_the_road_has_the_height_that_it_is_said_to_have(scene: Scene) -> None:
    triangles = np.concatenate([vertices[faces] for vertices, faces, _ in scene.parts["road"] + scene.parts["paving"]])
    points, normals, _ = ring()
    for k in range(0, len(points), 40):
        for out in (-ROAD + 0.01, -1.0, 0.3, ROAD - 0.01, ROAD + 1.0):
            x, y = points[k] + out * normals[k]
            expected = relief(x, y) + (KERB if out > ROAD else -0.02 * abs(out))
            assert surfaces_above(triangles, x, y)[-1] == pytest.approx(expected, abs=0.01)


def test_poses_and_truth_are_read_as_a_capture(scene: Scene, tmp_path: Path) -> None:
    photographs.write_poses(tmp_path, every=50, size=0.5)
    photographs.write_truth(tmp_path, scene)
    poses = read_cameras(tmp_path)
    assert poses is not None
    np.testing.assert_allclose(poses.positions, [pose[:3, 3] for pose in photographs.cameras(50)], atol=1e-6)
    mesh = read_mesh(BundleFile(BundleReport(), "truth.ply", tmp_path / "truth.ply"))
    assert mesh is not None
    assert len(mesh.triangles) == sum(len(faces) for own in scene.parts.values() for _, faces, _ in own)
