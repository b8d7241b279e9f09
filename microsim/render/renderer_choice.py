"""Which back end draws: a GPU where there is one that proves itself, otherwise the CPU. The pictures are the same."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from microsim.errors import UsageError, install_hint
from microsim.render import gpu
from microsim.render.palette_camera import CameraModel
from microsim.render.render_options import Choice, Say, nobody
from microsim.render.splat.activation import Splats, activate
from microsim.render.splat.picture import CpuRenderer, Exposure, Picture, Shot, Sky, SplatRenderer, lens_of
from microsim.threads import Threads


def open_renderer(splats: Splats, choice: Choice = "auto", threads: int = 0, say: Say = nobody) -> SplatRenderer:
    """`threads` 0: the usual number. `say` gets a line when something takes time or goes another way.

    Where `gpu` was requested and none can draw, that is an error. One that `auto` finds and that cannot is reported.
    """
    if choice == "cpu":
        return CpuRenderer(splats, Threads(threads))
    name = gpu.device_name()
    if name is None:
        problem = f"no GPU can be used here (it needs an NVIDIA driver and: {install_hint('gpu')})"
    else:
        say(f"preparing {name} for splats (compiled once, then kept) …")
        found = _on_gpu(splats, name)
        if not isinstance(found, str):
            return found
        problem = found
    if choice == "gpu":
        raise UsageError(f"{problem}; `auto` draws splats on the CPU where no GPU can")
    if name is not None:
        report(f"{problem}: splats are drawn on the CPU", say)
    return CpuRenderer(splats, Threads(threads))


def _on_gpu(splats: Splats, name: str) -> SplatRenderer | str:
    """The renderer, or why there is none."""
    problem = self_test()
    if problem is not None:
        return f"{name} failed its test ({problem})"
    try:
        return gpu.GpuRenderer(splats)
    except Exception as error:  # CuPy's and the driver's errors have no common class
        return f"{name} cannot hold the scene ({type(error).__name__}: {error})"


def report(text: str, say: Say) -> None:
    """To `say`; a program without one gets a warning of Python."""
    if say is nobody:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    else:
        say(text)


def self_test() -> str | None:
    """Draw one splat on both; None when every bit is the same, otherwise what is wrong."""
    row = np.zeros((1, 59), np.float32)
    row[0, :14] = 3.0, 0.1, 0.05, -1.0, -1.5, -2.0, 0.1, 0.2, 0.3, 0.9, 2.0, 0.8, -0.3, 0.4
    row[0, 14:] = np.arange(45) % 7 / 20.0
    splats = activate(row)
    size = 40, 30, 30.0, 31.0, 19.0, 15.0
    lenses = CameraModel(*size, (-0.1, 0.02, 0.0, 0.0, 0.0)), CameraModel(*size, (-0.1, 0.02, 0.0, 0.0), True)
    ahead = ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0))
    sky, exposure = Sky((0.5, 0.6, 0.7), (0.1, 0.2, 0.6)), Exposure(1.1, 2.0, 123456789, 7)
    shots = [Shot(lens_of(lens), (0.0, 0.0, 0.0), ahead, sky, exposure) for lens in lenses]
    try:
        found = gpu.GpuRenderer(splats).pictures(shots)
    except Exception as error:  # CuPy's and the driver's errors have no common class
        return f"{type(error).__name__}: {error}"
    return _difference(found, CpuRenderer(splats).pictures(shots))


def _difference(found: Sequence[Picture], expected: Sequence[Picture]) -> str | None:
    wrong = sum(
        sum(
            np.count_nonzero(x != y)
            for x, y in zip((a.colours, a.depths, a.owners), (b.colours, b.depths, b.owners), strict=True)
        )
        for a, b in zip(found, expected, strict=True)
    )
    return f"{wrong} values differ from the CPU's" if wrong else None
