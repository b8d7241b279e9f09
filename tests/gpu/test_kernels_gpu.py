"""What a GPU runs: its triggers against exact fractions, and its PTX when processes share it. `make gpu` runs them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.both_devices import pair
from tests.gpu.ptx_worker import NAMES
from tests.support import bare, many
from tests.unit.batch.device_scenarios import assert_same
from tests.unit.batch.test_batch import scenario
from tests.unit.batch.test_devices import ROOT, digests
from tests.unit.engine.rate_samples import assert_worlds_fire, samples

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="these tests need CuPy and a GPU")


# ---- triggers


@pytest.mark.parametrize("seed", range(4))
def test_random_triggers_are_those_of_fractions(seed: int) -> None:
    from microsim.batch.cuda_loops import CudaLoops

    loops, ticks = _FromHost(CudaLoops()), 0
    for sample in samples(many(50_000), seed):
        assert_worlds_fire(loops, sample)
        ticks += len(sample.ticks)
    assert ticks >= many(40_000)


class _FromHost:
    """Takes ticks from the CPU's memory, where the samples are."""

    def __init__(self, loops: Any) -> None:
        self._loops = loops

    def last_firing(self, step: Any, begin: Any, ticks: int) -> Any:
        return self._loops.host(self._loops.last_firing(step, self._loops.array(begin), ticks))


@pytest.mark.parametrize(("rate", "physics_hz"), [(250 / 3, 250), (60 / 7, 60), (1 / 3, 1000), (7.3, 250 / 3)])
def test_worlds_at_different_ticks_read_their_sensors_as_on_the_cpu(rate: float, physics_hz: float) -> None:
    robots = {"rover": bare(start={"map_pose": {"x": 10, "y": 10}}, imu={"hz": rate}, gps={"hz": rate / 2})}
    batches = pair(scenario(robots=robots, physics_hz=physics_hz), 300)
    dice = np.random.default_rng(int(physics_hz))
    for ticks in (530, 20, 1090, 7, 700, 3):
        mask = dice.random(300) < 0.3
        for batch in batches:
            batch.step(ticks)
            batch.reset(mask, seeds=np.arange(mask.sum()))
        assert_same(batches)
        for name in ("rover/imu", "rover/gps"):
            on_cpu, on_gpu = (batch.loops.host(batch.sampled_at[name]) for batch in batches)
            assert on_gpu.tolist() == on_cpu.tolist()
    assert len(set(batches[0].tick.tolist())) > 5


# ---- PTX on disk


def run_together(folder: Path, processes: int) -> list[dict[str, Any]]:
    """What they found, which begin at the same moment."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "tests.gpu.ptx_worker", str(folder)]
    running = [subprocess.Popen([*command, str(k)], cwd=ROOT, **pipes) for k in range(processes)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [json.loads(each.splitlines()[-1]) for each in printed]


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, str]]:
    return {name: digests(name, "cpu") for name in NAMES}


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_start_together_without_ptx_all_run_on_the_gpu(
    tmp_path: Path, processes: int, expected: dict[str, dict[str, str]]
) -> None:
    found = run_together(tmp_path, processes)
    assert [each["digests"] for each in found] == [expected] * processes
    assert sum(each["compiled"] for each in found) >= len(list(tmp_path.glob("*.ptx"))) > 5
    assert {file.suffix for file in tmp_path.iterdir()} == {".ptx"}  # no part of a file is left
    assert run_together(tmp_path, 1) == [{"digests": expected, "compiled": 0}]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, expected: dict[str, dict[str, str]]) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    assert run_together(folder, 1)[0]["digests"] == expected
    return folder


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda whole: None,
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "one bit": lambda whole: whole[:-20] + bytes([whole[-20] ^ 4]) + whole[-19:],
    "zeros": lambda whole: bytes(len(whole)),
    "of an old version": lambda whole: whole.partition(b"\n")[2],
}


@pytest.mark.parametrize("kind", [*DAMAGE, "exchanged"])
def test_damaged_ptx_is_compiled_again(filled: Path, kind: str, expected: dict[str, dict[str, str]]) -> None:
    whole = {file: file.read_bytes() for file in sorted(filled.glob("*.ptx"))}
    if kind == "exchanged":  # each is the code of another kernel
        broken = dict(zip(whole, [*list(whole.values())[1:], next(iter(whole.values()))], strict=True))
    else:
        broken = {file: DAMAGE[kind](content) for file, content in list(whole.items())[::2]}
    for file, content in broken.items():
        file.unlink() if content is None else file.write_bytes(content)
    assert run_together(filled, 1) == [{"digests": expected, "compiled": len(broken)}]
    assert {file: file.read_bytes() for file in sorted(filled.glob("*.ptx"))} == whole
