"""What a run must not depend on, each as a process environment that differs from the reference in that alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

FAST = 25.0  # times real time: paced, and still quick
SHORT_S = 0.5  # simulated; a tick without the compiler takes a hundred times as long

_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_OURS = ("PYTHONHASHSEED", "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", *_THREADS)


@dataclass(frozen=True)
class Environment:
    name: str
    about: str
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    rtf: float = 0.0  # 0: as fast as possible
    short_s: float | None = None  # only the first so many simulated seconds

    def process_variables(self) -> dict[str, str]:
        """Of the process, complete: those of this one, without what it might have set of the same kind."""
        kept = {key: value for key, value in os.environ.items() if key not in _OURS and not _is_compilers(key)}
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        return {**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0", **self.variables}


def _is_compilers(key: str) -> bool:
    return key.startswith(("NUMBA_CPU_", "NUMBA_DISABLE_JIT", "NUMBA_OPT"))


def environments(slow: bool = False) -> tuple[Environment, ...]:
    """The reference first; what this machine cannot vary is left out."""
    found = [
        Environment("reference", "as fast as possible, compiled for this processor"),
        Environment("hash_seed", "another PYTHONHASHSEED", {"PYTHONHASHSEED": "271828"}),
        Environment("one_thread", "one thread", dict.fromkeys(_THREADS, "1")),
        Environment("real_time", f"paced, {FAST:g} × real time", rtf=FAST),
        Environment("generic_cpu", "compiled for any processor of this kind", _generic_processor()),
    ]
    features = dispatched_features()
    if features:
        off = {"NPY_DISABLE_CPU_FEATURES": " ".join(features)}
        found.append(Environment("numpy_plain", f"NumPy without {', '.join(features)}", off))
    if slow:
        without = {"NUMBA_DISABLE_JIT": "1"}
        found.append(Environment("no_compiler", f"plain Python, the first {SHORT_S:g} s", without, short_s=SHORT_S))
    return tuple(found)


def dispatched_features() -> list[str]:
    """What NumPy uses of this processor beyond what it was built for."""
    try:
        umath = import_module("numpy._core._multiarray_umath")
        return [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    except (ImportError, AttributeError):  # NumPy's own affair, and it may move
        return []


def _generic_processor() -> dict[str, str]:
    """No vector units and no fused multiply-add; kernels kept in a folder of their own."""
    from microsim.engine.compiled import CACHE_FOLDER

    folder = Path(tempfile.gettempdir()) if CACHE_FOLDER is None else CACHE_FOLDER.parents[1]
    return {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": str(folder / "generic"),
    }
