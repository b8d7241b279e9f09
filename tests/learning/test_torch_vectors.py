"""Gymnasium's own conversion of vectors to torch."""

from typing import Any

import pytest

from microsim.parts.learning import make_vec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.learning


def test_gymnasium_turns_a_vector_into_one_of_torch() -> None:
    from gymnasium.wrappers.vector import NumpyToTorch

    env: Any = make_vec("Hover", 2, wrappers=[NumpyToTorch], autoreset_mode="SameStep", max_episode_steps=2)
    seen, _ = env.reset(seed=1)
    assert isinstance(seen, torch.Tensor)
    for _ in range(2):
        seen, rewards, *_, info = env.step(torch.zeros(2, 4))
    assert isinstance(rewards, torch.Tensor)
    assert info["final_obs"].shape == seen.shape
    assert isinstance(info["final_info"]["success"], torch.Tensor)
    again, _ = env.reset(seed=5, options={"reset_mask": torch.tensor([True, False])})
    assert (again[1] == seen[1]).all()
    assert (again[0] != seen[0]).any()
