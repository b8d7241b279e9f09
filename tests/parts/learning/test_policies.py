"""Policies: the same bits for one world, many, and over ROS 2; files; evaluation with tokens of what failed."""

import json
import threading
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from microsim import messages as wire
from microsim.cli import app
from microsim.errors import UsageError
from microsim.parts.learning.evaluation import evaluate, recorded
from microsim.parts.learning.policy import SHIPPED, Policy, input_of, load_policy, shipped_policies
from microsim.parts.learning.policy_node import PolicyNode, scenario_for
from microsim.parts.learning.task import TASKS, find_task
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.transport import Transport
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.sweep.run_one import from_token, run_one
from tests.policy_support import OPTIONS, SEED, arbitrary, batch_digest
from tests.support import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="whole episodes take too long with kernels as plain Python")


def test_a_policy_is_its_network_and_a_world_gets_the_same_bits_alone_and_among_many() -> None:
    policy = arbitrary("RoverAvoid")
    seen = np.random.default_rng(0).normal(0, 1, (257, 19)).astype(np.float32)
    actions = policy.actions(seen)
    (first, bias), (second, last) = policy.layers
    expected = np.clip(np.maximum(seen @ first + bias, 0.0) @ second + last, -1.0, 1.0)
    np.testing.assert_allclose(actions, expected, atol=1e-5)
    assert {actions.min(), actions.max()} == {-1.0, 1.0}
    assert b"".join(policy.actions(seen[k : k + 1]).tobytes() for k in range(257)) == actions.tobytes()


def test_an_image_passes_through_convolutions_and_what_does_not_fit_is_refused() -> None:
    dice = np.random.default_rng(4)
    shapes = ((3, 3, 2, 4), (2, 2, 4, 5), (3 + 2 * 3 * 5, 6), (6, 2))  # 9×13×2 → 4×6×4 → 2×3×5, and 3 numbers
    layers = tuple(
        (dice.normal(0, 0.4, shape).astype(np.float32), np.full(shape[-1], 0.1, np.float32)) for shape in shapes
    )
    policy = Policy(layers, {"image": [9, 13, 2]})
    assert str(policy.shape) == "3 + 9×13×2 → 4×6×4 → 2×3×5 → 6 → 2"
    seen = dice.normal(0, 0.3, (5, policy.shape.inputs)).astype(np.float32)
    maps = seen[:, 3:].reshape(5, 9, 13, 2)
    for weights, biases in layers[:2]:
        windows = np.lib.stride_tricks.sliding_window_view(maps, weights.shape[:2], (1, 2))[:, ::2, ::2]
        maps = np.maximum(np.einsum("nyxcij,ijcf->nyxf", windows, weights) + biases, 0.0)
    flat = np.concatenate([seen[:, :3], maps.reshape(5, -1)], axis=1)
    for weights, biases in layers[2:]:
        flat = np.maximum(flat @ weights + biases, 0.0 if weights is layers[2][0] else -1.0)
    np.testing.assert_allclose(policy.actions(seen), np.minimum(flat, 1.0), atol=1e-5)
    assert policy.actions(seen[3:4]).tobytes() == policy.actions(seen)[3:4].tobytes()
    for wrong in (
        (layers, {}),
        (layers, {"image": [9, 13, 3]}),
        (layers[:3], {"image": [2, 2, 2]}),
        (layers[1:], {"image": [9, 13, 2]}),
    ):
        with pytest.raises(UsageError, match="layers do not fit each other"):
            Policy(*wrong)
    with pytest.raises(UsageError, match="height, width and channels"):
        Policy(layers, {"image": ["9", 13, 2]})


def test_a_file_gives_the_policy_back_and_what_is_none_is_refused(tmp_path: Path) -> None:
    policy, file = arbitrary("Hover"), tmp_path / "hover.npz"
    policy.save(file)
    again = load_policy(file)
    seen = np.ones((3, 7), np.float32)
    assert again.actions(seen).tobytes() == policy.actions(seen).tobytes()
    assert again.about == policy.about
    policy.save(tmp_path / "other.npz")
    assert (tmp_path / "other.npz").read_bytes() == file.read_bytes()
    with pytest.raises(UsageError, match="trained with other observations"):
        evaluate(again, 1, task="Patrol")
    for name, content in (("text.npz", b"no"), ("pickle.npz", b"\x80\x04N.")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"{name}: not a policy"):
            load_policy(tmp_path / name)
    np.savez(
        tmp_path / "nan.npz", about=np.array('{"format": 1}'), w0=np.full((2, 2), np.nan, np.float32), b0=np.zeros(2)
    )
    with pytest.raises(UsageError, match="finite weights"):
        load_policy(tmp_path / "nan.npz")
    with pytest.raises(UsageError, match="no such file"):
        load_policy(tmp_path / "none.npz")
    with pytest.raises(UsageError, match="no shipped policy 'Rover'"):
        load_policy("Rover")


