"""Every adapter with its real library, in short: `make learning` has an environment of its own for them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.errors import UsageError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.learning


def test_stable_baselines3_learns_on_one_batch_and_the_worlds_are_those_of_the_vector() -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    from microsim.parts.learning.adapters.sb3_vec_env import Sb3VecEnv
    from microsim.parts.learning.environments import TaskVectorEnv

    env = Sb3VecEnv("Hover", 16, max_episode_steps=5)
    env.seed(7)
    seen = env.reset()
    vector = TaskVectorEnv("Hover", 16, max_episode_steps=5, autoreset_mode="SameStep")
    np.testing.assert_array_equal(seen, vector.reset(seed=7)[0])
    dice = np.random.default_rng(0)
    for step in range(1, 12):
        actions = dice.uniform(-1, 1, (16, 4)).astype(np.float32)
        seen, rewards, over, infos = env.step(actions)
        expected, gained, ended, cut, info = vector.step(actions)
        np.testing.assert_array_equal(seen, expected)
        np.testing.assert_array_equal(rewards, gained.astype(np.float32))
        np.testing.assert_array_equal(over, ended | cut)
        assert over.all() == (step % 5 == 0)
        if step % 5 == 0:
            np.testing.assert_array_equal(infos[3]["terminal_observation"], info["final_obs"][3])
            assert infos[3]["TimeLimit.truncated"]
            assert infos[3]["success"] == bool(info["final_info"]["success"][3])
        else:
            assert infos == [{}] * 16
    model = PPO("MlpPolicy", VecMonitor(env), n_steps=8, batch_size=64, n_epochs=1, device="cpu", seed=1)
    model.learn(256)
    assert model.num_timesteps == 256
    assert len(model.ep_info_buffer) >= 16


def test_torchrl_checks_the_environment_and_resets_the_worlds_that_ended() -> None:
    from torchrl.envs.utils import check_env_specs

    from microsim.parts.learning.adapters.torchrl_env import TorchRlEnv

    env = TorchRlEnv("Hover", 8, seed=3, max_episode_steps=6)
    check_env_specs(env)
    env.set_seed(5)
    rolled = env.rollout(15, break_when_any_done=False)
    assert rolled["next", "observation"].shape == (8, 15, 7)
    assert rolled["next", "truncated"].squeeze(-1)[0].nonzero().flatten().tolist() == [5, 11]
    assert not torch.equal(rolled["observation"][:, 6], rolled["next", "observation"][:, 5])  # another episode began
    for options in ({}, {"named": True}):  # images, also by name
        camera = TorchRlEnv("CameraRover", 2, seed=3, **options)
        check_env_specs(camera)
        seen = camera.rollout(2)["observation"]
        assert (seen["image"] if options else seen).dtype == torch.uint8


def assert_torchrl_shares_memory(device: str) -> None:
    """Actions, observations and flags of a step are those of the batch's environment, not copies."""
    from microsim.parts.learning.adapters.torchrl_env import TorchRlEnv

    env, passed = TorchRlEnv("Hover", 8, device, seed=3, copy=False, max_episode_steps=2), []
    step = env.worlds.step
    env.worlds.step = lambda actions: passed.append((actions, *step(actions))) or passed[-1][1:]
    data = env.reset()
    memory = torch.as_tensor(env.worlds.task.observe(), device=device).data_ptr()
    assert data["observation"].data_ptr() == memory
    for _ in range(2):
        data["action"] = torch.zeros(8, 4, device=device)
        after = env.step(data)["next"]
        found = [data["action"], after["observation"], after["terminated"], after["truncated"]]
        actions, seen, _, ended, cut, _ = (
            torch.as_tensor(each) if hasattr(each, "shape") else 0 for each in passed[-1]
        )
        assert after["observation"].data_ptr() == memory
        assert [each.data_ptr() for each in found] == [each.data_ptr() for each in (actions, seen, ended, cut)]
        assert all(each.device.type == device for each in found)
    assert after["truncated"].all()


def test_torchrl_uses_the_memory_of_the_batch() -> None:
    assert_torchrl_shares_memory("cpu")


