"""Kernels of plug-ins: whatever is wrong in one, the run ends with one sentence, and no memory is damaged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.unit.engine.plugin_kernel_faults import KINDS, Case, as_json, random_case

ROOT = Path(__file__).resolve().parents[3]


def outcomes(folder: Path, cases: list[Case], **environment: str) -> list[dict[str, str]]:
    (folder / "cases.json").write_text(as_json(cases))
    command = [sys.executable, "-m", "tests.unit.engine.plugin_kernel_faults", str(folder)]
    variables = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", **environment}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""  # in particular not "Exception ignored in"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(folder: Path, cases: list[Case], **environment: str) -> None:
    found = outcomes(folder, cases, **environment)
    assert len(found) == len(cases)
    for number, (case, errors) in enumerate(zip(cases, found, strict=True)):
        for way, text in errors.items():
            about = f"{case}, {way}: {text}"
            place = re.match(rf"{re.escape(str(folder))}/plugins_{number}/part\.py:(\d+): ", text)
            assert place is not None, about
            assert int(place[1]) in case.lines, about
            assert case.expected in text, about
            assert "\n" not in text, about
            if not case.is_built:
                assert re.search(rf"failed at tick {case.start if way != 'advance' else ''}\d*: ", text), about


def test_a_fault_in_a_kernel_ends_every_run_with_one_sentence(tmp_path: Path) -> None:
    random = Random(7)
    some = ("raise", "write", "helper", "division", "more", "unknown name", "generator")
    check(tmp_path, [random_case(random, about) for about in some])


def test_it_does_so_in_plain_python_too(tmp_path: Path) -> None:
    random = Random(8)
    some = ("raise", "read", "write", "helper", "division", "fewer", "generator")
    check(tmp_path, [random_case(random, about) for about in some], NUMBA_DISABLE_JIT="1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_fault_in_a_kernel_ends_every_run_with_one_sentence(tmp_path: Path, seed: int) -> None:
    random = Random(100 + seed)
    check(tmp_path, [random_case(random, about) for about in (*KINDS, *KINDS)])
