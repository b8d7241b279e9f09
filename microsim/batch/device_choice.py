"""Where a batch runs: on the CPU, or on a GPU that has shown that it gives the CPU's bits."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from microsim.batch.batch_columns import Loops
from microsim.batch.host_loops import HostLoops
from microsim.engine.compiled import is_checked, plain
from microsim.errors import PluginError, UsageError, install_hint, unknown
from microsim.scenario import Scenario

if TYPE_CHECKING:
    from microsim.batch.batch_simulation import BatchSimulation

DEVICES = ("cpu", "cuda", "auto")
TEST_WORLDS = 40
CHECKED_S, MOST_CHECKED = 10.0, 2000  # seconds and ticks that a plug-in's kernels run on the CPU first, with checks

_proven: set[Any] = set()  # kernels that gave the CPU's bits in this process


def choose_loops(
    device: str | Loops, scenario: Scenario, sensors: Iterable[str] | None, batch: type[BatchSimulation]
) -> Loops:
    if not isinstance(device, str):
        return device
    if device not in DEVICES:
        raise UsageError(unknown("no device", repr(device), device, DEVICES))
    if device == "cpu":
        return HostLoops()
    found = cuda_loops()
    problem = found if isinstance(found, str) else self_test(found, scenario, sensors, batch)
    if not problem and not isinstance(found, str):
        return found
    if device == "cuda":
        raise UsageError(f"{problem}; device='auto' runs the batch on the CPU where no GPU can run it")
    warnings.warn(f"{problem}: the batch runs on the CPU", RuntimeWarning, stacklevel=3)
    return HostLoops()


@cache
def cuda_loops() -> Loops | str:
    """The GPU, or why there is none."""
    try:
        from microsim.batch.cuda_loops import CudaLoops

        return CudaLoops()
    except ImportError as error:
        return f"a batch on a GPU needs {error.name or error}: {install_hint('gpu')}"
    except Exception as error:  # CuPy's and the driver's errors have no common class
        return f"no GPU can be used here ({type(error).__name__}: {error})"


def self_test(loops: Loops, scenario: Scenario, sensors: Iterable[str] | None, batch: type[BatchSimulation]) -> str:
    """Run some worlds on both, for kernels that have not been compared yet; what differs, or ""."""
    chosen = None if sensors is None else list(sensors)
    wanted = batch(scenario, TEST_WORLDS, sensors=chosen, device=HostLoops())
    kernels = wanted.kernels()
    if any(_is_plugins(kernel) for kernel in kernels):
        _exercise(wanted)  # every time: a fault may depend on the scenario, and a GPU would not notice
        wanted.step(min(math.ceil(CHECKED_S * scenario.physics_hz), MOST_CHECKED))
        wanted = batch(scenario, TEST_WORLDS, sensors=chosen, device=HostLoops())
    if kernels <= _proven:
        return ""
    try:
        found = batch(scenario, TEST_WORLDS, sensors=chosen, device=loops)
        for each in (wanted, found):
            _exercise(each)
        differing = difference(found, wanted)
    except (UsageError, PluginError):
        raise
    except Exception as error:  # compilers, CuPy and drivers have no common class
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
        return f"the GPU cannot run this scenario ({type(error).__name__}: {reason[0] if reason else ''})"
    if differing:
        return f"the GPU does not give the CPU's bits ({differing})"
    _proven.update(kernels)
    return ""


def _is_plugins(kernel: Any) -> bool:
    """Of a plug-in: compiled with checks on a CPU."""
    form = plain(kernel)
    return isinstance(form, FunctionType) and is_checked(form)


def _exercise(batch: BatchSimulation) -> None:
    for ticks in (7, 1, 30):
        for robot in batch.robots:
            commands = batch.commands(robot)
            varied = (np.arange(commands.size) * 37.0 + ticks) % 61.0 / 10.0 - 3.0
            commands[...] = batch.loops.array(varied.reshape(commands.shape))
        batch.step(ticks)
        batch.reset([0, 1], seeds=[5, 6])


def difference(batch: BatchSimulation, other: BatchSimulation) -> str:
    """Which arrays of two batches differ in any bit, and where readings are under way at other times."""
    wrong, theirs = [], other.snapshot().arrays
    for name, one in batch.snapshot().arrays.items():
        if name in theirs:  # cameras that are drawn on a GPU have arrays of their own
            count = int((_bits(batch.loops.host(one)) != _bits(other.loops.host(theirs[name]))).sum())
            if count:
                wrong.append(f"{count} bytes of {name}")
    for name, line in batch.worlds.lines.items():
        their_line = other.worlds.lines[name]
        if [line.times(world) for world in range(batch.n)] != [their_line.times(world) for world in range(other.n)]:
            wrong.append(f"what is under way of {name}")
    return ", ".join(wrong)


def _bits(array: Any) -> Any:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
