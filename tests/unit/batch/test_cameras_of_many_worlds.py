"""Plain cameras as a GPU draws them, against the CPU's images. `test_devices` runs the same in numba's simulator."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation, camera_columns, camera_kernels, device_choice
from microsim.batch.camera_columns import CameraColumns
from microsim.batch.host_loops import HostLoops
from microsim.engine.compiled import kernel
from microsim.engine.world import World
from microsim.errors import UsageError
from microsim.render.palette_camera import CameraModel
from microsim.render.relief import patch_span, relief_depth, relief_depths, world_terrain
from microsim.render.screen import bounds, fill_span, screen_index
from tests.support import bare, many
from tests.unit.batch.camera_scenarios import SOURCES, ThreadsOnCpu, random_source
from tests.unit.batch.device_scenarios import assert_same, drive
from tests.unit.batch.test_batch import scenario
from tests.unit.sensors.test_lidar import rough


def pair(source: Any, n: int) -> list[BatchSimulation]:
    return [BatchSimulation(source, n, device=loops) for loops in (HostLoops(), ThreadsOnCpu())]


@settings(max_examples=many(12, 1), deadline=None)
@given(n=st.integers(1, 4), dice=st.integers(0, 2**32))
def test_threads_of_a_gpu_draw_the_cpus_images(n: int, dice: int) -> None:
    random = np.random.default_rng(dice)
    batches = pair(random_source(random, many(40, 4)), n)
    for _ in range(4):
        if random.random() < 0.4:
            mask = random.random(n) < 0.5
            for batch in batches:
                batch.reset(mask, seeds=np.arange(mask.sum()) + 50)
        drive(batches, random, int(random.integers(0, 25)))
        assert_same(batches)


@pytest.mark.parametrize("name", SOURCES)
def test_frames_on_their_way_survive_forks_and_restores(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(camera_columns, "ROOM_BYTES", 1)  # one frame is drawn at a time
    batches, random = pair(SOURCES[name], 3), np.random.default_rng(3)
    drive(batches, random, 13)
    assert all(images.any() for images in batches[1].readings.values())
    snapshots, twins = [each.snapshot([2, 0]) for each in batches], [each.fork([2, 0]) for each in batches]
    drive(batches, random, 8)
    drive(twins, random, 8)
    assert_same(twins)
    for batch, snapshot in zip(batches, snapshots, strict=True):
        batch.restore(snapshot)
        batch.advance(5)
    drive(batches, random, 8)
    assert_same(batches)


@pytest.mark.parametrize(
    ("camera", "is_drawn"),
    [
        ({}, True),
        ({"projection": "fisheye"}, True),
        ({"sees_robots": True}, False),
        ({"appearance": {"rain": 0.5}}, False),
        ({"readout_s": 0.03}, False),
        ({"render": {"depth": True}}, False),
    ],
)
def test_what_a_gpu_cannot_draw_is_read_on_the_cpu(camera: dict[str, Any], is_drawn: bool) -> None:
    given = {"hz": 10, "resolution": {"width": 4, "height": 3}, **camera}
    starts = [{"map_pose": {"x": x, "y": 6}} for x in (3, 6)]
    robots = {"drone": bare(start=starts[0], camera=given), "rover": bare(start=starts[1])}
    batches = pair(scenario(robots=robots), 2)
    assert isinstance(batches[1]._sensors["drone/camera"], CameraColumns) == is_drawn
    for ticks in (20, 3, 9):
        drive(batches, np.random.default_rng(ticks), ticks)
        assert_same(batches)
        for batch in batches:
            batch.reset([1])
        assert_same_images(batches)
    snapshots = [batch.snapshot() for batch in batches]
    drive(batches, np.random.default_rng(2), 30)
    for batch, snapshot in zip(batches, snapshots, strict=True):
        batch.restore(snapshot)
    assert_same_images(batches)


def assert_same_images(batches: list[BatchSimulation]) -> None:
    """As users get them: on the device."""
    first, second = (batch.readings["drone/camera"] for batch in batches)
    np.testing.assert_array_equal(first, second)
    assert first[0].any()
    assert not first[1].any()


def test_a_camera_without_a_finite_pose_is_refused_by_name() -> None:
    batch = pair(SOURCES["cameras on hills"], 2)[1]
    batch.rows("drone")[0, 1] = np.nan
    with pytest.raises(ValueError, match="drone/camera: the camera's pose is not finite"):
        batch.step(60)


class OneByteOff(ThreadsOnCpu):
    """A GPU that draws one pixel in another colour."""

    images: Any = None

    def launch(self, count: int, make: Any, constants: Any, *arguments: int) -> None:
        super().launch(count, make, constants, *arguments)
        if constants == (camera_kernels.finish_pixel,):
            self.images[-1, 0, 0, 0] = 7  # the first worlds are reset at the end of the self-test


def test_a_gpu_that_draws_one_byte_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CameraColumns.prepare

    def prepare(self: Any) -> None:
        original(self)
        self.loops.images = self.readings

    monkeypatch.setattr(CameraColumns, "prepare", prepare)
    monkeypatch.setattr(device_choice, "cuda_loops", OneByteOff)
    monkeypatch.setattr(device_choice, "_proven", set())
    reason = r"does not give the CPU's bits \(1 bytes of drone/camera:readings"
    with pytest.raises(UsageError, match=reason):
        BatchSimulation(SOURCES["cameras on hills"], 2, device="cuda")
    with pytest.warns(RuntimeWarning, match=reason):
        assert BatchSimulation(SOURCES["cameras on hills"], 2, device="auto").device == "cpu"


@kernel
def _depths_by_pixel(pose: Any, rays: Any, screen: Any, ground: Any, blocks: Any, spans: Any, depths: Any) -> None:
    scale, columns, rows = screen
    patches, room = ground.holes.size, np.empty((3, 2, 2))
    for n in range(patches):
        patch_span(pose, scale, columns, rows, ground, n, room, spans[n])
    for n in range(patches, spans.shape[0]):
        block = blocks[(n - patches) // blocks.shape[1], (n - patches) % blocks.shape[1]]
        fill_span(scale, columns, rows, bounds(pose, block), spans[n])
    for v in range(depths.shape[0]):
        for u in range(depths.shape[1]):
            ray_x, ray_y = rays[0, v, u : u + 1], rays[1, v, u : u + 1]
            relief_depth(pose, ground, spans, ray_x, ray_y, v, u, depths[v, u : u + 1])


@pytest.mark.parametrize("holes", [0, 12])
def test_ground_pixel_by_pixel_is_that_of_patch_by_patch(holes: int) -> None:
    """Also where there are holes in it, which scenarios without a world bundle do not have."""
    model = CameraModel(many(40, 5), many(30, 4), 22.0, 25.0, 19.0, 14.0, (-0.1, 0.02, 0.0, 0.0, 0.0))
    rays, dice = model.rays(), np.random.default_rng(holes)
    for seed in range(many(12, 2)):
        heights = rough(seed, holes)
        world = World(0.5, heights, np.zeros(heights.shape, np.uint8), (), ())
        ground, blocks, _, _ = world_terrain(world)
        spans = np.empty((ground.holes.size + blocks.shape[0] * blocks.shape[1], 4), np.int32)
        turn, _ = np.linalg.qr(dice.normal(size=(3, 3)))
        pose = np.array([*dice.uniform(-5, 20, 2), dice.uniform(2, 20), *turn.reshape(-1)])
        found, expected = np.full((2, model.height, model.width), np.inf)
        with np.errstate(all="ignore"):
            relief_depths(pose, rays, screen_index(rays), ground, blocks, expected)
            _depths_by_pixel(pose, rays, screen_index(rays), ground, blocks, spans, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sees_robots", [False, True])
def test_ground_truth_of_a_batch_shows_the_robots_that_the_image_shows(sees_robots: bool) -> None:
    images = ("depth", "segmentation", "instances", "normals")
    own = {
        "hz": 10, "resolution": {"width": 16, "height": 12}, "sees_robots": sees_robots,
        "render": dict.fromkeys(images, True), "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
    }  # fmt: skip
    robots = {
        "rover": bare(start={"map_pose": {"x": 3, "y": 6, "yaw": 0}}, camera=own),
        "other": bare(model="rover", start={"map_pose": {"x": 4, "y": 6, "yaw": 0.3}}),
    }
    source = scenario(robots=robots, obstacles=[], map={"size_xy_cells": [20, 20]})
    seen = BatchSimulation(source, 1).images("rover/camera")
    sent = {message.topic: message.message for message in microsim.Simulation(source).step(0)}
    for name in images:
        message = sent[f"/rover/camera/{name}"]
        assert seen[name].tobytes() == bytes(message.data), name
    assert (seen["instances"] != 0).any() == sees_robots