def written(file: Path, about: Any = None, **arrays: Any) -> Path:
    parts = {"w0": np.zeros((7, 4), np.float32), "b0": np.zeros(4, np.float32), **arrays}
    np.savez_compressed(file, about=np.array(json.dumps({"format": 1} if about is None else about)), **parts)
    return file


@pytest.mark.parametrize(
    ("about", "part"),
    [
        ([1], "expected a mapping as `about`"),
        ({"format": 1, "image": None}, "expected a list as image, found None"),
        ({"format": 1, "options": [1]}, "expected a dict as options"),
        ({"format": 1, "observations": 5}, "expected names as observations, found 5"),
        ({"format": 1, "actions": 5}, "expected a list as actions, found 5"),
        ({"format": 1, "actions": ["v"]}, "its last layer gives 4 numbers, its description names 1 actions"),
        ({"format": 1, "observations": ["x"]}, "its first layer takes 7 numbers, its description names 1"),
        ({"format": 2}, "expected a policy of format 1, found 2"),
    ],
)
def test_a_file_with_a_malformed_description_is_refused(tmp_path: Path, about: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        load_policy(written(tmp_path / "policy.npz", about))


@pytest.mark.parametrize("name", shipped_policies())
def test_a_policy_that_lacks_its_first_or_last_layer_is_refused(tmp_path: Path, name: str) -> None:
    whole, file = load_policy(name), tmp_path / "policy.npz"
    whole.save(file)
    assert load_policy(file).about == whole.about
    for layers in (whole.layers[:-1], whole.layers[1:], whole.layers[:1]):
        cut = object.__new__(Policy)  # which a Policy refuses, if the layers that are left do not fit each other
        for key, value in (("layers", layers), ("about", whole.about)):
            object.__setattr__(cut, key, value)
        cut.save(file)
        with pytest.raises(UsageError, match=r"its (first|last) layer|layers do not fit each other|has no layers"):
            load_policy(file)


@pytest.mark.parametrize("name", shipped_policies())
def test_a_policy_that_lacks_any_layer_or_has_one_too_many_is_refused(tmp_path: Path, name: str) -> None:
    """Also where the layers beside it fit each other, and whether the others keep their names or not."""
    file, whole = tmp_path / "policy.npz", dict(np.load(SHIPPED / f"{name}.npz"))
    count = sum(key.startswith("w") for key in whole)
    layers = [(whole[f"w{k}"], whole[f"b{k}"]) for k in range(count)]
    for k in range(count):
        named = {key: value for key, value in whole.items() if key not in (f"w{k}", f"b{k}")}
        half = {key: value for key, value in whole.items() if key != f"b{k}"}
        fewer = [*layers[:k], *layers[k + 1 :]]
        for chosen in (fewer, [*layers[: k + 1], *layers[k:]]):
            renamed = {f"{part}{n}": each for n, layer in enumerate(chosen) for part, each in zip("wb", layer)}  # noqa: B905
            np.savez(file, about=whole["about"], **renamed)
            with pytest.raises(UsageError, match=r"its description names layers of \[\["):
                load_policy(file)
        for arrays in (named, half):
            np.savez(file, **arrays)
            with pytest.raises(UsageError, match=r"expected weights and biases of layers 0 to \d|names layers of"):
                load_policy(file)


def test_a_file_of_an_older_version_has_no_list_of_layers(tmp_path: Path) -> None:
    assert load_policy(written(tmp_path / "policy.npz")).shape.inputs == 7


@pytest.mark.parametrize(("place", "value"), [(8, 1), (10, 99), (6, 213)])
def test_an_archive_that_is_encrypted_or_of_another_kind_is_refused(tmp_path: Path, place: int, value: int) -> None:
    """Bytes of the first entry in the archive's list: its flags, how it is packed, which version is needed."""
    raw = bytearray((SHIPPED / "Hover.npz").read_bytes())
    raw[raw.find(b"PK\x01\x02") + place] = value
    (tmp_path / "policy.npz").write_bytes(raw)
    with pytest.raises(UsageError, match="not a policy of `microsim policy train`"):
        load_policy(tmp_path / "policy.npz")


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    file, dice = tmp_path / "policy.npz", np.random.default_rng(1)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("about.npy", _npy((40, 40)))
    packed = file.read_bytes()
    for shape in ("(40L, 40)", "(40, 40"):  # as Python 2 wrote it, which NumPy warns of; and a bracket that is open
        with zipfile.ZipFile(file, "w") as parts:
            parts.writestr("about.npy", _npy((40, 40)).replace(b"(40, 40)", shape.encode()))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UsageError, match="not a policy"):
                load_policy(file)
    for content in [b"[" * 100_000, *(dice.integers(0, 256, 40, np.uint8).tobytes() for _ in range(30))]:
        at = int(dice.integers(30, len(packed) - 100))
        file.write_bytes(packed[:at] + content[:40] + packed[at + 40 :])
        with pytest.raises(UsageError, match=r"not a policy of `microsim policy train`|expected a"):
            load_policy(file)


