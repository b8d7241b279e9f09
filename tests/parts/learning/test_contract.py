"""What Gymnasium and PettingZoo expect of environments, tested with the libraries themselves."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from pettingzoo.test import parallel_api_test, parallel_seed_test
from pettingzoo.test.render_test import collect_render_results
from pettingzoo.utils import parallel_to_aec

from microsim.errors import PluginError, UsageError
from microsim.parts.learning import TASKS, env_id, find_task, make_vec, register
from microsim.parts.learning.environments import TaskEnv
from microsim.parts.learning.parallel import TaskParallelEnv, TeamParallelEnv
from tests.parts.learning.task_runs import NAMES, OPTIONS, random_actions
from tests.support import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="whole episodes take too long with kernels as plain Python")
ZEROS = np.zeros((2, 4), np.float32)


def hovering(**options: Any) -> Any:
    return gymnasium.make_vec(f"microsim.parts.learning:{env_id('Hover')}", num_envs=2, **options)


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_passes_with_rendering(name: str) -> None:
    """For people too, with one of them: that opens the web viewer."""
    env: Any = gymnasium.make(env_id(name), **OPTIONS.get(name, {})).unwrapped
    if name != "Hover":
        env.metadata["render_modes"] = ["rgb_array"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", gymnasium.error.DeprecatedEnv)
        warnings.filterwarnings("error", "A Box .* space (minimum|maximum)")
        check_env(env)


@pytest.mark.parametrize("name", ["TeamTask", "Swarm"])
def test_pettingzoos_checkers_pass_with_rendering(name: str) -> None:
    parallel_api_test(TaskParallelEnv(name), num_cycles=100)
    parallel_seed_test(lambda: TaskParallelEnv(name), num_cycles=20)
    collect_render_results(parallel_to_aec(TaskParallelEnv(name, render_mode="rgb_array")))


def test_the_team_has_an_environment_of_its_own() -> None:
    team = TeamParallelEnv()
    seen, _ = team.reset(seed=3)
    assert {agent: len(numbers) for agent, numbers in seen.items()} == {"drone": 10, "rover": 17}
    with pytest.raises(UsageError, match="Hover has one learner; tasks with agents: Swarm, TeamTask"):
        TaskParallelEnv("Hover")


@pytest.mark.parametrize("name", NAMES)
def test_observations_stay_within_their_named_space(name: str) -> None:
    options: Any = OPTIONS.get(name, {})
    env, named = (make_vec(name, 4, named=named, **options) for named in (False, True))
    dice = np.random.default_rng(2)
    plain, parts = (each.reset(seed=1)[0] for each in (env, named))
    for _ in range(30):
        assert plain in env.observation_space
        assert parts in named.observation_space
        actions: Any = random_actions(dice, env.action_space.shape)
        plain, parts = env.step(actions)[0], named.step(actions)[0]
    columns = [part.reshape(4, -1) for part in parts.values()]
    np.testing.assert_array_equal(np.concatenate(columns, axis=1), plain.reshape(4, -1))
    assert len(env.metadata["action_names"]) == np.prod(env.single_action_space.shape)


def test_numbers_have_names() -> None:
    names = hovering().metadata["observation_names"]
    assert names[:4] == ("point.forward", "point.left", "point.up", "velocity.forward")
    assert make_vec("RoverAvoid", 1).metadata["observation_names"][14:16] == ("scan.14", "goal.forward")


def test_a_step_before_reset_or_after_close_is_an_error() -> None:
    for env, action in ((hovering(), ZEROS), (gymnasium.make(env_id("Hover")).unwrapped, ZEROS[0])):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before the first step\(\)"):
            env.step(action)
        env.reset(seed=1)
        env.close()
        env.close()
        for call in (env.reset, lambda env=env, action=action: env.step(action)):
            with pytest.raises(UsageError, match="the environment is closed; make a new one"):
                call()


def test_actions_that_are_no_numbers_are_counted_and_ignored() -> None:
    env = hovering()
    _, info = env.reset(seed=1)
    assert info["ignored_actions"].tolist() == [0, 0]
    bad = ZEROS.copy()
    bad[1, 2] = np.nan
    for count in (1, 2):
        seen, rewards, *_, info = env.step(bad)
        assert info["ignored_actions"].tolist() == [0, count]
    assert np.isfinite(seen).all()
    assert np.isfinite(rewards).all()
    single: Any = gymnasium.make(env_id("Hover"))
    single.reset(seed=1)
    assert single.step(bad[1])[4]["ignored_actions"] == 1


def test_each_world_takes_a_seed_of_its_own() -> None:
    env, other = hovering(), hovering()
    seen, _ = env.reset(seed=[7, None])
    expected, _ = other.reset(seed=[7, 9])
    np.testing.assert_array_equal(seen[0], expected[0])
    assert env.unwrapped.task.batch.seeds[0] == 7
    assert (seen[1] != expected[1]).any()


@pytest.mark.parametrize("seed", [[2**64, 1], [1.5, 1], [True, 1], 2**70, 1.5, True, "1", {1, 2}, np.float64(3), b"ab"])
def test_seeds_that_are_no_64_bit_integers_are_refused(seed: Any) -> None:
    env, single, team = hovering(), TaskEnv("Hover"), TaskParallelEnv("TeamTask")
    with pytest.raises(UsageError, match="a seed must be a 64-bit integer"):
        env.reset(seed=seed)
    with pytest.raises(UsageError, match="a seed must be a 64-bit integer"):
        single.reset(seed=seed[0] if isinstance(seed, list) else seed)
    with pytest.raises(UsageError, match="a seed must be a 64-bit integer"):
        team.reset(seed=seed[0] if isinstance(seed, list) else seed)
    assert not env.unwrapped._has_seed  # and nothing was reset


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"autoreset_mode": "Same"}, "no autoreset_mode 'Same'; did you mean 'SameStep'"),
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1, found 0"),
    ],
)
def test_options_of_a_vector_that_do_not_exist_are_refused(options: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        hovering(**options)


@pytest.mark.parametrize("kind", [object, complex, str])
def test_actions_that_are_no_arrays_of_numbers_are_refused(kind: Any) -> None:
    env = hovering()
    env.reset(seed=1)
    with pytest.raises(UsageError, match="Hover: expected numbers as actions, found an array of"):
        env.step(np.zeros(env.action_space.shape).astype(kind))


def test_an_episode_that_ends_in_the_same_step_leaves_its_last_observation_behind() -> None:
    env, plain = hovering(autoreset_mode="SameStep", max_episode_steps=2), hovering(autoreset=False)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    for each in (env, plain):
        each.reset(seed=1)
        each.step(ZEROS)
    seen, _, _, cut, info = env.step(ZEROS)
    np.testing.assert_array_equal(info["final_obs"], plain.step(ZEROS)[0])
    assert cut.all()
    assert info["_final_obs"].all()
    assert set(info["final_info"]) >= {"success", "_success", "is_success", "collision", "contacts"}
    assert env.unwrapped.task.batch.tick.tolist() == [0, 0]
    assert (seen != info["final_obs"]).any()


def test_wrappers_of_vectors_and_of_single_environments_work() -> None:
    env = make_vec("Hover", 2, wrappers=[RecordEpisodeStatistics, NormalizeObservation], max_episode_steps=3)
    env.reset(seed=1)
    for _ in range(3):
        *_, info = env.step(ZEROS)
    assert info["episode"]["l"].tolist() == [3, 3]
    singles: Any = gymnasium.make_vec(
        env_id("Hover"), 2, vectorization_mode="sync", wrappers=[gymnasium.wrappers.FlattenObservation]
    )
    assert singles.reset(seed=1)[0].shape == (2, 7)


# ---- a task in a file of its own -------------------------------------------------------------------------------------

CIRCLE = '''
"""Drive a rover to the middle."""
from microsim.parts.learning import Numbers, Outcome, Reading, Task, distance

class Middle(Task):
    name, horizon = "Middle", 50
    actions = {"rover": {"v": (0.0, 2.0), "omega": 1.2}}
    observations = {
        "odometry": Reading("rover/odom", ("vx", "wz"), per=2.0),
        "middle": Numbers("forward", "left", low=-2, high=2),
    }

    def scenario(self, side: float = 20.0):
        start = {"map_pose": {"x": 3, "y": side / 2, "yaw": 0}}
        size = {"size_xy_cells": [int(side), int(side)]}
        return {"map": size, "robots": {"rover": {"start": start, "odom": {"hz": 60}}}}

    def fill(self, seen):
        rows, _, _ = self.look("rover")
        self.see_offset(seen["middle"], rows, (10.0, 10.0), 0.1)

    def judge(self):
        away = distance(self.batch.rows("rover"), (10.0, 10.0))
        return Outcome(-0.1 * away, away < 1.0, away < 1.0)

TASK = Middle
'''


def test_a_file_of_the_users_is_a_task_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    file.write_text(CIRCLE)
    env: Any = gymnasium.make("microsim.parts.learning:MicroSim/Task-v0", task=str(file), side=24.0)
    check_env(env.unwrapped, skip_render_check=True)
    assert register(file) == "MicroSim/Middle-v0"
    for made in (gymnasium.make_vec("MicroSim/Middle-v0", num_envs=3), make_vec(str(file), 3)):
        made.reset(seed=0)
        for _ in range(50):
            seen, _, ended, _, info = made.step(np.array([[1.0, 0.0]] * 3, np.float32))
            if ended.any():
                break
        assert seen[0, 0] == pytest.approx(1.0, abs=0.02)  # 2 m/s
        assert info["success"].all()
    env.reset(seed=0)
    late = [env.step(np.array([-1.0, 0.0], np.float32))[3] for _ in range(50)]
    assert late == [False] * 49 + [True]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, r"my_task.py: no such file; expected Python code with TASK = a subclass of Task"),
        ("TASK = 3", r"my_task.py: expected TASK = a subclass of Task, found int"),
        ("import nonsense_1", r"my_task.py:1: plug-in could not be loaded: ModuleNotFoundError"),
    ],
)
def test_a_file_that_is_no_task_is_refused_with_its_place(code: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    if code is not None:
        file.write_text(code)
    with pytest.raises(PluginError, match=message):
        find_task(file)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"omega"', '"omga"', r"Middle: rover has no input 'omga'; did you mean 'omega'\?"),
        ('"wz"', '"wx2"', r"rover/odom has no field 'wx2'; did you mean 'wx'\?"),
        ("rover/odom", "rover/odm", r"no sensor 'rover/odm'; did you mean 'rover/odom'\?"),
    ],
)
def test_typos_in_a_task_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "my_task.py"
    file.write_text(CIRCLE.replace(old, new))
    with pytest.raises(UsageError, match=message):
        make_vec(file, 1)


def test_an_unknown_task_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"no task 'Hovr'; did you mean 'Hover'\? there are: .*my_task.py"):
        find_task("Hovr")
    assert find_task("microsim.parts.learning:MicroSim/Hover-v0") is find_task("Hover") is TASKS.built_in["Hover"]


def test_a_trainer_raises_the_difficulty() -> None:
    env: Any = make_vec("RoverAvoid", 50, difficulty=0.0).unwrapped
    env.reset(seed=0)
    assert env.task.goal[0].max() < 11.0
    env.difficulty = 1.0
    env.reset()
    assert env.task.goal[0].min() > 25.0
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="difficulty must be from 0 to 1"):
            env.difficulty = wrong
