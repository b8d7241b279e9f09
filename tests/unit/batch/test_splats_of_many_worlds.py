"""Splat cameras of a batch: all worlds that are due in one call, and the bytes of single worlds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.batch.host_loops import HostLoops
from microsim.render.splat.picture import CpuRenderer, Shot
from microsim.sensors import _splat_camera as splat_cameras
from tests.unit.batch.camera_scenarios import ThreadsOnCpu
from tests.unit.batch.device_scenarios import assert_same, drive
from tests.unit.sensors.test_splat_cameras import images, scenario

CAMERA = "ego/camera_front"
BOX = {"type": "box", "center": [-9.0, 0.0, 0.0], "size": [1.0, 2.0, 2.0]}
MOVED = {"obstacles": [BOX], "randomize": {"obstacles": {"shift_m": 3, "keep_probability": 0.7}}}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call drew."""
    counts: list[int] = []
    original = CpuRenderer.pictures

    def pictures(self: CpuRenderer, shots: Sequence[Shot]) -> Any:
        counts.append(len(shots))
        return original(self, shots)

    monkeypatch.setattr(CpuRenderer, "pictures", pictures)
    return counts


def test_all_worlds_that_are_due_are_drawn_in_one_call(drawn: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = BatchSimulation(scenario(), 5)
    drawn.clear()
    batch.step(40)
    assert drawn == [5]
    together = batch.readings[CAMERA].copy()
    camera: Any = batch.scenario.robots["ego"].all_sensors()["camera_front"]
    size = camera.resolution
    monkeypatch.setattr(splat_cameras, "MOST_PIXELS", 2 * size.width * size.height)
    batch.reset()
    drawn.clear()
    batch.step(40)
    assert drawn == [2, 2, 1]
    np.testing.assert_array_equal(batch.readings[CAMERA], together)


@pytest.mark.parametrize("render", [{}, {"depth": True, "segmentation": True}], ids=["image", "labels"])
def test_worlds_with_obstacles_of_their_own_share_what_draws_them(render: dict[str, bool], drawn: list[int]) -> None:
    source = scenario({"render": {"type": "splat", **render}}, **MOVED)
    batch = BatchSimulation(source, seeds=[3, 4, 5])
    batch.commands("ego")[1] = 5.0, -2.0, 1.0
    drawn.clear()
    batch.step(40)
    assert drawn == ([1, 1, 1] if render else [3])
    readings = batch.readings[CAMERA]
    for world, speed in enumerate((5.0, -2.0, 1.0)):
        single = microsim.Simulation(source, 3 + world)
        single.command("ego", speed=speed)
        sent = single.step(40)
        np.testing.assert_array_equal(readings[world][..., :3], images(sent)[-1])
        if render:
            np.testing.assert_array_equal(readings[world][..., 7:], images(sent, "segmentation")[-1])


class OnGpu:
    """An image that is not NumPy's."""

    def __init__(self, image: Any) -> None:
        self.image = image

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.image


class Gpu:
    """Draws as the CPU does; its images can stay where they are, unless it `is_lost`."""

    def __init__(self, splats: Any, *_: Any) -> None:
        self.cpu, self.stayed, self.is_lost = CpuRenderer(splats), 0, False

    def pictures(self, shots: Sequence[Shot]) -> Any:
        return self.cpu.pictures(shots)

    def images(self, shots: Sequence[Shot]) -> list[OnGpu]:
        if self.is_lost:
            raise RuntimeError("the device is lost")
        self.stayed += len(shots)
        return [OnGpu(picture.colours) for picture in self.cpu.pictures(shots)]


@pytest.mark.parametrize("camera", [{}, {"render": {"type": "splat", "depth": True}}, {"noise": {"blur_sigma_px": 1}}])
def test_finished_images_stay_on_the_gpu_of_a_batch(camera: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Gpu] = []

    def open_gpu(*arguments: Any) -> Gpu:
        opened.append(Gpu(*arguments))
        return opened[-1]

    monkeypatch.setattr(splat_cameras, "open_renderer", open_gpu)
    batches = [BatchSimulation(scenario(camera), 3, device=loops) for loops in (HostLoops(), ThreadsOnCpu())]
    dice = np.random.default_rng(1)
    for ticks in (20, 15, 20):
        drive(batches, dice, ticks)
        assert_same(batches)
        np.testing.assert_array_equal(*[batch.readings[CAMERA] for batch in batches])
        for batch in batches:
            batch.reset([1])
        assert_same(batches)
        opened[-1].is_lost = ticks == 15
    assert opened[0].stayed == 0
    assert (opened[-1].stayed > 0) == (camera == {})
    twins = [batch.fork([2, 0]) for batch in batches]
    assert_same(twins)
    np.testing.assert_array_equal(*[batch.readings[CAMERA] for batch in twins])
