"""Laws of splat scenes and pictures: what is left out, what a picture may depend on, closed forms."""

import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.noise import stream_key
from microsim.errors import UsageError
from microsim.render import gpu
from microsim.render import renderer_choice as choice
from microsim.render.palette_camera import CameraModel
from microsim.render.splat import CHUNK, SURFACE_SPREAD
from microsim.render.splat.activation import Splats, activate, columns_of_degree
from microsim.render.splat.blending import EXPONENTIAL, exp_of_minus
from microsim.render.splat.picture import CpuRenderer, Exposure, Shot, Sky, SplatActor, Things, lens_of
from microsim.render.splat.projection import view_of
from microsim.render.splat.rasteriser import Rasteriser
from microsim.threads import Threads
from tests.support import COMPILED, many
from tests.unit.render import splat_scenes

CAMERA = CameraModel(48, 32, 30.0, 30.0, 23.5, 15.5)
AHEAD = ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0))  # looking along x
TURNED = ((0.8, -0.6, 0.0), (0.6, 0.8, 0.0), (0.0, 0.0, 1.0))
C0 = 0.28209479177387814


def splat(place=(4.0, 0.0, 0.0), scale=0.2, opacity=0.8, colour=(0.9, 0.5, 0.1), quaternion=(0.0, 0.0, 0.0, 1.0)):
    harmonics = np.zeros((1, 16, 3))
    harmonics[0, 0] = (np.array(colour) - 0.5) / C0
    scales = np.broadcast_to(scale, (1, 3))
    return splat_scenes.file_rows(np.array([place]), scales, np.array([quaternion]), np.array([opacity]), harmonics)


def picture(rows, camera=CAMERA, position=(0.0, 0.0, 0.0), **shot):
    return CpuRenderer(activate(rows)).pictures([Shot(lens_of(camera), position, AHEAD, **shot)])[0]


def yard_shot(size=(80, 60), **changes):
    shot = splat_scenes.Shot(np.empty((0, 59)))
    camera = CameraModel(*size, *shot.focal, *shot.principal)
    return Shot(lens_of(camera), shot.position, shot.rotation, **changes)


