"""The same bytes in every process: another hash seed, other threads, processor features off, no compiler."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
DIGESTS = json.loads((GOLDEN / "digests.json").read_text(encoding="utf-8"))
UPDATE = "if this was meant, run `python tests/golden/update.py` and say why in CHANGELOG.md, under Digests"

PROGRAM = """
import json, numba, numba.core.config as config
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from mission import run_short_drive, run_short_mission
print(json.dumps({
    "digest": run_short_mission(),
    "drive": run_short_drive(),
    "dispatched": [name for name in __cpu_dispatch__ if __cpu_features__.get(name)],
    "compiled": not config.DISABLE_JIT,
    "cpu": config.CPU_NAME,
    "threads": config.NUMBA_NUM_THREADS,
}))
"""


@cache
def run(**variables):
    """The short mission in a process of its own, with environment variables set."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_DISABLE", "NPY_"))}
    environment |= {"PYTHONPATH": f"{GOLDEN.parents[1]}{os.pathsep}{GOLDEN}", **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["drive"] == DIGESTS["short_drive"], UPDATE
    return result


def test_a_process_of_its_own():
    assert run(PYTHONHASHSEED="0")["digest"] == DIGESTS["short_mission"], UPDATE


def test_another_hash_seed():
    assert run(PYTHONHASHSEED="1")["digest"] == run(PYTHONHASHSEED="random")["digest"] == DIGESTS["short_mission"]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_one_or_two_threads(threads):
    variables = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    result = run(**variables)
    assert result["threads"] == int(threads)
    assert result["digest"] == DIGESTS["short_mission"]


def test_numpy_without_the_features_of_this_processor():
    features = run(PYTHONHASHSEED="0")["dispatched"]
    result = run(NPY_DISABLE_CPU_FEATURES=" ".join(features))
    assert result["dispatched"] == []
    assert result["digest"] == DIGESTS["short_mission"]


def test_without_the_compiler():
    result = run(NUMBA_DISABLE_JIT="1")
    assert not result["compiled"]
    assert result["digest"] == DIGESTS["short_mission"]


@pytest.mark.slow
@pytest.mark.parametrize(("cpu", "features"), [("generic", ""), ("x86-64-v3", "")])
def test_compiled_for_another_processor(cpu, features):
    """Compiles every kernel anew: without FMA and AVX, or with AVX2 alone. The code is kept for the next run."""
    if cpu.startswith("x86") and os.uname().machine != "x86_64":
        pytest.skip("a name of x86")
    result = run(NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features)
    assert result["cpu"] == cpu
    assert result["digest"] == DIGESTS["short_mission"]


CHECKED = """
import json
import mission
from microsim.batch import BatchSimulation
found = {"short_mission": mission.run_short_mission(), "short_drive": mission.run_short_drive()}
found["bundle_drive"] = mission.run_bundle_drive()
for name in mission.SCENARIOS:
    found["mission" if name == "default" else f"mission_{name}"] = mission.run_mission(name)
for scenario in ("default", "obstacles_arena"):
    BatchSimulation(scenario, n=70, threads=2).step(130)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_no_kernel_of_ours_uses_an_index_that_is_out_of_range():
    """All are compiled with checks of every index, as those of plug-ins always are, and give the same bytes."""
    variables = {**os.environ, "PYTHONPATH": f"{GOLDEN.parents[1]}{os.pathsep}{GOLDEN}", "NUMBA_BOUNDSCHECK": "1"}
    command = [sys.executable, "-c", CHECKED]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ignored" not in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {name: DIGESTS[name] for name in found}, UPDATE
