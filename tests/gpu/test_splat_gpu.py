"""The GPU's pictures against the CPU's, bit by bit, and against the float64 reference. `make gpu` runs them."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from microsim.engine.noise import stream_key
from microsim.render import gpu
from microsim.render import renderer_choice as choice
from microsim.render.palette_camera import CameraModel
from microsim.render.relief import Ground
from microsim.render.splat.activation import activate
from microsim.render.splat.blending import NOTHING, SPLATS
from microsim.render.splat.picture import CpuRenderer, Exposure, Shadows, Shot, Sky, SplatActor, Things, lens_of
from microsim.render.splat.rasteriser import Rasteriser
from microsim.sensors._splat_camera import SplatScene
from tests.unit.render import splat_scenes
from tests.unit.render.test_splat_reference import HORIZON, assert_close, assert_same_surfaces, expected

pytestmark = pytest.mark.gpu

SHOTS = splat_scenes.shots()
PARTS = "colours", "depths", "owners"
SKY = Sky((0.7, 0.8, 0.9), (0.2, 0.4, 0.8), (0.5, 0.45, 0.4))


@pytest.fixture(scope="module", autouse=True)
def device():
    """These tests are asked for by name: without a GPU they fail, they do not hide."""
    name = gpu.device_name()
    assert name is not None, "no GPU can be used here: CuPy, a driver and a device are needed"
    return name


def shot_of(scene, distortion=(0.0,) * 5, **changes):
    camera = CameraModel(*scene.size, *scene.focal, *scene.principal, scene.bend or distortion, scene.bend is not None)
    return Shot(lens_of(camera), scene.position, scene.rotation, **changes)


def same(found, wanted):
    return all(getattr(found, part).tobytes() == getattr(wanted, part).tobytes() for part in PARTS)


def digest(found):
    return hashlib.sha256(b"".join(getattr(found, part).tobytes() for part in PARTS)).hexdigest()


def test_the_self_test_passes():
    assert choice.self_test() is None


@pytest.mark.parametrize("name", SHOTS)
def test_every_scene_agrees_with_float64(name):
    scene = SHOTS[name]
    splats = activate(scene.rows, scene.degree)
    shot = shot_of(scene, sky=Sky(tuple(HORIZON), tuple(HORIZON)))
    frame = gpu.GpuRenderer(splats).frame(shot)
    behind = CpuRenderer(splats)._background(shot)[0]  # black where a fisheye sees nothing
    colours, alphas, depths = expected(scene, behind, np.inf, splats)
    assert_close(frame.colours, colours)
    assert_close(frame.alphas, alphas)
    assert_same_surfaces(frame, depths)


@pytest.mark.parametrize("name", SHOTS)
def test_every_scene_has_the_bits_of_the_cpu(name):
    scene = SHOTS[name]
    splats = activate(scene.rows, scene.degree)
    shot = shot_of(scene, sky=SKY)
    frame = gpu.GpuRenderer(splats).frame(shot)
    cpu = CpuRenderer(splats)
    wanted = Rasteriser(splats).render(shot.view, *cpu._background(shot))
    for part in ("colours", "alphas", "depths", "owners"):
        a, b = getattr(frame, part), getattr(wanted, part)
        assert a.tobytes() == b.tobytes(), f"{part}: {np.count_nonzero(a != b)} differ, most {np.abs(a - b).max()}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("count", [2_000, 50_000, 400_000])
def test_pictures_with_lens_noise_and_things_have_the_bits_of_the_cpu(count, seed):
    scene = splat_scenes.Shot(
        splat_scenes.yard(count, seed), (320, 240), (190.0, 190.0), (159.5, 119.5), yaw=1.1 * seed
    )
    splats = activate(scene.rows)
    exposure = Exposure(1.2, 5.0, stream_key(seed, "camera"), 2**33 + seed)
    distortion = (-0.2, 0.05, 0.001, -0.001, 0.0) if seed % 2 else (0.0,) * 5
    shot = shot_of(scene, distortion, sky=SKY, exposure=exposure)
    canvas = shot.lens.canvas
    depths = np.full((canvas.height, canvas.width), np.inf, np.float32)
    depths[: canvas.height // 2, 20:90] = np.linspace(2.0, 20.0, 70, dtype=np.float32)
    colours = np.random.default_rng(seed).integers(0, 256, (canvas.height, canvas.width, 3), np.uint8)
    shot = shot_of(scene, distortion, sky=SKY, exposure=exposure, things=Things(depths, colours))
    assert same(gpu.GpuRenderer(splats).pictures([shot])[0], CpuRenderer(splats).pictures([shot])[0])


def test_twenty_runs_give_one_picture():
    scene = splat_scenes.Shot(splat_scenes.yard(300_000), (640, 480), (380.0, 380.0), (319.5, 239.5))
    splats = activate(scene.rows)
    shot = shot_of(scene, sky=SKY)
    fresh = {digest(gpu.GpuRenderer(splats).pictures([shot])[0]) for _ in range(4)}
    renderer = gpu.GpuRenderer(splats)
    assert len(fresh | {digest(renderer.pictures([shot])[0]) for _ in range(20)}) == 1


def test_a_batch_of_cameras_gives_the_pictures_of_each():
    rows = splat_scenes.yard(60_000)
    splats = activate(rows)
    shots = [
        shot_of(splat_scenes.Shot(rows, size, (100.0, 100.0), (size[0] / 2, size[1] / 2), yaw=yaw), lens, sky=SKY)
        for size, yaw, lens in (
            ((160, 120), 0.0, (0.0,) * 5),
            ((333, 77), 1.5, (-0.1, 0.01, 0.0, 0.0, 0.0)),
            ((64, 64), 3.0, (0.0,) * 5),
            ((160, 120), 4.5, (0.0,) * 5),
        )
    ]
    together = gpu.GpuRenderer(splats).pictures(shots)
    alone = CpuRenderer(splats).pictures(shots)
    assert all(same(found, wanted) for found, wanted in zip(together, alone, strict=True))


@pytest.mark.parametrize("count", [900, 3_000, 12_000, 60_000])
def test_crowded_tiles_are_sorted_too(count):
    """All splats in a few pixels: lists of every length that has a way of its own."""
    rng = np.random.default_rng(count)
    means = np.stack([rng.uniform(10, 40, count), rng.normal(0, 0.2, count), rng.normal(0, 0.2, count)], 1)
    quaternions, opacities = rng.normal(size=(count, 4)), rng.uniform(0.004, 0.01, count)
    harmonics = rng.normal(0, 0.5, (count, 16, 3))
    rows = splat_scenes.file_rows(means, np.full((count, 3), 0.3), quaternions, opacities, harmonics)
    scene = splat_scenes.Shot(rows, (48, 48), (40.0, 40.0), (24.0, 24.0), (0.0, 0.0, 0.0), 0.0, 0.0)
    splats = activate(rows)
    assert same(
        gpu.GpuRenderer(splats).pictures([shot_of(scene)])[0], CpuRenderer(splats).pictures([shot_of(scene)])[0]
    )


def test_more_pairs_than_there_was_room_for_are_drawn_all_the_same():
    scene = splat_scenes.Shot(splat_scenes.yard(3000), (640, 480), (380.0, 380.0), (319.5, 239.5))
    splats = activate(scene.rows)
    renderer = gpu.GpuRenderer(splats)
    renderer._reserve(64)
    assert same(renderer.pictures([shot_of(scene)])[0], CpuRenderer(splats).pictures([shot_of(scene)])[0])


def test_the_choice_falls_on_the_gpu():
    said = []
    renderer = choice.open_renderer(activate(splat_scenes.yard(100)), "auto", say=said.append)
    assert isinstance(renderer, gpu.GpuRenderer)
    assert "preparing" in said[0]


def test_the_oval_through_each_camera_has_the_bits_of_the_cpu():
    import microsim

    sim = microsim.Simulation({"world": "oval", "robots": {"ego": {"sensors": {"lidar_top": None}}}})
    (scene,) = (each for each in sim._shared.values() if isinstance(each, SplatScene))
    shots = [replace(shot, has_depths=True) for camera in scene.cameras for shot in camera.shots(0)]
    found, wanted = gpu.GpuRenderer(scene.splats).pictures(shots), CpuRenderer(scene.splats).pictures(shots)
    assert len(found) == 3
    assert all(same(*pair) for pair in zip(found, wanted, strict=True))


def hills(seed):
    heights = np.random.default_rng(seed).normal(0.0, 0.3, (37, 53))
    heights[5:8, 10:20] = np.nan
    return Ground(heights, 0.7, -20.0, -14.0)


def moved_actors(seed, count=5):
    """Small yards that stand and turn among the others; two of them are the same splats."""
    rng = np.random.default_rng(seed)
    own = [activate(splat_scenes.yard(size, seed + size)) for size in (300, 5_000)]
    actors = []
    for k in range(count):
        axes, _ = np.linalg.qr(rng.normal(size=(3, 3)))
        place = tuple(float(each) for each in rng.uniform(-8.0, 8.0, 3))
        actors.append(SplatActor(own[k % 2], place, tuple(tuple(float(x) for x in row) for row in axes)))
    return tuple(actors)


@pytest.mark.parametrize("bend", [None, (0.05, -0.01, 0.002, 0.0)])
@pytest.mark.parametrize("seed", range(5))
def test_actors_of_splats_and_shadows_have_the_bits_of_the_cpu(seed, bend):
    rows = splat_scenes.yard(20_000, seed)
    scene = splat_scenes.Shot(rows, (320, 240), (120.0, 120.0), (159.5, 119.5), yaw=1.3 * seed, bend=bend)
    plain = shot_of(scene, sky=SKY)
    rng = np.random.default_rng(seed)
    bodies = np.zeros((7, 15))
    bodies[:, :3] = rng.uniform((-9.0, -9.0, 3.0), (9.0, 9.0, 6.0), (7, 3))  # above the yard: their shadows fall on it
    for body in bodies:
        body[3:12] = np.linalg.qr(rng.normal(size=(3, 3)))[0].ravel()
    bodies[:, 12:] = rng.uniform(0.2, 3.0, (7, 3))
    bodies[0] = 0.0, 0.0, 9.0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 30.0, 30.0, 0.5  # a roof over everything
    camera = CameraModel(*scene.size, *scene.focal, *scene.principal, bend or (0.0,) * 5, bend is not None)
    shots = [
        shot_of(scene, sky=SKY, actors=moved_actors(seed), shadows=shadows)
        for shadows in (None, Shadows(bodies, camera.rays()), Shadows(bodies, camera.rays(), hills(seed)))
    ]
    splats = activate(rows)
    found, wanted = gpu.GpuRenderer(splats).pictures([plain, *shots]), CpuRenderer(splats).pictures([plain, *shots])
    assert all(same(*pair) for pair in zip(found, wanted, strict=True))
    assert len({digest(each) for each in found}) == 4, "actors, shadows, and the ground on which they fall are seen"
    assert {*np.unique(found[0].owners).tolist()} <= {NOTHING, SPLATS}
    assert found[1].owners.max() > SPLATS, "of actors too it is known whose surface a pixel shows"


def test_a_run_with_actors_has_one_digest(tmp_path):
    import microsim
    from benchmarks.splat import car_of_splats, ten_actors
    from microsim.bundle.bundle_writing import splat_header
    from microsim.render.render_options import render_request

    rows = car_of_splats(2_000)
    (tmp_path / "car.ply").write_bytes(splat_header(len(rows), 3, w_first=True) + rows.tobytes())
    for own in ({}, {"splats": str(tmp_path / "car.ply")}):
        digests = set()
        for render in ("cpu", "gpu"):
            render_request.choice = render
            sim = microsim.Simulation(ten_actors(**own))
            sim.step(50)
            digests.add(sim.digest())
        render_request.choice = "auto"
        assert len(digests) == 1