def digest_of_a_picture(count, width, height):
    shot = yard_shot(
        (width, height),
        sky=Sky((0.7, 0.8, 0.9), (0.2, 0.4, 0.8)),
        exposure=Exposure(1.1, 3.0, stream_key(7, "x"), 5),
        actors=(SplatActor(activate(splat_scenes.yard(count // 2, 1)), (2.0, 1.0, 0.3), TURNED),),
    )
    found = CpuRenderer(activate(splat_scenes.yard(count))).pictures([shot])[0]
    return hashlib.sha256(found.colours.tobytes() + found.depths.tobytes() + found.owners.tobytes()).hexdigest()


# What is left out


@pytest.mark.parametrize("column", [0, 4, 7, 10, 12, 40])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_splats_with_numbers_that_are_none_are_skipped_and_counted(column, value):
    rows = np.concatenate([splat(), splat()])
    rows[1, column] = value
    scene = activate(rows)
    assert (len(scene), scene.bad, scene.transparent) == (1, 1, 0)
    assert np.isfinite(scene.geometry).all()


def test_splats_without_rotation_are_skipped_and_counted():
    rows = np.concatenate([splat(quaternion=(0.0, 0.0, 0.0, 0.0)), splat(), splat(quaternion=(0.0, 0.0, 0.0, 1e-8))])
    assert (len(activate(rows)), activate(rows).bad) == (1, 2)


def test_splats_larger_than_the_earth_are_skipped_and_counted():
    assert activate(splat(scale=1e9)).bad == 1


def test_splats_that_can_never_be_seen_are_left_out():
    rows = np.concatenate([splat(opacity=0.99 / 255.0), splat(opacity=1.01 / 255.0)])
    scene = activate(rows)
    assert (len(scene), scene.transparent, scene.order.tolist()) == (1, 1, [1])


def test_a_scene_keeps_every_other_splat_once_and_nothing_of_it_changes():
    rows = splat_scenes.yard(700)
    scene = activate(rows)
    assert sorted([*scene.order, *np.flatnonzero(1 / (1 + np.exp(-rows[:, 10])) < 1 / 255)]) == list(range(700))
    source = rows[scene.order].astype(np.float64)
    np.testing.assert_array_equal(scene.geometry[:, :3], rows[scene.order, :3])
    np.testing.assert_allclose(scene.geometry[:, 3:6], np.exp(source[:, 3:6]), rtol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(scene.geometry[:, 6:10], axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(scene.geometry[:, 10], 1 / (1 + np.exp(-source[:, 10])), rtol=1e-7)
    np.testing.assert_array_equal(scene.harmonics[:, 5, 1], rows[scene.order, 14 + 15 + 4])


def test_rows_that_do_not_hold_the_harmonics_are_refused():
    with pytest.raises(ValueError, match="degree 3"):
        activate(splat()[:, : columns_of_degree(2)], 3)


def test_near_splats_are_near_in_the_scene():
    """So that a chunk is a small place: its sphere, less the splats' own reach, stays far below the scene's 57 m."""
    scene = activate(splat_scenes.yard(many(40000, 2000)))
    means = scene.geometry[:, :3].astype(np.float64)
    chunks = [means[i : i + CHUNK] for i in range(0, len(means), CHUNK)]
    sizes = [np.linalg.norm(np.ptp(chunk, axis=0)) for chunk in chunks]
    assert np.median(sizes) < (14.0 if COMPILED else 50.0)


# What a picture may depend on


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr("microsim.render.splat.rasteriser._PART", 50)
    scene = activate(splat_scenes.yard(many(3000, 200)))
    pictures = [CpuRenderer(scene, Threads(count)).pictures([yard_shot()])[0] for count in (1, 2, 3, 5)]
    for other in pictures[1:]:
        assert other.colours.tobytes() == pictures[0].colours.tobytes()
        assert other.depths.tobytes() == pictures[0].depths.tobytes()


def test_an_error_in_a_thread_reaches_the_caller():
    def fail(number, worker):
        raise RuntimeError(f"task {number}")

    with pytest.raises(RuntimeError, match="task"):
        Threads(2).run(fail, 2)


def test_a_renderer_has_no_memory():
    """After other scenes' frames, of other sizes, a picture is what it was."""
    renderer = CpuRenderer(activate(splat_scenes.yard(many(2000, 150))))
    first = renderer.pictures([yard_shot()])[0]
    elsewhere = Shot(lens_of(CAMERA), (3.0, 2.0, 9.0), AHEAD)
    again = renderer.pictures([elsewhere, yard_shot(), elsewhere])[1]
    assert first.colours.tobytes() == again.colours.tobytes()


def test_culling_by_chunks_changes_no_bit():
    scene = activate(splat_scenes.yard(many(3000, 300)))
    everywhere = scene.spheres.copy()
    everywhere[:, 3] = 1e9
    unculled = Splats(scene.geometry, scene.harmonics, everywhere, scene.order, 3, 0, 0)
    for yaw in (0.0, 1.0, 2.5, 4.0):
        shot = splat_scenes.Shot(np.empty((0, 59)), yaw=yaw, pitch=-0.4)
        view = view_of(*shot.size, shot.focal, shot.principal, shot.position, shot.rotation)
        behind, limits = np.zeros((60, 80, 3), np.float32), np.full((60, 80), np.inf, np.float32)
        a, b = Rasteriser(scene).render(view, behind, limits), Rasteriser(unculled).render(view, behind, limits)
        assert a.colours.tobytes() == b.colours.tobytes()


@pytest.mark.skipif(not COMPILED, reason="compares the compiled form with others")
@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        pytest.param({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, (2000, 80, 60), marks=pytest.mark.slow),
        ({"NUMBA_DISABLE_JIT": "1"}, (30, 24, 16)),
    ],
    ids=["a processor without AVX and FMA", "plain Python"],
)
def test_the_same_bits_elsewhere(environment, numbers):
    script = f"from tests.unit.render.test_splat import digest_of_a_picture as digest; print(digest{numbers})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    assert done.stdout.strip() == digest_of_a_picture(*numbers)


# Closed forms


def test_exp_of_minus_is_within_a_millionth():
    s = np.linspace(0.0, 5.6, many(20000, 200)).astype(np.float32)
    error = np.array([exp_of_minus(x) for x in s], np.float64) - np.exp(-s.astype(np.float64))
    assert np.abs(error).max() < 1e-6
    assert exp_of_minus(np.float32(0.0)) == 1.0


def test_one_splat_ahead_of_the_camera_is_a_bell_of_its_own_colour():
    camera = CameraModel(49, 33, 30.0, 30.0, 24.0, 16.0)
    found = picture(splat(opacity=0.8), camera, sky=Sky((0.2, 0.2, 0.2), (0.2, 0.2, 0.2)))
    variance = (30.0 / 4.0 * 0.2) ** 2 + 0.3
    for du, dv in ((0, 0), (1, 0), (0, 2), (3, 1)):
        alpha = 0.8 * math.exp(-0.5 * (du * du + dv * dv) / variance)
        wanted = 255.0 * (alpha * np.array([0.9, 0.5, 0.1]) + (1.0 - alpha) * 0.2)
        assert np.abs(found.colours[16 + dv, 24 + du] - wanted).max() <= 0.51
    assert found.depths[16, 24] == pytest.approx(4.0)
    assert found.depths[0, 0] == math.inf


def test_the_nearer_splat_covers_the_farther():
    rows = np.concatenate(
        [splat((5.0, 0.0, 0.0), 1.0, 0.9999, (1.0, 0.0, 0.0)), splat((4.0, 0.0, 0.0), 1.0, 0.9999, (0.0, 1.0, 0.0))]
    )
    assert picture(rows).colours[16, 24].tolist() == pytest.approx([0, 252, 0], abs=3)


def test_nothing_nearer_than_the_near_plane_is_seen():
    rows = splat((0.5, 0.0, 0.0))
    assert picture(rows, near_m=0.4).colours.any()
    assert not picture(rows, near_m=0.6).colours.any()


def test_a_sky_goes_from_horizon_to_zenith():
    sky = Sky((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    found = picture(splat()[:0], CameraModel(3, 400, 100.0, 100.0, 1.0, 200.0), sky=sky).colours
    assert found[200:, 1].tolist() == [[255, 0, 0]] * 200
    assert found[100, 1].tolist() == pytest.approx([255 * (1 - math.sqrt(0.5)), 0, 255 * math.sqrt(0.5)], abs=1)


def test_a_thing_hides_what_is_behind_it_and_is_hidden_by_what_is_before_it():
    rows = np.concatenate(
        [splat((3.0, 1.0, 0.0), 0.3, 0.9999, (1.0, 0.0, 0.0)), splat((9.0, -1.0, 0.0), 1.0, 0.9999, (0.0, 0.0, 1.0))]
    )
    depths, colours = np.full((32, 48), 5.0, np.float32), np.full((32, 48, 3), 128, np.uint8)
    found = picture(rows, things=Things(depths, colours))
    assert found.colours[16, 14].tolist() == pytest.approx([254, 1, 1], abs=2)
    assert found.colours[16, 26].tolist() == [128, 128, 128]
    assert found.depths[16, 26] == 5.0
    assert found.depths[16, 14] == pytest.approx(3.0, abs=0.1)


# Lens, exposure, noise


def test_a_distorted_camera_sees_a_splat_where_its_model_says():
    camera = CameraModel(120, 90, 60.0, 60.0, 59.5, 44.5, (-0.25, 0.06, 0.002, -0.001, 0.0))
    for y, z in ((0.0, 0.0), (1.6, 1.0), (-2.4, -1.2), (2.0, -1.5)):
        found = picture(splat((4.0, y, z), 0.06, 0.99, (1.0, 1.0, 1.0)), camera).colours[..., 0].astype(float)
        v, u = np.indices(found.shape)
        middle = (found * u).sum() / found.sum(), (found * v).sum() / found.sum()
        assert middle == pytest.approx(camera.project(-y, -z, 4.0), abs=0.15)


@pytest.mark.parametrize(
    "distortion", [(-0.3, 0.1, 0.0, 0.0, 0.0), (0.2, 0.0, 0.001, 0.0, 0.0), (-0.9, 0.0, 0.0, 0.0, 0.0)]
)
def test_a_lens_is_never_much_larger_than_its_image(distortion):
    lens = lens_of(CameraModel(64, 48, 40.0, 40.0, 31.5, 23.5, distortion))
    assert lens.size == (48, 64)
    assert lens.canvas.width <= 3 * 64
    assert lens.canvas.height <= 3 * 48


def test_gain_scales_and_saturates():
    rows = splat(scale=2.0, opacity=0.9999, colour=(0.5, 0.25, 0.9))
    plain, bright = picture(rows).colours[16, 24], picture(rows, exposure=Exposure(gain=1.5)).colours[16, 24]
    assert bright.tolist() == pytest.approx([min(1.5 * value, 255) for value in plain.tolist()], abs=1.5)


def test_noise_has_its_sigma_and_follows_key_and_tick():
    grey = Sky((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    size = CameraModel(100, 80, 50.0, 50.0, 50.0, 40.0) if COMPILED else CAMERA

    def noisy(key, tick):
        exposure = Exposure(1.0, 6.0, key, tick)
        return picture(splat()[:0], size, sky=grey, exposure=exposure).colours.astype(float)

    first = noisy(11, 3)
    assert first.mean() == pytest.approx(127.5, abs=1.0)
    assert first.std() == pytest.approx(6.0, abs=0.4)
    assert abs(np.corrcoef(first[..., 0].ravel(), first[..., 1].ravel())[0, 1]) < 0.1
    assert (first == noisy(11, 3)).all()
    assert (first != noisy(11, 4)).mean() > 0.8
    assert (first != noisy(12, 3)).mean() > 0.8


@settings(max_examples=many(25, 3))
@given(
    st.lists(st.tuples(*[st.floats(-4, 8)] * 3, st.floats(-12, 3), st.floats(-6, 12)), min_size=1, max_size=12),
    st.integers(0, 1000),
)
def test_any_scene_gives_a_picture_of_finite_numbers(numbers, seed):
    rng = np.random.default_rng(seed)
    rows = np.zeros((len(numbers), 59), np.float32)
    for row, (x, y, z, scale, logit) in zip(rows, numbers, strict=True):
        row[:3], row[3:6], row[10] = (x, y, z), scale + rng.normal(0, 2, 3), logit
        row[6:10], row[11:] = rng.normal(size=4), rng.normal(size=48)
    scene = activate(rows)
    view = view_of(20, 18, (15.0, 15.0), (9.5, 8.5), (0.0, 0.0, 0.0), AHEAD)
    frame = Rasteriser(scene).render(view, np.zeros((18, 20, 3), np.float32), np.full((18, 20), np.inf, np.float32))
    assert np.isfinite(frame.colours).all()
    assert (frame.colours >= 0.0).all()
    assert ((frame.alphas >= 0.0) & (frame.alphas < 1.0)).all()
    assert (frame.depths >= 0.2 * 0.999 / SURFACE_SPREAD).all()
    assert (np.isfinite(frame.depths) == (frame.alphas >= 0.5)).all()


# Which back end


def test_without_a_gpu_the_cpu_draws_unless_a_gpu_was_asked_for(monkeypatch):
    monkeypatch.setattr(gpu, "device_name", lambda: None)
    scene, said = activate(splat()), []
    for asked in ("auto", "cpu"):
        assert isinstance(choice.open_renderer(scene, asked, say=said.append), CpuRenderer)
    assert said == []
    with pytest.raises(UsageError, match=r"no GPU can be used here .*\[gpu\]'.*`auto`"):
        choice.open_renderer(scene, "gpu")


def test_a_gpu_that_draws_something_else_is_not_used(monkeypatch):
    class Wrong(CpuRenderer):
        def pictures(self, shots):
            found = super().pictures(shots)
            found[0].colours[3, 4, 1] ^= 1
            return found

    monkeypatch.setattr(gpu, "device_name", lambda: "a GPU")
    monkeypatch.setattr(gpu, "GpuRenderer", Wrong)
    said = []
    renderer = choice.open_renderer(activate(splat()), say=said.append)
    assert type(renderer) is CpuRenderer
    assert "a GPU failed its test (1 values differ" in said[-1]


def test_a_gpu_that_breaks_is_not_used(monkeypatch):
    class Broken:
        def __init__(self, splats):
            raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu, "device_name", lambda: "a GPU")
    monkeypatch.setattr(gpu, "GpuRenderer", Broken)
    said = []
    assert isinstance(choice.open_renderer(activate(splat()), say=said.append), CpuRenderer)
    assert "out of memory" in said[-1]
    with pytest.warns(RuntimeWarning, match="out of memory.*on the CPU"):  # a program that listens nowhere
        choice.open_renderer(activate(splat()))
    with pytest.raises(UsageError, match="out of memory"):
        choice.open_renderer(activate(splat()), "gpu")


def test_the_gpu_has_the_constants_of_the_cpu():
    text = gpu.source()
    assert f"#define E5 ({float(np.float32(EXPONENTIAL[5])).hex()}f)" in text
    assert "#define DILATION (0x1.3333333333333p-2)" in text
