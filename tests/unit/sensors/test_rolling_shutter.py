"""Rolling shutter: rows are read one after the other, while the robot moves on."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.engine.components import YAW, YAW_RATE
from microsim.engine.motion import AXES, FIELDS, FORWARD, TURN, moved
from microsim.errors import ScenarioError
from microsim.render.palette_camera import CameraModel
from microsim.render.splat.activation import activate
from microsim.render.splat.picture import CpuRenderer, Exposure, Shot, Sky, lens_of, strip_of
from microsim.sensors.camera import STRIP_ROWS
from tests.support import COMPILED, bare, decoded, scenario
from tests.unit.batch.batch_reference import Singles, assert_equal
from tests.unit.render import splat_scenes

FOCAL, WIDTH, HEIGHT, CX = 100.0, 120, 96, 59.5
READOUT_S = 0.08
CAMERA: dict[str, Any] = {
    "hz": 10,
    "resolution": {"width": WIDTH, "height": HEIGHT},
    "intrinsics": {"fx": FOCAL, "cx": CX, "cy": 47.5},
    "noise": {"blur_sigma_px": 0},
    "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
    "mount": {"xyz": [0, 0, 4], "rpy": [-math.pi / 2, 0, -math.pi / 2]},
}
WALL = [{"type": "box", "center": [12, 5, 0], "size": [1, 10, 8]}]  # from (4, 10), its left edge is in the direction 0


def source(readout_s: float | None = READOUT_S, yaw: float = -0.7) -> dict[str, Any]:
    start = {"map_pose": {"x": 4.0, "y": 10.0, "yaw": yaw}}
    rover = {**bare(camera={**CAMERA, "readout_s": readout_s}), "model": "rover", "start": start}
    return scenario(robots={"rover": rover}, obstacles=WALL)


def turning(readout_s: float | None) -> tuple[Any, float, float]:
    """The image in which the edge is nearest to the middle, yaw and turning rate at its stamp."""
    sim, best = microsim.Simulation(source(readout_s)), (math.inf, np.empty(0), 0.0, 0.0)
    for _ in range(90):
        sim.command("rover", **dict(zip(sim.model("rover").inputs, (0.0, 1.0), strict=True)))
        for sent in decoded(sim.step(1), "/rover/camera/image_raw"):
            rows = sim.rows("rover")
            if abs(rows[YAW]) < best[0]:
                best = abs(rows[YAW]), sent.data.reshape(HEIGHT, WIDTH, 3), rows[YAW], rows[YAW_RATE]
    return best[1:]


def edges(image: Any) -> Any:
    """The first column of each row that shows the wall."""
    return np.argmax((image == image[40, -1]).all(axis=2), axis=1)


@pytest.mark.parametrize("readout_s", [None, READOUT_S])
def test_a_vertical_edge_is_skewed_by_the_turning_rate_times_the_time_of_its_row(readout_s: float | None) -> None:
    image, yaw, rate = turning(readout_s)
    assert rate > 0.9
    rows = np.arange(HEIGHT)
    middles = (rows // STRIP_ROWS + 0.5) * STRIP_ROWS  # a strip is drawn as its middle is
    delay = (readout_s or 0.0) * (middles / HEIGHT - 0.5)
    wanted = CX + FOCAL * np.tan(yaw + rate * delay)
    np.testing.assert_allclose(edges(image), wanted, atol=1.0)
    skew = edges(image)[-STRIP_ROWS:].mean() - edges(image)[:STRIP_ROWS].mean()
    whole = FOCAL * rate * (readout_s or 0.0) * (1.0 - STRIP_ROWS / HEIGHT)
    assert skew == pytest.approx(whole, abs=1.0)


def test_a_camera_that_stands_still_sees_what_it_would_see_at_once() -> None:
    first = [decoded(microsim.Simulation(source(each)).step(0), "/rover/camera/image_raw")[0] for each in (None, 0.05)]
    np.testing.assert_array_equal(first[0].data, first[1].data)
    assert first[0].header == first[1].header
    assert "readout_s" not in microsim.Simulation(source(None)).scenario.model_dump()["robots"]["rover"]["camera"]


def test_a_batch_sees_what_single_worlds_see() -> None:
    seeds = np.arange(2)
    batch, singles = BatchSimulation(source(), 2, seeds=seeds), Singles(source(), seeds)
    for _ in range(3):
        commands = np.array([[0.3, 0.5], [1.0, -1.0]])
        batch.commands("rover")[:] = commands
        singles.command("rover", commands)
        batch.step(6)
        singles.step(6)
        assert_equal(batch, singles)


def test_a_robot_that_keeps_turning_moves_along_a_circle() -> None:
    motion = [0.0] * FIELDS
    motion[:3] = [1.0, 2.0, 0.5]
    motion[AXES : AXES + 9] = [1, 0, 0, 0, 1, 0, 0, 0, 1]
    motion[FORWARD], motion[TURN] = 8.0, 0.5
    position, rotation = moved(motion, (1.0, 2.0, 1.5), ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0)), 0.04)
    angle = 0.5 * 0.04
    circle = 1.0 + 16.0 * math.sin(angle), 2.0 + 16.0 * (1.0 - math.cos(angle)), 1.5
    np.testing.assert_allclose(position, circle, atol=1e-5)
    np.testing.assert_allclose([row[2] for row in rotation], [math.cos(angle), math.sin(angle), 0.0], atol=1e-15)


@pytest.mark.skipif(not COMPILED, reason="minutes as plain Python; the compiled run covers the same lines")
@pytest.mark.parametrize("kind", ["pinhole", "distorted", "fisheye"])
def test_strips_of_splats_make_the_picture_that_is_drawn_at_once(kind: str) -> None:
    bends = {"pinhole": (0.0,) * 5, "distorted": (-0.2, 0.05, 0.001, -0.001, 0.0), "fisheye": (-0.03, 0.02, 0.0, 0.0)}
    scene = splat_scenes.Shot(splat_scenes.yard(1500))
    focal = (24.0, 25.0) if kind == "fisheye" else scene.focal
    model = CameraModel(*scene.size, *focal, *scene.principal, bends[kind], is_fisheye=kind == "fisheye")
    sky, exposure = Sky((0.7, 0.8, 0.9), (0.2, 0.4, 0.8)), Exposure(1.0, 4.0, 99, 3)
    shot = Shot(lens_of(model), scene.position, scene.rotation, sky, exposure)
    renderer = CpuRenderer(activate(scene.rows))
    whole = renderer.pictures([shot])[0]
    ranges = [(begin, min(begin + 16, 60)) for begin in range(0, 60, 16)]
    strips = renderer.pictures([replace(shot, lens=strip_of(shot.lens, *each)) for each in ranges])
    colours = np.vstack([each.colours for each in strips]).astype(int)
    assert np.abs(colours - whole.colours).max() <= 1
    depths = np.vstack([each.depths for each in strips])
    same = np.isclose(depths, whole.depths, rtol=1e-3) | (np.isinf(depths) & np.isinf(whole.depths))
    assert same.mean() > 0.999


def test_rows_cannot_be_read_for_longer_than_a_frame_lasts() -> None:
    with pytest.raises(ScenarioError, match=r"camera.readout_s: expected at most 1 / hz, which is 0.1, found 0.2"):
        microsim.Simulation(source(0.2))
