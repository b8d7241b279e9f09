"""What the benchmarks measure is what they say."""

import subprocess
import sys

import numpy as np

from benchmarks.harness import peak_mb


def test_the_memory_of_a_process_is_its_own_and_not_that_of_the_largest_so_far() -> None:
    large = np.ones(40_000_000)  # 320 MB, which a child shares until it runs its own program
    command = [sys.executable, "-c", "print('ready', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        found = peak_mb(child.pid)
        child.communicate("\n", timeout=60)
    assert peak_mb() > large.nbytes / 1e6
    assert 1 < found < 100
