"""Plain cameras of batches, drawn on a GPU, against the CPU's images, byte by byte. `make gpu` runs them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.batch import BatchSimulation
from microsim.render.renderer_choice import render_request
from tests.gpu.both_devices import pair
from tests.support import bare
from tests.unit.batch.camera_scenarios import FEATURES, random_source
from tests.unit.batch.device_scenarios import assert_same, drive
from tests.unit.batch.test_batch import HILLS, scenario
from tests.unit.batch.test_splats_of_many_worlds import MOVED
from tests.unit.sensors.test_splat_cameras import scenario as splat_scenario

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="these tests need CuPy and a GPU")


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), dice=st.integers(0, 2**32))
def test_random_cameras_have_the_cpus_images(n: int, dice: int) -> None:
    random = np.random.default_rng(dice)
    batches = pair(random_source(random, 70), n)
    assert_same(batches)
    for _ in range(4):
        if random.random() < 0.4:
            mask = random.random(n) < 0.5
            for batch in batches:
                batch.reset(mask, seeds=np.arange(mask.sum()) + 50)
        drive(batches, random, int(random.integers(0, 25)))
        assert_same(batches)


def many_cameras(ground: str) -> dict[str, Any]:
    camera = {"hz": 10, "resolution": {"width": 64, "height": 64}, "noise": {"color_jitter": 0.1}}
    start = {"map_pose": {"x": 5, "y": 6, "z": 4}}
    randomize = {"starts": {"drone": {"x": [1, 19], "y": [1, 19], "z": [1, 8], "yaw": [-3, 3]}}}
    if ground == "random":
        randomize["obstacles"] = {"shift_m": 5, "keep_probability": 0.8}
    more = {"map": HILLS} if ground == "hills" else {}
    drone = bare(start=start, camera=camera)
    return scenario(robots={"drone": drone}, features=FEATURES, randomize=randomize, **more)


@pytest.mark.parametrize("ground", ["flat", "hills", "random"])
def test_4096_cameras_have_the_cpus_images(ground: str) -> None:
    batches = pair(many_cameras(ground), 4096)
    for ticks in (7, 30):
        drive(batches, np.random.default_rng(ticks), ticks)
        assert_same(batches)
    images = batches[1].readings["drone/camera"]
    assert hasattr(images, "__cuda_array_interface__")
    assert len(np.unique(images.get().reshape(4096, -1), axis=0)) > 3000


def test_images_are_drawn_in_groups_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.batch.camera_columns.ROOM_BYTES", 1 << 20)
    batches = pair(many_cameras("hills"), 100)
    drive(batches, np.random.default_rng(2), 20)
    assert_same(batches)


def test_torch_shares_the_images() -> None:
    import torch

    batch = pair(many_cameras("flat"), 50)[1]
    images = torch.from_dlpack(batch.readings["drone/camera"])
    batch.step(30)
    assert images.is_cuda
    assert images.any()
    assert images.data_ptr() == batch.readings["drone/camera"].data.ptr


def test_forks_and_restores_keep_frames_on_their_way() -> None:
    batches = pair(many_cameras("random"), 40)
    random = np.random.default_rng(7)
    drive(batches, random, 13)  # frames of tick 12 are on their way
    snapshots, twins = [each.snapshot([4, 1, 17]) for each in batches], [each.fork([4, 1, 17]) for each in batches]
    drive(batches, random, 31)
    drive(twins, random, 31)
    assert_same(twins)
    for batch, snapshot in zip(batches, snapshots, strict=True):
        batch.restore(snapshot, [2, 3, 4])
    drive(batches, random, 9)
    assert_same(batches)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("more", [{}, MOVED], ids=["alike", "with obstacles of their own"])
def test_splats_of_many_worlds_have_the_cpus_images(
    device: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = []
    for choice, place in (("cpu", "cpu"), ("gpu", device)):
        monkeypatch.setattr(render_request, "choice", choice)
        batches.append(BatchSimulation(splat_scenario(**more), 24, device=place))
    assert batches[1].device == device
    for ticks in (17, 40):
        drive(batches, np.random.default_rng(ticks), ticks)
        assert_same(batches)
    first, second = (batch.loops.host(batch.readings["ego/camera_front"]) for batch in batches)
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first.reshape(24, -1), axis=0)) > 10
