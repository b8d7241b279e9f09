"""The learning example, in short: a policy gets better, and drives the same way through ROS 2 messages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import microsim
from microsim.learning.tasks.rover_avoid import RoverAvoid
from microsim.ros2.microsim_node import start_node
from microsim.ros2.transport.memory import Bus, MemoryTransport
from tests.support import COMPILED

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "rl"
pytestmark = pytest.mark.skipif(not COMPILED, reason="whole episodes take too long with kernels as plain Python")


def example(name: str) -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location(f"rl_example_{name}", FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


def test_a_short_training_gets_better_and_writes_what_it_found(tmp_path: Path) -> None:
    train, policy = example("train_rover_avoid"), example("policy")
    out = tmp_path / "policy.npz"
    short = ["--generations", "14", "--population", "24", "--worlds", "16", "--unseen", "50", "--threads", "2"]
    train.main([*short, "--out", str(out)])
    with np.load(out) as stored:
        rewards = stored["curve"][:, 1]
    assert rewards[-3:].mean() > rewards[:3].mean() + 3.0
    assert policy.load(out).shape == (policy.SIZE,)
    assert out.with_suffix(".png").stat().st_size > 10_000


def test_training_is_the_same_again() -> None:
    train, policy = example("train_rover_avoid"), example("policy")
    weights = np.random.default_rng(1).normal(0, 0.3, (2, policy.SIZE))
    runs = [train.Course(2, 5, threads).run(weights, 77)[0] for threads in (1, 2)]
    np.testing.assert_array_equal(*runs)


def test_the_trained_policy_crosses_most_fields_it_has_never_seen() -> None:
    train, policy = example("train_rover_avoid"), example("policy")
    _, arrived = train.judge(policy.load(FOLDER / "rover_avoid.npz"), 200, 2)
    assert arrived > 0.7


@pytest.mark.parametrize("seed", [7, 8])
def test_over_ros_2_the_policy_sees_and_does_what_it_does_in_the_batch(seed: int) -> None:
    drive, policy = example("drive_rover_avoid"), example("policy")
    weights = policy.load(FOLDER / "rover_avoid.npz")
    task = RoverAvoid(1)
    task.reset(seeds=np.array([seed]))
    bus = Bus()
    node = start_node(
        MemoryTransport("microsim", (), bus), microsim.load_scenario(drive.scenario_with_odometry()), seed
    )
    driver = drive.Driver(MemoryTransport("driver", bus=bus), weights, drive.goal_of(seed))
    np.testing.assert_array_equal(driver.goal, task.goal[:, 0])
    node.runner.pause(True)
    node.publish(node.sim.step(0))
    for _ in range(60):
        driver.transport.poll()
        np.testing.assert_allclose(driver.last_seen, task.observe()[0], atol=1e-6)
        actions = policy.actions(weights[None], task.observe()[None].astype(np.float64))[0]
        node.transport.poll()
        node.runner.step(task.ticks)
        task.act(actions)
        np.testing.assert_allclose(node.sim.rows("rover")[:2], task.batch.rows("rover")[:2, 0], atol=1e-6)
        if task.judge().ended[0]:
            break
