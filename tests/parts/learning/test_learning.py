"""Environments for learning: Gymnasium's and PettingZoo's checkers, exact resets, vectors that equal single ones."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import microsim
from microsim.errors import UsageError, install_hint
from microsim.parts.learning.environments import TaskEnv, next_seeds
from microsim.parts.learning.gym import env_id
from microsim.parts.learning.tasks.gate_race import GateRace
from microsim.parts.learning.tasks.hover import Hover
from microsim.parts.learning.tasks.oval_drive import Drive
from microsim.parts.learning.tasks.patrol import Patrol
from microsim.parts.learning.tasks.rover_avoid import RoverAvoid
from microsim.parts.learning.tasks.swarm import Swarm
from microsim.parts.learning.tasks.team_task import TeamTask
from tests.parts.learning.task_runs import NAMES, OPTIONS
from tests.support import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="whole episodes take too long with kernels as plain Python")


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_the_same_episode_again_and_another_one_another(name: str) -> None:
    env: Any = gymnasium.make(env_id(name), **OPTIONS.get(name, {}))
    episodes = []
    for seed in (8, 8, 9):
        seen = [env.reset(seed=seed)[0]]
        env.action_space.seed(1)
        seen += [env.step(env.action_space.sample())[0] for _ in range(10)]
        episodes.append(np.array(seen))
    np.testing.assert_array_equal(episodes[0], episodes[1])
    assert not np.array_equal(episodes[0], episodes[2])


def test_seeds_of_episodes_follow_from_the_first() -> None:
    first = np.array([1, 2, 3])
    assert next_seeds(first).tolist() == next_seeds(first).tolist() != first.tolist()


def test_without_autoreset_worlds_go_on_until_they_are_reset() -> None:
    env: Any = gymnasium.make_vec(env_id("Hover"), num_envs=2, autoreset=False, max_episode_steps=3, copy=False)
    assert env.metadata["autoreset_mode"] == AutoresetMode.DISABLED
    env.reset(seed=0)
    for _ in range(5):
        env.step(np.zeros((2, 4), np.float32))
    assert env.unwrapped.task.batch.tick.tolist() == [30, 30]


@pytest.mark.parametrize("name", NAMES)
def test_a_reset_mask_resets_the_worlds_it_names_and_no_other(name: str) -> None:
    mask = np.array([False, True, False, True])
    reset, untouched, fresh = (
        cast("Any", gymnasium.make_vec(env_id(name), num_envs=4, autoreset=False, **OPTIONS.get(name, {})))
        for _ in range(3)
    )
    for env in (reset, untouched):
        env.reset(seed=7)
    fresh.reset(seed=90)
    actions = np.random.default_rng(1).uniform(-1, 1, (12, *reset.action_space.shape)).astype(np.float32)
    for action in actions[:6]:
        reset.step(action)
        untouched.step(action)
    reset.reset(seed=90, options={"reset_mask": mask})
    ticks = 6 * reset.unwrapped.task.ticks
    assert reset.unwrapped.task.batch.tick.tolist() == [ticks, 0, ticks, 0]
    for action in actions[6:]:
        found, old, new = reset.step(action), untouched.step(action), fresh.step(action)
        for column in range(4):  # observations, rewards, ended, cut short
            assert (found[column][~mask] == old[column][~mask]).all()
            assert (found[column][mask] == new[column][mask]).all()


@pytest.mark.parametrize("mask", [np.zeros(2, bool), np.ones(3, bool), np.ones(2), [True, False], "all"])
def test_a_reset_mask_that_is_none_is_refused(mask: Any) -> None:
    env: Any = gymnasium.make_vec(env_id("Hover"), num_envs=2)
    with pytest.raises(UsageError, match="reset_mask: expected an array of 2 bool, at least one of them true, found"):
        env.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_the_robots(name: str) -> None:
    env: Any = gymnasium.make(env_id(name), render_mode="rgb_array", **OPTIONS.get(name, {}))
    env.reset(seed=1)
    image: Any = env.render()
    assert image.dtype == np.uint8
    assert max(image.shape[:2]) == 400
    assert len(np.unique(image.reshape(-1, 3), axis=0)) >= 3


UNGUARDED = """
import gymnasium, numpy
print("the script runs")
env = gymnasium.make("microsim.parts.learning.gym:MicroSim/Hover-v0", render_mode="human")
env.reset(seed=1)
env.step(numpy.zeros(4, numpy.float32))
env.close()
print("the script ends")
"""


def test_a_script_that_renders_for_people_needs_no_guard_around_what_it_does(tmp_path: Path) -> None:
    """The page's process must not run the script again."""
    (tmp_path / "watch.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, "watch.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(microsim.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "script" in line] == ["the script runs", "the script ends"]
    assert "watch at http://" in done.stdout


def test_an_unknown_way_to_render_is_told() -> None:
    with pytest.raises(UsageError, match="no render_mode 'ansi'; there are: rgb_array, human"):
        TaskEnv(Hover, render_mode="ansi")
    with pytest.raises(UsageError, match="this task has no option 'wnd'; did you mean 'wind'\\?"):
        Hover(1, wnd=3)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (3, 2), (2,), (2, 2, 1)])
