"""The fisheye of Kannala and Brandt: closed forms, its CameraInfo, what it sees of splats, things and the world."""

import hashlib
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.errors import ScenarioError
from microsim.render.palette_camera import CameraModel
from microsim.render.splat.activation import activate
from microsim.render.splat.picture import CpuRenderer, Shot, Sky, lens_of
from tests.support import bare, decoded, scenario
from tests.unit.render.test_splat import AHEAD, splat

BENDS = [(0.0, 0.0, 0.0, 0.0), (-0.03, 0.02, -0.01, 0.002), (0.08, -0.01, 0.0, 0.0)]
ROUND = CameraModel(64, 64, 20.0, 21.0, 31.5, 31.0, BENDS[1], is_fisheye=True)


def seen_at(model: CameraModel, direction: Any) -> Any:
    """OpenCV's `fisheye::projectPoints`, from its documentation; any direction before the camera."""
    a, b = direction[..., 0] / direction[..., 2], direction[..., 1] / direction[..., 2]
    r = np.hypot(a, b)
    theta = np.arctan(r)
    bent = theta * (1 + sum(k * theta ** (2 * power + 2) for power, k in enumerate(model.distortion)))
    scale = np.where(r > 1e-12, bent / np.maximum(r, 1e-12), 1.0)
    return np.stack([model.fx * a * scale + model.cx, model.fy * b * scale + model.cy], axis=-1)


@pytest.mark.parametrize("bend", BENDS)
def test_points_are_seen_where_opencv_sees_them_and_rays_lead_back(bend: Any) -> None:
    model = CameraModel(90, 70, 26.0, 27.0, 44.0, 36.0, bend, is_fisheye=True)
    directions = np.random.default_rng(1).normal(size=(200, 3))
    directions[:, 2] = np.abs(directions[:, 2]) + 1e-3
    directions[0] = (0.0, 0.0, 2.0)
    np.testing.assert_allclose([model.project(*each) for each in directions], seen_at(model, directions), atol=1e-10)
    rays = np.stack([*model.rays(), np.ones((70, 90))], axis=-1)
    v, u = np.mgrid[0:70, 0:90]
    sees = np.isfinite(rays[..., 0])
    np.testing.assert_allclose(seen_at(model, rays)[sees], np.stack([u, v], axis=-1)[sees], atol=1e-10)
    assert 0.7 < sees.mean() <= 1.0
    assert model.project(1.0, 0.0, -0.1)[0] > model.project(1.0, 0.0, 0.0)[0]  # also behind the camera


@pytest.mark.parametrize("place", [(4.0, 0.0, 0.0), (2.0, 3.0, 1.0), (0.5, -2.0, -1.0), (0.8, 0.4, 2.5)])
def test_a_splat_is_seen_where_the_model_says(place: Any) -> None:
    lens = lens_of(ROUND)
    found = CpuRenderer(activate(splat(place, scale=0.15, colour=(1.0, 1.0, 1.0)))).pictures(
        [Shot(lens, (0.0, 0.0, 0.0), AHEAD)]
    )[0]
    weights = found.colours[..., 0].astype(float)
    v, u = np.mgrid[0:64, 0:64]
    centre = (u * weights).sum() / weights.sum(), (v * weights).sum() / weights.sum()
    x, y, z = place
    np.testing.assert_allclose(centre, ROUND.project(-y, -z, x), atol=0.1)


def test_depths_are_along_the_axis_and_what_it_cannot_see_is_black() -> None:
    """A wall 3 m ahead, hidden by nothing; a splat before it."""
    lens = lens_of(ROUND)
    assert lens.stretch is not None
    things = lens.things(np.full((64, 64, 3), 200, np.uint8), np.full((64, 64), 3.0))
    shot = Shot(lens, (0.0, 0.0, 0.0), AHEAD, Sky((0.5, 0.5, 0.5)), things=things)
    rows = splat((2.0, 1.5, 0.0), scale=0.2, opacity=0.999)
    found = CpuRenderer(activate(rows)).pictures([shot])[0]
    blind = np.isnan(lens.stretch)
    assert blind[0, 0]
    assert not blind[31, 31]
    assert (found.colours[blind] == 0).all()
    assert np.isinf(found.depths[blind]).all()
    u, v = (round(each) for each in ROUND.project(-1.5, 0.0, 2.0))
    assert found.depths[v, u] == pytest.approx(2.0, abs=0.06)
    far = ~blind & (np.hypot(*(np.mgrid[0:64, 0:64] - np.array([v, u]).reshape(2, 1, 1))) > 14)
    np.testing.assert_allclose(found.depths[far], 3.0, rtol=1e-6)


