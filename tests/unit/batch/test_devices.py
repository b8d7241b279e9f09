"""Batches on a GPU, as far as that can be tested without one: in numba's CUDA simulator, and by looking at the code."""

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.batch import BatchSimulation, device_choice
from microsim.batch.host_loops import HostLoops
from microsim.errors import MissingExtraError, PluginError, UsageError
from tests.support import bare
from tests.unit.batch.device_scenarios import SOURCES, assert_complete, assert_same, drive, sensors_on_gpu
from tests.unit.engine.plugin_kernel_faults import Case
from tests.unit.engine.rate_samples import assert_worlds_fire, samples
from tests.unit.engine.test_records import change_all

ROOT = Path(__file__).resolve().parents[3]
N = 3


def digests(name: str, device: Any) -> dict[str, str]:
    """Of every array of a few worlds that were driven, reset, forked and restored."""
    batch = BatchSimulation(SOURCES[name], N, sensors=sensors_on_gpu(SOURCES[name]), device=device)
    assert batch.device == (device if isinstance(device, str) else device.name)
    dice = np.random.default_rng(4)
    for ticks in (4, 9, 1):
        drive([batch], dice, ticks)
        batch.reset([1], seeds=[77 + ticks])
    snapshot = batch.snapshot([2, 0])
    drive([batch], dice, 5)
    batch.restore(snapshot)
    twin = batch.fork([0, 1])
    drive([twin], dice, 5)
    places = batch.free_places("a place", (2.0, 18.0), (2.0, 18.0))
    arrays = {**batch.snapshot().arrays, **{f"twin {k}": v for k, v in twin.snapshot().arrays.items()}, "free": places}
    found = {key: np.ascontiguousarray(batch.loops.host(each)) for key, each in arrays.items()}
    return {key: hashlib.sha256(each.tobytes()).hexdigest() for key, each in found.items()}


def fire_everywhere() -> None:
    """A GPU's triggers are those of fractions too."""
    from microsim.batch.cuda_loops import CudaLoops

    for sample in samples(160, seed=5):
        assert_worlds_fire(CudaLoops(), sample)