def test_actions_of_another_shape_are_refused_before_anything_moves(shape: tuple[int, ...]) -> None:
    env: Any = gymnasium.make_vec(env_id("RoverAvoid"), num_envs=2)
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"RoverAvoid: expected 2 numbers .* for each of 2 worlds, found an array of"):
        env.step(np.zeros(shape, np.float32))
    assert env.unwrapped.task.batch.tick.tolist() == [0, 0]


def test_as_many_seeds_as_worlds_are_needed() -> None:
    env: Any = gymnasium.make_vec(env_id("RoverAvoid"), num_envs=3)
    with pytest.raises(UsageError, match="expected a seed for each of 3 worlds, found 2"):
        env.reset(seed=[1, 2])


def test_only_ways_to_render_that_are_installed_are_offered() -> None:
    """Gymnasium's checker tries each of them."""
    script = (
        "import sys; sys.modules['viser'] = None; import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'viser' else find(name, *more)\n"
        "import gymnasium, microsim, microsim.parts.learning.gym; from gymnasium.utils.env_checker import check_env\n"
        "env = gymnasium.make('MicroSim/Hover-v0'); check_env(env.unwrapped); print(env.metadata['render_modes'])\n"
        "from microsim.parts.learning.environments import TaskEnv\n"
        "try: TaskEnv('Hover', render_mode='human')\n"
        "except microsim.UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "['rgb_array']"
    assert install_hint("view") in done.stdout


def test_without_gymnasium_it_is_an_import_error_that_says_what_to_install() -> None:
    script = "import sys; sys.modules['gymnasium'] = None\n"
    script += "try: import microsim.parts.learning.gym\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"learning needs Gymnasium: {install_hint('rl')}\n"


@pytest.mark.slow
def test_the_page_shows_the_world_of_the_environment() -> None:
    env: Any = gymnasium.make(env_id("RoverAvoid"), render_mode="human")
    try:
        env.reset(seed=4)
        for _ in range(5):
            env.step(np.array([0.5, 0.2], np.float32))
        page, batch = env.unwrapped._window._live_view, env.unwrapped.task.batch
        assert page._runner.sim.rows("rover") == batch.rows("rover")[:, 0].tolist()
        assert page._viewer.address.startswith("http://127.0.0.1")
    finally:
        env.close()


# ---- what is good and what ends an episode ---------------------------------------------------------------------------


def test_hovering_at_the_point_is_worth_one_a_step_and_landing_ends_it() -> None:
    task = Hover(2, wind=(0.0, 0.0, 0.0))
    task.reset(seeds=np.array([1, 2]))
    rows = task.batch.rows("drone")
    rows[:3, 0] = (20.0, 20.0, 5.0)
    rows[:3, 1] = (20.0, 20.0, 0.11)
    task.act(np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 0.0]]))
    rewards, ended, *_ = task.judge()
    assert rewards.tolist() == [1.0, -10.0]
    assert ended.tolist() == [False, True]
    np.testing.assert_allclose(task.observe()[0], 0.0, atol=1e-12)


def test_a_patrol_is_worth_its_corners_and_ends_with_the_fourth() -> None:
    task = Patrol(1)
    task.reset(seeds=np.array([1]))
    total = 0.0
    for x, y, z in task.corners.T:
        task.batch.rows("drone")[:3, 0] = (x, y, z)
        task.act(np.zeros((1, 4)))
        rewards, ended, *_ = task.judge()
        total += float(rewards[0])
    assert total > 40.0
    assert ended[0]


def test_a_rover_earns_by_coming_nearer_and_pays_for_touching() -> None:
    task = RoverAvoid(2)
    task.reset(seeds=np.array([3, 4]))
    rows = task.batch.rows("rover")
    rows[0, 0], rows[1, 0] = task.goal[:, 0] - (0.5, 0.0)  # at the goal
    rows[0, 1], rows[1, 1], rows[3, 1], rows[15, 1] = 0.02, 15.0, 3.14, 2.0  # driving into the edge
    task.act(np.array([[0.0, 0.0], [1.0, 0.0]]))
    rewards, ended, *_ = task.judge()
    assert rewards[0] > 10.0
    assert rewards[1] < -4.0
    assert ended.all()


