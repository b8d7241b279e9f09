"""One world, a vector, a batch and a GPU give the same states, observations, rewards and ends, for every task."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation
from microsim.parts.learning import env_id, find_task
from tests.parts.learning.task_runs import NAMES, OPTIONS, digest_of, random_actions
from tests.support import COMPILED

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not COMPILED, reason="whole episodes take too long with kernels as plain Python")
N = 3


def same(found: Any, expected: Any, where: Any = slice(None)) -> None:
    if isinstance(expected, dict):
        for key in expected:
            same(found[key], expected[key], where)
    else:
        np.testing.assert_array_equal(found[where], expected[where])


def same_info(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """What both report of a world is the same; single environments report success in every step, and names."""
    for key, value in found.items():
        if key == "final_info":
            same_info(value, expected[key])
        elif key == "final_obs":
            for world in found["_final_obs"].nonzero()[0]:
                same(found[key][world], expected[key][world])
        elif not key.startswith("_") and (there := found[f"_{key}"]).any():
            assert expected[f"_{key}"][there].all()
            same(np.asarray(value), np.asarray(expected[key]), there)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_vector_does_what_gymnasiums_own_does_with_single_environments(name: str, data: Any) -> None:
    """Through ends, cuts and new episodes, in each of Gymnasium's modes."""
    mode = data.draw(st.sampled_from(list(AutoresetMode)))
    seed, dice = data.draw(st.integers(0, 2**40)), np.random.default_rng(data.draw(st.integers(0, 99)))
    options: Any = {"max_episode_steps": 7, **OPTIONS.get(name, {})}
    vector: Any = gymnasium.make_vec(env_id(name), num_envs=N, threads=2, autoreset_mode=mode, **options)
    kwargs = {"autoreset_mode": mode}
    singles: Any = gymnasium.make_vec(env_id(name), N, vectorization_mode="sync", vector_kwargs=kwargs, **options)
    assert vector.metadata["autoreset_mode"] == mode
    same(vector.reset(seed=seed)[0], singles.reset(seed=seed)[0])
    for _ in range(18):
        actions = random_actions(dice, vector.action_space.shape)
        found, expected = vector.step(actions), singles.step(actions)
        for one, other in zip(found[:4], expected[:4], strict=True):
            same(one, other)
        same_info(found[4], expected[4])
        over = found[2] | found[3]
        if mode == AutoresetMode.DISABLED and over.any():
            same(*(env.reset(options={"reset_mask": over})[0] for env in (vector, singles)))
    vector.close()
    singles.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_world_of_a_vector_is_the_batch_and_the_simulation_with_its_seed(name: str) -> None:
    options = OPTIONS.get(name, {})
    task: Any = find_task(name)(2, **options)
    task.reset(seeds=np.array([21, 22]))
    scenario = task.scenario(**options)
    batch, single = BatchSimulation(scenario, seeds=[21, 22], sensors=()), microsim.Simulation(scenario, 22)
    dice = np.random.default_rng(8)
    for _ in range(6):
        task.act(random_actions(dice, (2, task.action_size)))
        for robot in task.batch.robots:
            batch.commands(robot)[:] = task.batch.commands(robot)
            command = dict(zip(batch.inputs(robot), batch.commands(robot)[:, 1].tolist(), strict=True))
            if np.isfinite(list(command.values())).all():
                single.command(robot, **command)
        batch.step(task.ticks)
        single.advance(task.ticks)
        for robot in task.batch.robots:
            same(batch.rows(robot), task.batch.rows(robot))
            assert single.rows(robot) == task.batch.rows(robot)[:, 1].tolist()


# The loops of a GPU run in numba's CUDA simulator, as plain Python: short, and the tasks that bring something new.
SIMULATED = ("Drive", "GateRace", "RoverAvoid", "Swarm")


def test_the_loops_of_a_gpu_give_the_same_rewards_and_ends() -> None:
    """`make gpu` compares all tasks on a real one."""
    code = (
        "import json; from microsim.batch import device_choice; device_choice.TEST_WORLDS = 2;"
        "from tests.parts.learning.task_runs import digest_of;"
        f"print(json.dumps({{name: digest_of(name, 'cuda', 2, 5) for name in {SIMULATED}}}))"
    )
    flags = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **flags}, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {name: digest_of(name, "cpu", 2, 5) for name in SIMULATED}