def test_a_file_with_malformed_numbers_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policy.npz"
    for content in (b"", _npy((4, 2))):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="not a policy"):
            load_policy(file)
    with zipfile.ZipFile(written(file, b0=np.array(["a"])), "a") as parts:
        parts.writestr("w1.npy", _npy((10**15, 2)))  # claims more than any memory has
        parts.writestr("b1.npy", _npy((2,)))
    with pytest.raises(UsageError, match="not a policy"):
        load_policy(file)
    with pytest.raises(UsageError, match="finite weights of type float32"):
        load_policy(written(file, b0=np.array(["a", "b", "c", "d"])))
    with pytest.raises(UsageError, match="Hover: expected a policy from 7 numbers to 4, found one from 3 numbers to 4"):
        evaluate(written(file, {"format": 1, "task": "Hover"}, w0=np.zeros((3, 4), np.float32)), 1)
    monkeypatch.setattr("microsim.parts.learning.policy._LARGEST_BYTES", 2**20)
    large = written(file, w0=np.zeros((2**16, 8), np.float32))
    assert large.stat().st_size < 2**14  # packed
    with pytest.raises(UsageError, match="expected a policy of at most 1 MiB"):
        load_policy(large)


def _npy(shape: tuple[int, ...]) -> bytes:
    """A file of NumPy that ends after its header."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head.encode()


OVER_ROS = ("RoverAvoid", "Hover", "Patrol", "TeamTask", "GateRace", "Swarm", "CameraRover", "LaneKeeping")


@pytest.mark.parametrize("name", OVER_ROS)
def test_over_ros_2_a_policy_sees_does_and_moves_what_it_does_among_many_worlds_byte_for_byte(name: str) -> None:
    policy = arbitrary(name)
    task = find_task(name)(5, **OPTIONS.get(name, {}))
    task.reset(seeds=np.arange(SEED - 2, SEED + 3))  # world 2 is the one that is compared
    bus = Bus()
    node = start_node(MemoryTransport("microsim", (), bus), scenario_for(policy, lockstep=False), SEED)
    driver = PolicyNode(MemoryTransport("policy", bus=bus), policy, SEED)
    node.runner.pause(True)
    node.publish(node.sim.step(0))
    for step in range(1, 61):
        driver.transport.poll()
        assert driver.steps == step
        seen = input_of(task)
        assert input_of(driver.task).tobytes() == seen[2].tobytes()
        node.transport.poll()
        node.runner.step(task.ticks)
        task.act(policy.actions(seen))
        for robot in task.batch.robots:
            assert np.array(node.sim.rows(robot)).tobytes() == task.batch.rows(robot)[:, 2].tobytes()
        if task.judge().ended[2]:
            break
    assert step > 5


def lockstep_digest(transport: Transport, driver: PolicyNode, policy: Policy, ticks: int) -> str:
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            driver.transport.poll(0.01)

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        node = start_node(transport, scenario_for(policy), SEED)
        node.runner.run(ticks)
        assert node.sim.tick == ticks
        return node.sim.digest()
    finally:
        ended.set()
        thread.join()


def test_in_lockstep_the_run_has_the_digest_of_the_batch() -> None:
    policy, bus = arbitrary("TeamTask"), Bus()
    driver = PolicyNode(MemoryTransport("policy", bus=bus), policy, SEED)
    assert lockstep_digest(MemoryTransport("microsim", (), bus), driver, policy, 60) == batch_digest(policy, 60)


def test_a_reset_begins_the_episode_again() -> None:
    policy, bus = arbitrary("Patrol"), Bus()
    node = start_node(MemoryTransport("microsim", (), bus), scenario_for(policy, lockstep=False), SEED)
    driver = PolicyNode(MemoryTransport("policy", bus=bus), policy, SEED)
    node.runner.pause(True)
    commands = []
    for _ in range(2):
        node.publish(node.sim.step(0))
        for _ in range(3):
            driver.transport.poll()
            node.transport.poll()
            node.runner.step(6)
        commands.append((driver.steps, driver.task.batch.commands("drone").tobytes()))
        node.sim.reset(SEED)
    assert commands[0] == commands[1]


def test_a_task_that_sees_what_no_message_carries_cannot_be_run_over_ros_2() -> None:
    drive, bus = arbitrary("Drive"), Bus()
    node = start_node(MemoryTransport("microsim", (), bus), scenario_for(drive, lockstep=False), SEED)
    driver = PolicyNode(MemoryTransport("policy", bus=bus), drive, SEED)
    node.publish(node.sim.step(0))
    with pytest.raises(
        UsageError, match=r"Drive observes values that no message contains: motion\.speed, motion\.steering"
    ):
        driver.transport.poll()
    driver = PolicyNode(MemoryTransport("policy"), arbitrary("CameraRover"))
    small = wire.from_mapping("sensor_msgs/msg/Image", {"encoding": "rgb8", "height": 2, "width": 3})
    with pytest.raises(UsageError, match="rover/camera: expected an image in rgb8, 32 × 24, found rgb8, 3 × 2"):
        driver._take_image("rover/camera", small)


def test_a_failed_episode_is_a_mission_whose_token_repeats_it_and_that_can_be_shrunk(tmp_path: Path) -> None:
    file = tmp_path / "poor.npz"
    arbitrary("RoverAvoid", 3).save(file)
    words = [
        "policy",
        "evaluate",
        str(file),
        "--worlds",
        "12",
        "--seed",
        "5",
        "--failures",
        str(tmp_path / "failed"),
        "--shrink",
    ]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    failure = next(each for each in found["failures"] if each["collision"])
    run = from_token(failure["token"])
    assert run.mission is not None
    assert run_one(run.sim, run.mission, None, ["collisions"]) == {"collisions": 1}
    episode = recorded(file, failure["seed"])
    assert round(episode.duration * 10) == failure["steps"]
    smallest = Path(found["smallest"]).read_text()
    assert "collisions > 0" in smallest
    assert len(smallest) < len((tmp_path / "failed" / f"seed_{failure['seed']}.yaml").read_text())
    assert CliRunner().invoke(app, [*words[:5], "--at-least", "1", "--quiet"]).exit_code == 1


def test_only_failures_that_were_written_can_be_shrunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "poor.npz"
    arbitrary("RoverAvoid", 3).save(file)
    monkeypatch.setattr("microsim.parts.learning.evaluate_command._MOST_WRITTEN", 0)
    words = [
        "policy",
        "evaluate",
        str(file),
        "--worlds",
        "4",
        "--seed",
        "5",
        "--failures",
        str(tmp_path / "failed"),
        "--shrink",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "none of the first 0 failures has a collision: there is nothing to shrink" in result.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--out", "nowhere/rover.npz"), "--out nowhere/rover.npz: there is no folder nowhere"),
        (("--plot", "nowhere/rover.png"), "--plot nowhere/rover.png: there is no folder nowhere"),
        (("--plot", "folder.png"), "--plot folder.png: it is a folder"),
        (("--out", "rover.zip"), "expected a name that ends with .npz"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_a_training(
    words: tuple[str, ...], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    result = CliRunner().invoke(app, ["policy", "train", "RoverAvoid", *words])
    assert part in str(result.exception)


def test_the_policy_command_describes_writes_a_scenario_and_refuses_what_is_missing(tmp_path: Path) -> None:
    file, scenario = tmp_path / "rover.npz", tmp_path / "avoid.yaml"
    arbitrary("RoverAvoid").save(file)
    runner = CliRunner()
    assert "19 → 24 → 2" in runner.invoke(app, ["policy", "info", str(file)]).stdout
    assert (
        runner.invoke(app, ["policy", "export", str(file), "--scenario", str(scenario), "--seed", "7"]).exit_code == 0
    )
    assert "expect: /rover/cmd_vel" in scenario.read_text()
    missing = runner.invoke(app, ["policy", "info", str(tmp_path / "none.npz")])
    assert "no such file" in str(missing.exception or missing.output)


@pytest.mark.parametrize("name", shipped_policies())
def test_a_shipped_policy_solves_its_task(name: str) -> None:
    policy = load_policy(name)
    assert policy.task == name
    assert name in TASKS.built_in
    worlds: dict[str, Any] = {"CameraRover": 20, "LaneKeeping": 2}  # cameras are costly, splats most
    found = evaluate(policy, worlds.get(name, 100), threads=2)
    assert found.success.mean() >= 0.9