def test_a_team_finds_the_target_before_the_rover_knows_it() -> None:
    task = TeamTask(1)
    task.reset(seeds=np.array([2]))
    assert not task.observe()[0, [7, 8, 9, 23, 24, 25]].any()
    task.batch.rows("drone")[:2, 0] = task.target[:, 0]
    task.act(np.zeros((1, 6)))
    rewards, ended, *_ = task.judge()
    assert rewards[0] > 4.9
    assert not ended[0]
    seen = task.observe()[0]
    assert seen[7] == seen[23] == 1.0
    task.batch.rows("rover")[:2, 0] = task.target[:, 0] + 0.5
    task.act(np.zeros((1, 6)))
    rewards, ended, *_ = task.judge()
    assert rewards[0] > 10.0
    assert ended[0]


def test_the_road_is_where_its_formula_says() -> None:
    task = Drive(1)
    (x, y), half, radius = task.middle, 0.5 * task.straight_m, task.radius_m
    places = [
        (x, y - radius, 1, 0),
        (x, y + radius, -1, 0),
        (x + half + radius, y, 0, 1),
        (x - half - radius, y, 0, -1),
    ]
    for east, north, ahead_x, ahead_y in places:
        rows = np.zeros((2, 1))
        rows[:, 0] = (east, north)
        left, direction_x, direction_y, _ = task.road(rows)
        np.testing.assert_allclose((left[0], direction_x[0], direction_y[0]), (0.0, ahead_x, ahead_y), atol=1e-12)
    rows[:, 0] = (x, y - radius + 1.5)  # towards the middle of the oval is to the left
    assert task.road(rows)[0][0] == pytest.approx(1.5)


def test_a_car_earns_by_driving_along_the_road_and_the_verge_ends_it() -> None:
    task = Drive(2)
    task.reset(seeds=np.array([1, 2]))
    task.batch.rows("car")[[0, 1, 3], :] = [[60.0, 60.0], [30.0, 30.0], [0.0, -1.57]]
    total, over = np.zeros(2), np.zeros(2, bool)
    for _ in range(40):
        task.act(np.array([[0.0, 0.5], [0.0, 0.5]]))
        rewards, ended, *_ = task.judge()
        total += np.where(over, 0.0, rewards)
        over |= ended
        if over[1]:
            break
    assert over.tolist() == [False, True]
    assert total[0] > 0.0 > total[1]


@pytest.mark.parametrize(("place", "is_success"), [((27.0, 15.0), True), ((1.5, 15.0), False)])
def test_an_episode_that_reaches_its_aim_says_so(place: tuple[float, float], is_success: bool) -> None:
    env: Any = gymnasium.make_vec(env_id("RoverAvoid"), num_envs=2, max_episode_steps=1)
    env.reset(seed=0)
    env.unwrapped.task.goal[:] = np.array(place)[:, None]
    rows = env.unwrapped.task.batch.rows("rover")
    rows[0], rows[1] = 27.0, 15.0
    _, _, ended, cut, info = env.step(np.zeros((2, 2), np.float32))
    assert info["is_success"].tolist() == ended.tolist() == [is_success] * 2
    assert info["_is_success"].tolist() == (ended | cut).tolist() == [True] * 2


def test_the_info_of_a_step_says_how_the_episode_stands() -> None:
    env: Any = gymnasium.make(env_id("Hover"))
    env.reset(seed=0)
    assert env.step(np.zeros(4, np.float32))[4] == {
        "contacts": 0,
        "ignored_actions": 0,
        "touching": {"drone": ()},
        "success": False,
        "is_success": False,
        "collision": False,
    }


# ---- gates, a camera, a swarm, a lane --------------------------------------------------------------------------------


def test_flying_through_a_gate_pays_and_beside_it_ends_the_race() -> None:
    task = GateRace(3)
    task.reset(seeds=np.array([1, 2, 3]))
    rows, gate, heading = task.batch.rows("drone"), task.gates[:, 0], task.headings[:, 0]
    task.before[:2], task.before[2] = gate[:2] - 0.3 * heading[:, None], gate[2]
    rows[:2], rows[2] = gate[:2] + 0.3 * heading[:, None], gate[2]
    rows[2, 1] = task.before[2, 1] = gate[2, 1] + 2.0  # above the opening
    rows[:2, 2] -= 0.6 * heading  # not through it yet
    rewards, ended, success, collision = task.judge()
    assert task.passed.tolist() == [1, 0, 0]
    assert rewards[0] > 4.0 > 0.1 > rewards[2]
    assert rewards[1] == -5.0
    assert ended.tolist() == [False, True, False]
    assert success is not None
    assert collision is not None
    assert not success.any()
    task.passed[:] = 5
    task.before[:2], rows[:2] = (task.gates[:2, 5] + side * task.headings[:, 5:] for side in (-0.2, 0.2))
    task.before[2] = rows[2] = task.gates[2, 5]
    assert task.judge().success.all()  # type: ignore[union-attr]