@pytest.fixture(scope="module")
def simulated() -> dict[str, dict[str, str]]:
    """The digests from a process in which numba's CUDA simulator stands for the GPU."""
    code = (
        "import json; from microsim.batch import device_choice; device_choice.TEST_WORLDS = 2;"
        "from tests.unit.batch.test_devices import SOURCES, digests;"
        "from tests.unit.batch.test_devices import fire_everywhere; fire_everywhere();"
        "print(json.dumps({name: digests(name, 'cuda') for name in SOURCES}))"
    )
    flags = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **flags}, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_the_loops_of_a_gpu_give_the_cpus_bits(name: str, simulated: dict[str, dict[str, str]]) -> None:
    """The last frame that did not fail has another form where a GPU draws."""
    assert_complete()
    found = simulated[name], digests(name, "cpu")
    shared = [{key: value for key, value in each.items() if ":good" not in key} for each in found]
    assert shared[0] == shared[1]


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler for GPUs; it needs numba-cuda and NVVM, but no GPU."""
    needed = "pip install numba-cuda nvidia-nvvm (Linux on x86-64; part of the extra `test`)"
    pytest.importorskip("numba_cuda", reason=needed)
    pytest.importorskip("cuda.bindings.nvvm", reason=needed)
    import numba.cuda.dispatcher

    capability = types.SimpleNamespace(compute_capability=(8, 0))
    monkeypatch.setattr(numba.cuda.dispatcher, "get_current_device", lambda: capability)


@pytest.mark.usefixtures("compiler")
def test_a_kernel_of_records_compiles_for_a_gpu_and_rounds_as_on_the_cpu() -> None:
    from microsim.batch.cuda_compiler import ptx_of

    def loop(address: int, tick: int) -> None:
        change_all(address, tick)

    text = ptx_of(loop, 2, (8, 0)).decode()
    assert not re.search(r"\b(fma|mad)\.[a-z.]*f(32|64)", text)
    assert re.search(r"\bmul\.rn\.f64", text)
    assert re.search(r"\bst\.[a-z.]*f64", text)


@pytest.fixture(scope="module")
def asked() -> dict[tuple[Any, Any], int]:
    """The loops that a GPU is to run for all of these batches, and the number of their arguments."""
    from microsim.batch.camera_columns import CameraColumns
    from microsim.batch.cuda_loops import CudaLoops

    found: dict[tuple[Any, Any], int] = {}

    class Listing(CudaLoops):
        def __init__(self) -> None:
            self.xp = np

        def array(self, values: Any) -> Any:
            return values.copy()

        def launch(self, count: int, make: Any, constants: Any, *arguments: int) -> None:
            found[make, constants] = len(arguments) + 1

    for source in SOURCES.values():
        batch = BatchSimulation(source, N, sensors=sensors_on_gpu(source), device=Listing())
        batch.step(3)
        batch.reset([1])
        batch.free_places("a place", (2.0, 18.0), (2.0, 18.0))
        batch.loops.sincos(np.zeros(N), np.zeros(N), np.zeros(N))
        for sensor in batch._sensors.values():
            if isinstance(sensor, CameraColumns):
                sensor._has_left[:] = 1  # nothing exposes frames here: say that they are due
                sensor.finish(np.arange(N), batch.tick)
    kinds = {make.__name__ for make, _ in found}
    assert kinds >= {"move_loop", "sense_loop", "take_loop", "start_loop", "settle_loop", "layout_loop"}
    drawing = {constants[0].__name__ for make, constants in found if make.__name__ == "frame_loop"}
    assert drawing == {"place_shape", "aim_shape", "aim_ground", "see_pixel", "sum_in_row", "finish_pixel"}
    return found


def assert_rounds_as_the_cpu(make: Any, constants: Any, arguments: int) -> int:
    """And the number of multiplications in the loop."""
    from microsim.batch.cuda_compiler import ptx_of

    loop = make(*constants)
    assert len(inspect.signature(loop).parameters) == arguments
    text = ptx_of(loop, arguments, (8, 0)).decode()
    assert not re.search(r"\b(fma|mad)\.[a-z.]*f(32|64)", text), (make, constants)
    # of two numbers they treat NaN and -0.0 in another way; with a constant that is not -0.0 they do the same
    registers = r"\b(min|max)\.f64\s+%fd\d+, %fd\d+, (%fd|0d8000000000000000)"
    assert not re.search(registers, text), (make, constants)
    assert not re.search(r"\b(mul|add|sub)\.f(32|64)", text), "without .rn the driver may fuse it"
    return len(re.findall(r"\bmul\.rn\.f64", text))


@pytest.mark.usefixtures("compiler")
def test_no_code_for_a_gpu_fuses_multiplications_and_additions(asked: dict[tuple[Any, Any], int]) -> None:
    """One loop of each kind, since each takes a second to compile, and those of many robots ten. The others: below."""
    of_each_kind: dict[str, Any] = {}
    for (make, constants), arguments in asked.items():
        if "move_" not in make.__name__ and "quiet_" not in make.__name__:
            of_each_kind.setdefault(make.__name__, (make, constants, arguments))
    assert len(of_each_kind) > 8
    assert sum(assert_rounds_as_the_cpu(*each) for each in of_each_kind.values()) > 50


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_no_code_at_all_for_a_gpu_fuses_multiplications_and_additions(asked: dict[tuple[Any, Any], int]) -> None:
    multiplications = 0
    for (make, constants), arguments in asked.items():
        if make.__name__ == "move_loop" and len(constants[0]) > 2:
            continue  # 20 s to compile what others have: `quiet_loop` these robots, that of two robots their contacts
        multiplications += assert_rounds_as_the_cpu(make, constants, arguments)
    assert multiplications > 1000


def test_without_a_gpu_a_batch_on_a_gpu_is_refused_and_an_automatic_choice_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_choice, "cuda_loops", lambda: "no GPU can be used here (none)")
    with pytest.raises(UsageError, match=r"no GPU can be used here \(none\); device='auto' runs"):
        BatchSimulation(SOURCES["flat"], N, device="cuda", sensors=["rover/scan"])
    with pytest.warns(RuntimeWarning, match=r"no GPU can be used here \(none\): the batch runs on the CPU") as found:
        batch = BatchSimulation(SOURCES["flat"], N, device="auto", sensors=["rover/scan"])
    assert len(found) == 1
    assert batch.device == "cpu"
    other = BatchSimulation(SOURCES["flat"], N, sensors=["rover/scan"])
    drive([batch, other], np.random.default_rng(1), 20)
    assert_same([batch, other])


class Wrong(HostLoops):
    """A GPU that is off by the last bit of one number."""

    name = "cuda"

    def move(self, batch: Any, ticks: int, begin: int, end: int) -> None:
        super().move(batch, ticks, begin, end)
        state = batch.rows("car")
        state[0, 5] = np.nextafter(state[0, 5], np.inf)


def test_a_gpu_that_differs_in_one_bit_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "cuda_loops", Wrong)
    monkeypatch.setattr(device_choice, "_proven", set())
    with pytest.raises(UsageError, match=r"does not give the CPU's bits \(\d+ bytes of car:state"):
        BatchSimulation(SOURCES["flat"], N, device="cuda", sensors=())
    with pytest.warns(RuntimeWarning, match=r"does not give the CPU's bits \(\d+ bytes of car:state"):
        batch = BatchSimulation(SOURCES["flat"], N, device="auto", sensors=())
    assert batch.device == "cpu"


def test_a_self_test_is_made_once_for_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    exercised = []
    monkeypatch.setattr(device_choice, "cuda_loops", type("Right", (HostLoops,), {"name": "cuda"}))
    monkeypatch.setattr(device_choice, "_proven", set())
    monkeypatch.setattr(device_choice, "_exercise", lambda batch: exercised.append(batch.sensors))
    for sensors in ([], ["rover/scan"], [], ["rover/scan"]):
        assert BatchSimulation(SOURCES["flat"], N, device="cuda", sensors=sensors).device == "cuda"
    assert exercised == [(), (), ("rover/scan",), ("rover/scan",)]


class Reckless(HostLoops):
    """A GPU: nothing that a kernel does there is noticed."""

    name = "cuda"

    def sense(self, *arguments: Any) -> None:
        with suppress(PluginError):
            super().sense(*arguments)


def test_kernels_of_plug_ins_run_with_checks_before_every_batch_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same kernel has passed before: a fault can depend on the scenario."""
    monkeypatch.setattr(device_choice, "cuda_loops", Reckless)
    monkeypatch.setattr(device_choice, "_proven", set())
    body = "reading[1] = settings[int(settings[0])]"
    source = Case("sensor", "", body, "", start=500).source.replace("(1.0, 2.0, 3.0, 4.0)", "(context.settings.hz,)")
    (tmp_path / "part.py").write_text(source)
    rover = bare(start={"map_pose": {"x": 5, "y": 5}}, sensors={"gauge": {"type": "gauge", "hz": 60}})
    data = {"plugins": [str(tmp_path)], "robots": {"rover": rover}, "map": {"size_xy_cells": [20, 20]}}
    for device in ("cuda", "auto"):
        with pytest.raises(PluginError, match=r"part\.py:\d+: sensor rover/gauge .* failed at tick 5\d\d: IndexError"):
            BatchSimulation(data, N, device=device)
    (tmp_path / "part.py").write_text(source.replace("(context.settings.hz,)", "(context.settings.hz - 60.0,)"))
    assert BatchSimulation(data, N, device="cuda").device == "cuda"
    rover["sensors"]["gauge"]["hz"] = 61  # the same kernel
    with pytest.raises(PluginError, match="IndexError"):
        BatchSimulation({**data, "physics_hz": 61}, N, device="cuda")


def test_other_devices_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no device 'cude'; did you mean 'cuda'"):
        BatchSimulation(SOURCES["flat"], N, device="cude")


def test_an_environment_on_a_gpu_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="gives torch tensors: pip install torch"):
        gymnasium.make_vec("microsim.parts.learning:MicroSim/Hover-v0", num_envs=2, device="cuda")
