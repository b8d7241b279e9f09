"""Training with torch, in short: it learns, it is repeatable, and what it writes can be read elsewhere."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError
from microsim.parts.learning.evaluation import evaluate
from microsim.parts.learning.learning_curve import Progress
from microsim.parts.learning.policy import Policy, load_policy

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.learning
ROOT = Path(__file__).parents[2]
SHORT = {"worlds": 128, "steps": 128 * 16 * 40, "target": 0.0, "check_worlds": 50, "check_every": 100}


def weights(policy: Any) -> bytes:
    return b"".join(part.tobytes() for layer in policy.layers for part in layer)


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    from microsim.parts.learning.ppo import Trainer

    few = {**SHORT, "steps": 128 * 16 * 3}
    runs = [weights(Trainer("Hover", seed, settings=few).run()) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_short_training_gets_better() -> None:
    from microsim.parts.learning.ppo import Trainer

    curve: list[Any] = []
    policy = Trainer("Patrol", 0, settings=SHORT).run(curve.append)
    rewards = np.array([each.reward for each in curve])
    assert np.nanmean(rewards[-5:]) > np.nanmean(rewards[:5]) + 10.0
    assert curve[-1].steps == SHORT["steps"]
    assert policy.about["steps"] == SHORT["steps"]


def test_the_task_of_the_docs_trains(tmp_path: Path) -> None:
    from microsim.parts.learning.ppo import Trainer

    page = (Path(__file__).parents[2] / "docs" / "do/learning.md").read_text(encoding="utf-8")
    code = page.split(":caption: dock.py\n", 1)[1].split("```", 1)[0]
    (tmp_path / "dock.py").write_text(code, encoding="utf-8")
    curve: list[Any] = []
    Trainer(tmp_path / "dock.py", 0, settings=SHORT).run(curve.append)
    rewards = np.array([each.reward for each in curve])
    assert np.nanmean(rewards[-5:]) > np.nanmean(rewards[:8]) + 3.0


def test_the_command_trains_evaluates_and_writes_a_curve_and_onnx(tmp_path: Path) -> None:
    out, onnx = tmp_path / "hover.npz", tmp_path / "hover.onnx"
    settings = [word for name, value in {**SHORT, "steps": 20_000}.items() for word in ("--set", f"{name}={value}")]
    words = [
        "policy",
        "train",
        "Hover",
        "--out",
        str(out),
        "--onnx",
        str(onnx),
        "--worlds",
        "20",
        "--json",
        "--threads",
        "1",
    ]
    result = CliRunner().invoke(app, [*words, "--plot", str(tmp_path / "hover.png"), *settings])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["task"] == "Hover"
    assert len(json.loads(out.with_suffix(".json").read_text())["curve"]) == 20_000 // (128 * 16)
    assert "<svg" in out.with_suffix(".html").read_text()
    assert (tmp_path / "hover.png").stat().st_size > 5_000

    policy = load_policy(out)
    found = evaluate(policy, 20)
    assert found.success.mean() == printed["success"]
    runtime = pytest.importorskip("onnxruntime")
    seen = np.random.default_rng(0).normal(0, 1, (50, 7)).astype(np.float32)
    (there,) = runtime.InferenceSession(str(onnx)).run(None, {"observation": seen})
    np.testing.assert_allclose(there, policy.actions(seen), atol=1e-5)


FEW = {"worlds": 4, "rollout": 4, "steps": 32, "minibatch": 16, "target": 0.0}


def test_a_training_that_is_stopped_keeps_what_was_learned() -> None:
    from microsim.parts.learning.ppo import Trainer

    settings = {"worlds": 16, "rollout": 4, "steps": 6400}
    trainer, seen = Trainer("Hover", 1, settings=settings), []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if progress.update == 2:
            trainer.stop()

    policy = trainer.run(report)
    assert [progress.steps for progress in seen] == [64, 128]
    assert policy.about["steps"] == 128


def test_a_signal_ends_the_command_with_a_policy(tmp_path: Path) -> None:
    """The first one after the update under way; it does not wait for a hundred million steps."""
    words = [
        "policy",
        "train",
        "Hover",
        "--out",
        "hover.npz",
        "--worlds",
        "10",
        "--set",
        "worlds=16",
        "--set",
        "rollout=4",
    ]
    command = [sys.executable, "-m", "microsim", *words, "--set", "steps=1e8", "--set", "target=0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "steps" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        text = process.stdout.read()
    assert process.returncode == 0
    assert "wrote hover.npz" in text
    assert load_policy(tmp_path / "hover.npz").task == "Hover"


def test_agents_that_are_alike_share_a_policy() -> None:
    from microsim.parts.learning.ppo import Trainer

    swarm = Trainer("Swarm", settings=FEW).run()
    assert swarm.layers[0][0].shape[0] == 8
    assert swarm.layers[-1][0].shape[1] == 2
    assert swarm.actions(np.zeros((3, 4, 8), np.float32)).shape == (3, 8)


def test_the_network_follows_from_the_observations_and_torch_onnx_and_the_kernel_agree(tmp_path: Path) -> None:
    from microsim.parts.learning.ppo import Network, PpoSettings, Trainer

    trainers = [Trainer("CameraRover", 3, settings=FEW) for _ in range(2)]
    before = trainers[0].policy()
    policy, again = (trainer.run() for trainer in trainers)
    assert str(policy.shape) == "24×32×3 → 11×15×8 → 5×7×16 → 64 → 64 → 2"
    assert weights(policy) == weights(again)
    assert all((one[0] != other[0]).any() for one, other in zip(before.layers, policy.layers, strict=True))
    torch.manual_seed(5)
    runtime = pytest.importorskip("onnxruntime")
    for numbers, image in ((0, (24, 32, 3)), (5, (32, 20, 6))):
        network = Network(numbers, image, 2, PpoSettings(filters=4))
        policy = Policy(network.layers(), {"image": list(image)})
        seen = torch.randn(7, policy.shape.inputs)
        with torch.no_grad():
            expected = (50 * network.actor(network.features(seen))).clamp(-1, 1).numpy()
        louder = Policy((*policy.layers[:-1], (50 * policy.layers[-1][0], policy.layers[-1][1])), policy.about)
        np.testing.assert_allclose(louder.actions(seen.numpy()), expected, atol=1e-4)
        louder.export_onnx(tmp_path / "policy.onnx")
        (there,) = runtime.InferenceSession(str(tmp_path / "policy.onnx")).run(None, {"observation": seen.numpy()})
        np.testing.assert_allclose(there, expected, atol=1e-4)
        assert 0.01 < np.abs(expected).mean() < 1.0


def test_a_setting_that_does_not_exist_is_refused() -> None:
    from microsim.parts.learning.ppo import Trainer

    with pytest.raises(UsageError, match="no setting 'rolout'; did you mean 'rollout'"):
        Trainer("Hover", settings={"rolout": 3})


@pytest.mark.parametrize(
    ("name", "value"), [("filters", 0.0), ("check_every", 0.5), ("steps", np.nan), ("clip", np.inf)]
)
def test_a_setting_without_meaning_is_refused(name: str, value: float) -> None:
    from microsim.parts.learning.ppo import PpoSettings

    with pytest.raises(UsageError, match=f"the setting {name} of the training: expected a .*number"):
        PpoSettings().changed({name: value})


def test_on_a_machine_without_a_gpu_training_there_is_refused() -> None:
    from microsim.parts.learning.ppo import Trainer

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=r"needs cupy|no GPU can be used here"):
        Trainer("Hover", device="cuda", settings=SHORT)
