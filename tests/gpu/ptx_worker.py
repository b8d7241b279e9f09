"""A process that runs batches on a GPU with the PTX of a folder: `python -m tests.gpu.ptx_worker FOLDER ROTATION`.

It waits for a line, so that several can start together, and prints what it found as JSON. ROTATION: with which batch it
begins, since the compiler's name of a kernel depends on what was compiled before.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from microsim.batch import cuda_loops
from microsim.engine.compiled import CACHE_FOLDER
from tests.unit.batch.test_devices import digests

NAMES = ("far apart", "generated")


def main(folder: Path, rotation: int) -> None:
    assert folder != CACHE_FOLDER
    cuda_loops.CACHE_FOLDER = folder  # of PTX; kernels of the CPU stay where they are
    compile_one, compiled = cuda_loops.ptx_of, []

    def ptx_of(*arguments: Any) -> bytes:
        compiled.append(arguments)
        return compile_one(*arguments)

    cuda_loops.ptx_of = ptx_of
    print("ready", flush=True)
    sys.stdin.readline()
    warnings.simplefilter("error", RuntimeWarning)  # a batch that falls back to the CPU warns of it
    order = NAMES[rotation % len(NAMES) :] + NAMES[: rotation % len(NAMES)]
    found = {name: digests(name, "cuda") for name in order}
    print(json.dumps({"digests": found, "compiled": len(compiled)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
