"""Kernels as PTX: the code that a GPU runs, with the CPU's rounding.

numba-cuda turns a function into NVVM's language, and NVVM turns that into PTX. NVVM is called here and not by
numba-cuda, for three reasons. It must not fuse multiplications and additions, which would round once instead of twice.
The result must be PTX: linking LTO-IR would fuse them after all. And `min` and `max` must pick the argument that they
pick on the CPU, also between 0.0 and -0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

OPTIONS = ("-opt=3", "-fma=0", "-ftz=0", "-prec-div=1", "-prec-sqrt=1")

# numba's `max(x, y)` on the CPU is y if y > x, else x
_CHOICE = """define linkonce_odr double @__nv_{name}(double %x, double %y) alwaysinline {{
  %is_second = fcmp {order} double %y, %x
  %chosen = select i1 %is_second, double %y, double %x
  ret double %chosen
}}
"""
_MODULE = """target triple = "nvptx64-nvidia-cuda"
target datalayout = "{layout}"
{functions}
!nvvmir.version = !{{!0}}
!0 = !{{i32 {version[0]}, i32 {version[1]}, i32 {version[2]}, i32 {version[3]}}}
"""


def ptx_of(function: Callable[..., None], arguments: int, capability: tuple[int, int]) -> bytes:
    """The PTX of a kernel of that many 64-bit integers, for GPUs of a compute capability."""
    from cuda.bindings import nvvm
    from numba.core import types
    from numba.cuda.compiler import compile_cuda, kernel_fixup
    from numba.cuda.cudadrv.nvvm import NVVM, llvm_replace

    _allow_new_numpy()
    made = compile_cuda(function, types.void, (types.int64,) * arguments, cc=capability)
    kernel_fixup(made.library.get_function(made.fndesc.llvm_func_name), False)
    modules = [llvm_replace(text).encode() for text in made.library.llvm_strs]
    functions = "".join(_CHOICE.format(name=name, order=order) for name, order in (("fmax", "ogt"), ("fmin", "olt")))
    ours = _MODULE.format(layout=NVVM().data_layout, functions=functions, version=nvvm.ir_version())
    options = [f"-arch=compute_{capability[0]}{capability[1]}", *OPTIONS]
    program = nvvm.create_program()
    try:
        for module in (*modules, ours.encode()):
            nvvm.add_module_to_program(program, module, len(module), "")
        library = _libdevice()
        nvvm.lazy_add_module_to_program(program, library, len(library), "")
        nvvm.compile_program(program, len(options), options)
        code = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, code)
    finally:
        nvvm.destroy_program(program)
    return bytes(code).rstrip(b"\0")


def _libdevice() -> bytes:
    """NVIDIA's functions on numbers (sqrt, floor, frexp, …), which come with NVVM."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    found: Any = load_nvidia_dynamic_lib("nvvm").abs_path
    folders = [parent / name for parent in Path(found).parents for name in ("libdevice", "nvvm/libdevice")]
    for folder in folders:
        if (folder / "libdevice.10.bc").is_file():
            return (folder / "libdevice.10.bc").read_bytes()
    raise FileNotFoundError(f"libdevice.10.bc is not beside {found}")


def _allow_new_numpy() -> None:
    """numba-cuda 0.30 overloads `numpy.row_stack` while it loads, which NumPy 2.5 no longer has."""
    import numpy as np

    if not hasattr(np, "row_stack"):
        vars(np)["row_stack"] = np.vstack
        try:
            import numba.cuda.np.arrayobj  # noqa: F401
        finally:
            del vars(np)["row_stack"]


def compiler_version() -> tuple[Any, ...]:
    """What decides the PTX beside the source."""
    import numba
    import numba_cuda
    from cuda.bindings import nvvm

    ours = OPTIONS, _CHOICE, _MODULE
    return numba.__version__, numba_cuda.__version__, nvvm.version(), nvvm.ir_version(), ours
