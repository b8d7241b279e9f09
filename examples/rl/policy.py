"""The policy of the learning example: what the rover sees, weighed, is what it does.

It is its own mirror image: seen mirrored, it drives as fast and turns the other way. So half the weights do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

BEAMS = 15
EVEN = BEAMS // 2 + 1 + 2  # middle beam, sums of mirrored beams, goal ahead, speed: for how fast
ODD = BEAMS // 2 + 2  # differences of mirrored beams, goal to the left, turn rate: for how to turn
HIDDEN = 4
SIZE = HIDDEN * (EVEN + 1) + HIDDEN * ODD + 2 * HIDDEN + EVEN + 1 + ODD


def features(seen: Any) -> tuple[Any, Any]:
    """What a mirror leaves as it is, and what it turns round, of observations (…, 19)."""
    right, middle, left = seen[..., :7], seen[..., 7:8], seen[..., 14:7:-1]
    ahead, aside, speed, turn = (seen[..., BEAMS + k : BEAMS + k + 1] for k in range(4))
    near = 1.0 - np.concatenate([middle, 0.5 * (right + left)], axis=-1)
    return np.concatenate([near, ahead, speed], axis=-1), np.concatenate([right - left, aside, turn], axis=-1)


def actions(weights: Any, seen: Any) -> Any:
    """Actions (k, m, 2) of k policies (k, SIZE), each in m worlds: seen (k, m, 19)."""
    even, odd = features(seen)
    even = np.concatenate([even, np.ones_like(even[..., :1])], axis=-1)
    ends = np.cumsum([HIDDEN * (EVEN + 1), HIDDEN * ODD, HIDDEN, HIDDEN, EVEN + 1])
    gates, turns, faster, harder, pace, bend = np.split(weights, ends, axis=1)
    gate = np.tanh(even @ gates.reshape(-1, EVEN + 1, HIDDEN))  # how the situation is: the same for both sides
    turn = np.tanh(odd @ turns.reshape(-1, ODD, HIDDEN))  # to which side
    speed = even @ pace[..., None] + gate @ faster[..., None]
    omega = odd @ bend[..., None] + (gate * turn) @ harder[..., None]
    return np.tanh(np.concatenate([speed, omega], axis=-1))


def save(path: Path, weights: Any, curve: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, weights=np.asarray(weights, np.float32), curve=np.asarray(curve))


def load(path: Path) -> Any:
    with np.load(path) as stored:
        return stored["weights"].astype(np.float64)
