"""`robot_simulator`: the same seed and commands give the same bytes, in another process too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from microsim.parts.small_nodes.robot_maps import world_of_scenario
from microsim.parts.small_nodes.robot_simulator_node import PlanarPose
from tests.navigation import Hand

ROOT = Path(__file__).resolve().parents[3]
CROWD = (
    {"name": "loop", "path": [[30, 20], [34, 24], [30, 28]], "speed": 1.3},
    {"name": "drunk", "radius": 0.4, "walk": {"start": [26.0, 22.0], "speed": 0.9, "turn_every_s": 0.7}},
)


def digest(ticks: int = 120, seed: int = 7, **settings: object) -> str:
    """Two robots among everything there is: noise, scans, limits, obstacles, a timeout, an external pose."""
    everything = {
        "cycle_hz": 20.0,
        "pose_noise_std_m": 0.02,
        "yaw_noise_std_deg": 1.0,
        "max_linear_accel": 1.0,
        "max_linear_jerk": 4.0,
        "scan_hz": 5.0,
        "scan_beams": 90,
        "scan_noise_std_m": 0.01,
        "robots": ("a", "b"),
        "tf_tree": "map_odom_base",
    }
    hand = Hand(world_of_scenario("obstacles_arena"), CROWD, **{**everything, **settings}, seed=seed)
    hand.core.target(0, PlanarPose(25.0, 20.0, 0.3))
    hand.core.initial_pose(1, PlanarPose(30.3, 32.6, -2.0))
    for tick in range(ticks):
        if tick % 5 == 0 and not 40 <= tick < 90:
            hand.core.command(0, 1.2, 0.1)
        hand.core.command(1, 0.8, -0.3 if tick % 50 < 25 else 0.4)
        if tick == 60:
            hand.core.external_pose(1, PlanarPose(29.8, 32.8, -1.9))
        hand.step()
    return hand.core.digest()


GOLDEN = "cb73b7d729d0ed5729c8cef38975e8120133795433fc0bf6784867d84c8c96ee"  # say in CHANGELOG.md why it moved
PROGRAM = "from tests.parts.small_nodes.test_robot_simulator_determinism import digest; print(digest())"


@cache
def elsewhere(**variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_two_processes_with_different_hash_seeds_give_the_same_bytes():
    assert os.environ.get("PYTHONHASHSEED") != "4711"
    assert digest() == elsewhere(PYTHONHASHSEED="4711") == GOLDEN


@pytest.mark.slow
def test_kernels_that_are_not_compiled_give_the_same_bytes():
    assert elsewhere(NUMBA_DISABLE_JIT="1") == digest()


def test_a_run_again_is_the_same_and_another_seed_is_not():
    assert digest(40) == digest(40)
    assert digest(40) != digest(40, seed=8)


def test_the_core_knows_no_clock_file_or_dice():
    """Only the runner and paced_node.py know the wall clock."""
    impure = {"time", "datetime", "random", "os", "socket", "threading", "secrets", "uuid"}
    for name in ("robot_simulator_node", "robot_maps", "robot_simulator_settings"):
        tree = ast.parse((ROOT / "microsim" / "parts" / "small_nodes" / f"{name}.py").read_text("utf-8"))
        found = {
            (alias.name if isinstance(node, ast.Import) else node.module or "").split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        assert not found & impure, name
        assert "np.random" not in (ROOT / "microsim" / "parts" / "small_nodes" / f"{name}.py").read_text("utf-8")
