"""Training with torch, in short: it learns, it is repeatable, and what it writes can be read elsewhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError
from microsim.learning.evaluation import evaluate
from microsim.learning.policy import load_policy

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.learning
SHORT = {"worlds": 128, "steps": 128 * 16 * 40, "target": 0.0, "check_worlds": 50, "check_every": 100}


def weights(policy: Any) -> bytes:
    return b"".join(part.tobytes() for layer in policy.layers for part in layer)


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    from microsim.learning.ppo import Trainer

    few = {**SHORT, "steps": 128 * 16 * 3}
    runs = [weights(Trainer("Hover", seed, settings=few).run()) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_short_training_gets_better() -> None:
    from microsim.learning.ppo import Trainer

    curve: list[Any] = []
    policy = Trainer("Patrol", 0, settings=SHORT).run(curve.append)
    rewards = np.array([each.reward for each in curve])
    assert np.nanmean(rewards[-5:]) > np.nanmean(rewards[:5]) + 10.0
    assert curve[-1].steps == SHORT["steps"]
    assert policy.about["steps"] == SHORT["steps"]


def test_the_command_trains_evaluates_and_writes_a_curve_and_onnx(tmp_path: Path) -> None:
    out, onnx = tmp_path / "hover.npz", tmp_path / "hover.onnx"
    settings = [word for name, value in {**SHORT, "steps": 20_000}.items() for word in ("--set", f"{name}={value}")]
    words = ["train", "Hover", "--out", str(out), "--onnx", str(onnx), "--worlds", "20", "--json", "--threads", "1"]
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


def test_agents_that_are_alike_share_a_policy_and_images_are_numbers() -> None:
    from microsim.learning.ppo import Trainer

    few = {"worlds": 4, "rollout": 4, "steps": 32, "minibatch": 16, "target": 0.0}
    swarm = Trainer("Swarm", settings=few).run()
    assert swarm.layers[0][0].shape[0] == 8
    assert swarm.layers[-1][0].shape[1] == 2
    assert swarm.actions(np.zeros((3, 4, 8), np.float32)).shape == (3, 8)
    camera = Trainer("CameraRover", settings=few).run()
    assert camera.layers[0][0].shape[0] == 24 * 32 * 3


def test_a_setting_that_does_not_exist_is_refused() -> None:
    from microsim.learning.ppo import Trainer

    with pytest.raises(UsageError, match="no setting 'rolout'; did you mean 'rollout'"):
        Trainer("Hover", settings={"rolout": 3})


def test_on_a_machine_without_a_gpu_training_there_is_refused() -> None:
    from microsim.learning.ppo import Trainer

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(RuntimeWarning), pytest.raises(UsageError, match="--device cuda"):  # it says why not
        Trainer("Hover", device="cuda", settings=SHORT)
