"""Golden images of the camera, and the same bits whatever runs it. `tests/golden/camera_scenes.py` draws them anew."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from microsim.engine.world import PALETTE
from tests.golden.camera_scenes import FOLDER, SCENES
from tests.golden.png import read_png

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", SCENES)
def test_the_picture_is_the_golden_one(name):
    assert np.array_equal(SCENES[name](), read_png(FOLDER / f"{name}.png"))


def test_before_noise_there_are_only_colours_of_the_palette():
    image = read_png(FOLDER / "all_classes.png").reshape(-1, 3)
    assert {tuple(colour) for colour in image.tolist()} == {tuple(colour) for colour in PALETTE.tolist()}


def golden_hashes():
    return {name: hashlib.sha256(read_png(FOLDER / f"{name}.png").tobytes()).hexdigest() for name in SCENES}


@pytest.mark.parametrize(
    "environment",
    [
        {"NUMBA_DISABLE_JIT": "1"},
        {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512_SKX", "PYTHONHASHSEED": "1"},
        {"NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "2"},
        pytest.param({"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, marks=pytest.mark.slow),
    ],
    ids=["uncompiled", "numpy without SIMD", "one thread", "generic processor"],
)
def test_another_process_draws_the_same_bits(environment, tmp_path):
    if "NUMBA_CPU_NAME" in environment:
        environment = environment | {"NUMBA_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.golden.camera_scenes", "--hashes"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == golden_hashes()
