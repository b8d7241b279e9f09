"""Batches on a GPU against batches on the CPU, bit by bit. `make gpu` runs them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.batch import BatchSimulation
from microsim.errors import UsageError
from tests.gpu.both_devices import pair
from tests.parts.learning.task_runs import NAMES, OPTIONS, digest_of, random_actions
from tests.support import bare
from tests.unit.batch.device_scenarios import SOURCES, assert_complete, assert_same, drive, sensors_on_gpu
from tests.unit.batch.test_batch import scenario
from tests.unit.robots.test_plugin_robot import SLED

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="these tests need CuPy and a GPU")


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=5)
@given(n=st.integers(1, 400), dice=st.integers(0, 2**32), limit=st.sampled_from((0.5, 3.0, 20.0)))
def test_every_robot_and_sensor_has_the_cpus_bits(name: str, n: int, dice: int, limit: float) -> None:
    assert_complete()
    random = np.random.default_rng(dice)
    batches = pair(SOURCES[name], n, sensors=sensors_on_gpu(SOURCES[name]))
    assert_same(batches)
    for _ in range(5):
        if random.random() < 0.5:
            mask, first = random.random(n) < 0.4, int(random.integers(0, 10**9))
            for batch in batches:
                batch.reset(mask, seeds=np.arange(mask.sum()) + first)
        drive(batches, random, int(random.integers(0, 25)), limit)
        assert_same(batches)


def test_a_million_worlds_have_the_cpus_bits() -> None:
    robots = {
        name: bare(start={"map_pose": {"x": 5, "y": 6}}, scan={"hz": 10, "beams": 15}, gps={"hz": 10})
        for name in ("drone", "rover")
    }
    batches = pair(scenario(robots=robots), 1 << 20)
    drive(batches, np.random.default_rng(3), 60)
    assert_same(batches)


def test_instruments_read_on_the_cpu_and_their_readings_are_on_the_gpu() -> None:
    robots = {
        "drone": bare(
            start={"map_pose": {"x": 5, "y": 6, "z": 4}},
            camera={"hz": 10, "resolution": {"width": 32, "height": 24}, "sees_robots": True},
        ),
        "rover": bare(start={"map_pose": {"x": 8, "y": 6}}, lidar={"hz": 10, "rings": 2, "columns": 16}),
    }
    batches = pair(scenario(robots=robots), 4)
    drive(batches, np.random.default_rng(5), 20)
    batches[0].reset([1])
    batches[1].reset([1])
    drive(batches, np.random.default_rng(6), 12)
    assert_same(batches)
    image, points = batches[1].readings["drone/camera"], batches[1].readings["rover/lidar"]
    assert image.get().tobytes() == batches[0].readings["drone/camera"].tobytes()
    assert points.get().tobytes() == batches[0].readings["rover/lidar"].tobytes()
    assert image.any()


def test_snapshots_forks_and_restores_go_on_alike() -> None:
    batches = pair(SOURCES["random"], 50, sensors=sensors_on_gpu(SOURCES["random"]))
    random = np.random.default_rng(7)
    drive(batches, random, 23)
    chosen = [4, 1, 17, 30]
    snapshots, twins = [each.snapshot(chosen) for each in batches], [each.fork(chosen) for each in batches]
    drive(batches, random, 31)
    drive(twins, random, 31)
    assert twins[1].device == "cuda"
    assert_same(twins)
    for batch, snapshot in zip(batches, snapshots, strict=True):
        batch.restore(snapshot, [2, 3, 4, 5])
    drive(batches, random, 9)
    assert_same(batches)


def test_a_plugin_robot_without_the_decorator_runs_there(tmp_path: Path) -> None:
    (tmp_path / "sledge.py").write_text(SLED.replace('"sled"', '"sledge"') + "\nROBOT = Sled\n")
    robots = {"sledge": bare(start={"map_pose": {"x": 2, "y": 3}}, odom={"hz": 60})}
    batches = pair({**scenario(robots=robots), "plugins": [str(tmp_path)]}, 33)
    drive(batches, np.random.default_rng(1), 40)
    assert_same(batches)


def test_a_kernel_that_a_gpu_cannot_run_leaves_the_batch_on_the_cpu(tmp_path: Path) -> None:
    code = SLED.replace('"sled"', '"sledge"').replace(
        "    expire(robot", "    room = np.zeros(int(command.v)); expire(robot"
    )
    assert "np.zeros" in code
    (tmp_path / "sledge.py").write_text("import numpy as np\n" + code + "\nROBOT = Sled\n")
    robots = {"sledge": bare(start={"map_pose": {"x": 2, "y": 3}})}
    with pytest.raises(UsageError, match="the GPU cannot run this scenario"):
        BatchSimulation({**scenario(robots=robots), "plugins": [str(tmp_path)]}, 3, device="cuda")
    with pytest.warns(RuntimeWarning, match="the GPU cannot run this scenario .*: the batch runs on the CPU"):
        batch = BatchSimulation({**scenario(robots=robots), "plugins": [str(tmp_path)]}, 3, device="auto")
    assert batch.device == "cpu"


def test_torch_jax_and_cupy_share_the_memory() -> None:
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    batch = BatchSimulation(SOURCES["flat"], 64, device="cuda", sensors=["rover/scan"])
    commands = torch.from_dlpack(batch.commands("rover"))
    commands[0] = 1.5
    assert (batch.commands("rover")[0] == 1.5).all()
    x, scan = torch.from_dlpack(batch.state("rover")["x"]), torch.as_tensor(batch.readings["rover/scan"], device="cuda")
    before = x.clone()
    batch.step(12)
    assert (x != before).all()
    assert scan.data_ptr() == batch.readings["rover/scan"].data.ptr
    y = jax.dlpack.from_dlpack(batch.state("rover")["y"])
    np.testing.assert_array_equal(np.asarray(y), batch.state("rover")["y"].get())
    batch.reset(torch.arange(64, device="cuda") < 3)
    assert batch.tick[:5].tolist() == [0, 0, 0, 12, 12]


@pytest.mark.parametrize("task", NAMES)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_environments_on_a_gpu_give_the_cpus_numbers_as_tensors(task: str, mode: str) -> None:
    import gymnasium
    import torch

    n = 6 if task in ("CameraRover", "LaneKeeping") else 200
    options: Any = {"num_envs": n, "max_episode_steps": 15, "autoreset_mode": mode, **OPTIONS.get(task, {})}
    cpu, gpu = (
        gymnasium.make_vec(f"microsim.parts.learning:MicroSim/{task}-v0", device=device, **options)
        for device in ("cpu", "cuda")
    )
    found, expected = gpu.reset(seed=5), cpu.reset(seed=5)
    dice = np.random.default_rng(0)
    for _ in range(40):
        assert_equal_tensors(found, expected)
        actions = random_actions(dice, cpu.action_space.shape)
        found, expected = gpu.step(torch.as_tensor(actions, device="cuda")), cpu.step(actions)


def assert_equal_tensors(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = found.values(), expected.values()
    if isinstance(expected, np.ndarray):
        assert found.is_cuda
        np.testing.assert_array_equal(found.cpu().numpy(), expected)
        return
    for one, other in zip(found, expected, strict=True):
        assert_equal_tensors(one, other)


@pytest.mark.parametrize("task", NAMES)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**40))
def test_tasks_have_the_cpus_states_rewards_and_ends(task: str, seed: int) -> None:
    n = 4 if task in ("CameraRover", "LaneKeeping") else 150
    assert digest_of(task, "cuda", n, 12, seed) == digest_of(task, "cpu", n, 12, seed)
