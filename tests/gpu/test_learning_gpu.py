"""Training and TorchRL with worlds on a GPU. `make gpu` runs them."""

from typing import Any

import numpy as np
import pytest

from tests.learning.test_adapters import assert_torchrl_shares_memory

pytestmark = pytest.mark.gpu

pytest.importorskip("cupy", reason="these tests need CuPy and a GPU")
torch = pytest.importorskip("torch")


def test_torchrl_uses_the_memory_of_the_batch() -> None:
    pytest.importorskip("torchrl")
    assert_torchrl_shares_memory("cuda")


def test_torchrl_rolls_out_the_cpus_episodes_and_resets_the_worlds_that_ended() -> None:
    pytest.importorskip("torchrl")
    from microsim.parts.learning.adapters.torchrl_env import TorchRlEnv

    actions = torch.as_tensor(np.random.default_rng(0).uniform(-1, 1, (15, 8, 4)).astype(np.float32))

    def rolled(device: str) -> Any:
        env, left = TorchRlEnv("Hover", 8, device, seed=3, max_episode_steps=6), iter(actions.to(device))
        return env.rollout(15, lambda seen: next(left), break_when_any_done=False)

    expected, found = rolled("cpu"), rolled("cuda")
    assert found.device.type == "cuda"
    assert expected["next", "truncated"].squeeze(-1)[0].nonzero().flatten().tolist() == [5, 11]
    for key in ("observation", ("next", "observation"), ("next", "reward"), ("next", "done")):
        assert torch.equal(found[key].cpu(), expected[key]), key


def test_a_mask_on_the_gpu_resets_its_worlds() -> None:
    from microsim.parts.learning import make_vec

    cpu, gpu = (make_vec("RoverAvoid", 6, device=device, autoreset=False) for device in ("cpu", "cuda"))
    mask = np.arange(6) % 2 == 0
    for env, chosen in ((cpu, mask), (gpu, torch.as_tensor(mask, device="cuda"))):
        env.reset(seed=4)
        env.step(torch.ones(6, 2).numpy())
        env.reset(options={"reset_mask": chosen})
    assert gpu.unwrapped.task.batch.seeds.get().tolist() == cpu.unwrapped.task.batch.seeds.tolist()
    assert gpu.unwrapped.task.batch.tick.tolist() == [0, 6, 0, 6, 0, 6]


@pytest.mark.parametrize("task", ["Hover", "CameraRover"])
def test_training_stays_on_the_gpu_and_the_same_seed_gives_the_same_weights(task: str) -> None:
    from microsim.parts.learning.ppo import Trainer

    few = {"worlds": 32, "rollout": 8, "steps": 32 * 8 * 3, "minibatch": 64, "target": 0.0, "check_every": 99}
    trainers = [Trainer(task, 1, device="cuda", settings=few) for _ in range(2)]
    before = trainers[0].policy()
    policies = [trainer.run() for trainer in trainers]
    assert trainers[0].worlds.task.batch.device == "cuda"
    assert {each.device.type for each in (*trainers[0].weights, trainers[0].rollout.seen)} == {"cuda"}
    weights = [[part.tobytes() for layer in each.layers for part in layer] for each in (before, *policies)]
    assert weights[0] != weights[1] == weights[2]