def test_skrl_trains_and_its_tensors_are_those_of_the_batch(tmp_path: Path) -> None:
    from skrl.agents.torch.ppo import PPO
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    from microsim.parts.learning.adapters.skrl_env import SkrlEnv

    class Actor(GaussianMixin, Model):  # type: ignore[misc]
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            GaussianMixin.__init__(self)
            self.middle, self.log_std = torch.nn.Linear(7, 4), torch.nn.Parameter(torch.zeros(4))

        def compute(self, inputs: Any, role: str) -> Any:
            return self.middle(inputs["observations"]), {"log_std": self.log_std}

    class Critic(DeterministicMixin, Model):  # type: ignore[misc]
        def __init__(self, **spaces: Any) -> None:
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)
            self.value = torch.nn.Linear(7, 1)

        def compute(self, inputs: Any, role: str) -> Any:
            return self.value(inputs["observations"]), {}

    env = SkrlEnv("Hover", 8, seed=3)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    models = {"policy": Actor(**spaces), "value": Critic(**spaces)}
    before = models["policy"].middle.weight.detach().clone()
    experiment = {"directory": str(tmp_path), "write_interval": 0, "checkpoint_interval": 0}
    cfg = {"rollouts": 8, "learning_epochs": 1, "mini_batches": 1, "experiment": experiment}
    agent = PPO(models=models, memory=RandomMemory(memory_size=8, num_envs=8, device="cpu"), cfg=cfg, **spaces)
    SequentialTrainer(
        env=env,
        agents=agent,
        cfg={"timesteps": 16, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False},
    ).train()
    assert not torch.equal(models["policy"].middle.weight, before)

    shared = SkrlEnv("Hover", 8, seed=3, copy=False)
    shared.reset()
    seen, rewards, ended, cut, _ = shared.step(torch.zeros(8, 4))
    assert seen.data_ptr() == shared._env.task.observe().ctypes.data
    assert rewards.shape == ended.shape == cut.shape == (8, 1)


def test_rllib_makes_one_batch_of_the_registered_environment() -> None:
    ray = pytest.importorskip("ray")
    from ray.rllib.algorithms.ppo import PPOConfig

    ray.init(num_cpus=1, include_dashboard=False, configure_logging=False, log_to_driver=False)
    try:
        config = (
            PPOConfig()
            .environment("microsim.parts.learning:MicroSim/Hover-v0")
            .env_runners(num_env_runners=0, num_envs_per_env_runner=32, gym_env_vectorize_mode="vector_entry_point")
            .training(train_batch_size=512, minibatch_size=128, num_epochs=1)
        )
        algorithm = config.build_algo()
        result = algorithm.train()
        sampled = result["env_runners"]["num_env_steps_sampled"]
        assert sampled >= 512
        assert algorithm.env_runner.env.unwrapped.task.n == 32
        algorithm.stop()
    finally:
        ray.shutdown()


def test_a_vector_of_pettingzoo_worlds_equals_single_ones() -> None:
    from microsim.parts.learning.adapters.parallel_vector import ParallelVectorEnv
    from microsim.parts.learning.parallel import TaskParallelEnv

    many = ParallelVectorEnv("TeamTask", 3)
    seen, _ = many.reset(seed=20)
    one = TaskParallelEnv("TeamTask")
    alone, _ = one.reset(seed=21)
    dice = np.random.default_rng(2)
    for _ in range(20):
        actions: dict[str, Any] = {
            agent: dice.uniform(-1, 1, (3, *many.action_space(agent).shape)).astype(np.float32) for agent in many.agents
        }
        seen, rewards, ended, _, _ = many.step(actions)
        alone, gained, done, _, _ = one.step({agent: moves[1] for agent, moves in actions.items()})
        for agent in many.agents:
            np.testing.assert_array_equal(seen[agent][1], alone[agent])
            assert np.may_share_memory(seen["drone"], seen["rover"])
            assert rewards[agent][1] == gained[agent]
            assert ended[agent][1] == done[agent]
    with pytest.raises(UsageError, match="no actions of the agent 'rover'"):
        many.step({"drone": actions["drone"]})
    swarm = ParallelVectorEnv("Swarm", 2, agents=3)
    assert len(swarm.reset(seed=1)[0]) == swarm.num_agents == 3
    after = swarm.step({agent: np.ones((2, 2), np.float32) for agent in swarm.agents})
    assert all(rewards.shape == (2,) for rewards in after[1].values())
    with pytest.raises(UsageError, match="one learner"):
        ParallelVectorEnv("Hover", 2)