def test_a_race_without_difficulty_is_even() -> None:
    task = GateRace(4, difficulty=0.0)
    task.reset(seeds=np.arange(4))
    assert (task.gates[2] == 4.0).all()
    assert (task.gates[:, :, :1] == task.gates).all()


def test_a_camera_rover_sees_the_pillar_and_earns_by_coming_near() -> None:
    env: Any = gymnasium.make_vec(env_id("CameraRover"), num_envs=2)
    seen, _ = env.reset(seed=5)
    task, rows = env.unwrapped.task, env.unwrapped.task.batch.rows("rover")
    rows[0], rows[1], rows[3] = task.pillar[0] - 3.0, task.pillar[1], (0.0, 3.14)  # towards it, and away from it
    seen, *_ = env.step(np.zeros((2, 2), np.float32))
    middle = seen[:, 4:10, 14:18].astype(int).reshape(2, -1, 3)
    assert (np.abs(middle[0] - middle[1]).max(axis=1) > 20).all()  # the pillar, and the sky
    rows[0] = task.pillar[0] - 1.9
    _, rewards, ended, _, info = env.step(np.zeros((2, 2), np.float32))
    assert (rewards > 10.0).all()
    assert ended.all()
    assert info["success"].all()


@pytest.mark.parametrize("agents", [2, 5])
def test_a_swarm_sees_goals_and_neighbours_and_pays_each_agent(agents: int) -> None:
    env: Any = gymnasium.make_vec(env_id("Swarm"), num_envs=2, agents=agents)
    seen, _ = env.reset(seed=1)
    task = env.unwrapped.task
    assert seen.shape == (2, agents, 8)
    first = task.batch.rows("drone_1")
    np.testing.assert_allclose(seen[:, 0, 0], 0.1 * (task.goals[0, 0] - first[0]), atol=1e-6)
    for world in range(2):
        offsets = np.array([task.batch.rows(each)[:2, world] - first[:2, world] for each in task.agents[1:]])
        nearest = offsets[np.argmin(np.square(offsets).sum(axis=1))]
        np.testing.assert_allclose(seen[world, 0, 4:6], np.clip(0.2 * nearest, -1, 1), atol=1e-6)
    for number, agent in enumerate(task.agents):
        task.batch.rows(agent)[:2] = task.goals[:, number]
    task.before[0] += 1.0
    _, rewards, ended, _, info = env.step(np.zeros((2, agents, 2), np.float32))
    assert ended.all()
    assert info["success"].all()
    assert info["agent_rewards"].shape == (2, agents)
    np.testing.assert_allclose(rewards, info["agent_rewards"].mean(axis=1))


def test_drones_of_a_swarm_that_touch_end_it_for_all() -> None:
    task = Swarm(2, agents=3)
    task.reset(seeds=np.array([1, 2]))
    one, other = (task.batch.rows(agent) for agent in task.agents[:2])
    other[:2, 0] = one[:2, 0] + (0.0, 0.6)
    actions = np.zeros((2, 3, 2))
    actions[:, 0, 1] = 1.0
    for _ in range(5):
        task.act(actions)
        rewards, ended, _, collision = task.judge()
        if ended.any():
            break
    assert ended.tolist() == [True, False]
    assert collision is not None
    assert collision.tolist() == [True, False]
    assert rewards[0, 0] < -4.0 < rewards[0, 2]
    with pytest.raises(UsageError, match="agents must be from 2 to 16, found 1"):
        Swarm(1, agents=1)


def test_a_car_in_the_middle_of_its_lane_earns_and_outside_it_the_episode_ends() -> None:
    env: Any = gymnasium.make_vec(env_id("LaneKeeping"), num_envs=2)  # with splats
    seen, _ = env.reset(seed=1)
    assert seen.shape == (2, 32, 48, 3)
    assert len(np.unique(seen[0].reshape(-1, 3), axis=0)) > 100  # a captured world, not a palette
    rows = env.unwrapped.task.batch.rows("ego")
    rows[:2] = [[0.0, 0.0], [-32.5, -29.5]]
    rows[3] = 0.0
    _, rewards, ended, _, info = env.step(np.zeros((2, 1), np.float32))
    assert rewards[0] == pytest.approx(0.2, abs=0.02)
    assert rewards[1] == -5.0
    assert ended.tolist() == [False, True]
    assert info["success"].tolist() == [False, False]