def test_the_sky_is_where_its_rays_lead() -> None:
    shot = Shot(lens_of(ROUND), (0.0, 0.0, 0.0), AHEAD, Sky((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
    found = CpuRenderer(activate(splat()[:0])).pictures([shot])[0].colours[..., 0]
    for row in (2, 10, 25):
        a, b = ROUND.rays()[:, row, 31]
        assert found[row, 31] == pytest.approx(255.0 * -b / np.sqrt(a * a + b * b + 1.0), abs=0.51)


CAMERA = {"projection": "fisheye", "resolution": {"width": 60, "height": 40}, "latency_ms": {"mean": 0, "jitter": 0}}


def run(**camera: Any) -> microsim.Simulation:
    drone = bare(camera={**CAMERA, **camera}, start={"map_pose": {"x": 10.0, "y": 10.0, "z": 9.0}})
    features = [{"type": "circle", "class": "target", "center": [11, 10], "radius": 2}]
    return microsim.Simulation(scenario(robots={"drone": drone}, features=features))


def test_its_camera_info_is_what_ros_expects_of_a_fisheye() -> None:
    distortion = {"model": "equidistant", "D": [0.01, -0.02, 0.003, 0.0]}
    sim = run(intrinsics={"fx": 30.0, "cx": 29.5, "cy": 19.5}, distortion=distortion)
    info = decoded(sim.step(0), "/drone/camera/camera_info")[0]
    assert (info.distortion_model, info.d.tolist()) == ("equidistant", distortion["D"])
    assert info.k.tolist() == [30.0, 0.0, 29.5, 0.0, 30.0, 19.5, 0.0, 0.0, 1.0]
    assert info.p.tolist() == [30.0, 0.0, 29.5, 0.0, 0.0, 30.0, 19.5, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_a_field_of_view_reaches_from_edge_to_edge() -> None:
    camera: Any = run(intrinsics={"fov_deg": 170}).scenario.robots["drone"].all_sensors()["camera"]
    model = camera.model
    assert model.fx == pytest.approx(30.0 / np.radians(85.0), rel=1e-12)
    assert model.project(np.sin(np.radians(85.0)), 0.0, np.cos(np.radians(85.0)))[0] == pytest.approx(60.0)


@pytest.mark.parametrize(
    ("camera", "told"),
    [
        ({"intrinsics": {"fx": 8.0}}, "camera.intrinsics: .*more than 179° in every direction.*fx >= 12.8"),
        ({"distortion": {"model": "plumb_bob", "D": [0.1, 0, 0, 0, 0]}}, "a fisheye takes model: equidistant"),
        ({"distortion": {"model": "equidistant", "D": [0.1, 0, 0, 0, 0]}}, "k4.* of equidistant, found 5 values"),
        ({"projection": "pinhole", "distortion": {"model": "equidistant"}}, "write projection: fisheye"),
        ({"intrinsics": {"fov_deg": 175}, "distortion": {"model": "equidistant", "D": [-0.3, 0, 0, 0]}}, "fold the im"),
        ({"intrinsics": {"fov_deg": 220}}, "intrinsics.fov_deg"),
    ],
)  # fmt: skip
def test_what_it_cannot_be_is_refused_by_name(camera: Any, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        run(**camera)


def test_the_bits_are_the_same_everywhere() -> None:
    """Compiled or not, on any processor, on a GPU."""
    model = CameraModel(24, 20, 8.0, 8.5, 11.0, 10.0, BENDS[1], is_fisheye=True)
    rows = np.concatenate(
        [splat((2.0, 1.0, 0.3), (0.4, 0.2, 0.1)), splat((0.1, -2.0, 1.0), 0.5), splat((-0.2, 2.0, 0.0))]
    )
    lens = lens_of(model)
    things = lens.things(np.zeros((20, 24, 3), np.uint8), np.full((20, 24), np.inf))
    shot = Shot(lens, (0.0, 0.0, 0.0), AHEAD, Sky((0.2, 0.3, 0.4), (0.9, 0.6, 0.3)), things=things)
    found = CpuRenderer(activate(rows)).pictures([shot])[0]
    digest = hashlib.sha256(found.colours.tobytes() + found.depths.tobytes() + found.owners.tobytes()).hexdigest()
    assert digest[:16] == "fe9c1af7962b5416"
