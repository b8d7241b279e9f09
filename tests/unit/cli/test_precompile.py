"""A first run compiles in two processes: this one skips what the child compiles, and the child reports it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numba.core.config
import pytest

from microsim.cli import precompile
from microsim.engine.calls import sample_address, skipped_calls
from microsim.processes import ChildProcess, usable_cores
from microsim.scenario import load_scenario
from microsim.sensors import gps, odometry
from microsim.simulation import Simulation

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.skipif(bool(numba.core.config.DISABLE_JIT), reason="nothing is compiled")


def test_skipped_calls_do_nothing_and_leave_no_trace() -> None:
    before = Simulation("default").digest()
    with skipped_calls():
        assert sample_address(gps.sample) != 0
        nothing = Simulation("default")
        assert nothing.digest() != before  # no reading was filled in
    assert sample_address(gps.sample) != sample_address(odometry.sample)
    assert Simulation("default").digest() == before


def test_the_child_reports_that_the_tables_are_compiled() -> None:
    child = ChildProcess(precompile.__name__, os.environ)
    try:
        child.send(json.dumps(load_scenario("default").to_dict()).encode())
        answers = [json.loads(line) for line in child.answers]
    finally:
        how = child.end_gracefully()
    assert "tables" in answers, how
    assert set(answers) <= {"tables", 1}


def test_a_scenario_is_compiled_once(monkeypatch) -> None:
    scenario, runs = load_scenario("default"), []
    monkeypatch.setattr(precompile, "_in_two_processes", lambda scenario: runs.append("two"))
    prefix = f"test {os.getpid()} "
    for _ in range(2):
        precompile.precompile_scenario(scenario, lambda: runs.append("short"), prefix)
    assert runs == (["two", "short"] if usable_cores() > 1 else ["short"])


def test_the_first_second_of_a_recorded_run_compiles_what_writes_it() -> None:
    """In a process of its own: here another test may have recorded before."""
    program = """
from pathlib import Path
from microsim import Simulation
from microsim.cli.runs import rehearsal
from microsim.recording.attachment import Recording, RecordingOptions
from microsim.recording.chunk_assembly import _transcribe
from microsim.shipped import Chosen

for folder in (None, Path("never_made")):
    rehearsal(Simulation("flat"), [Recording(RecordingOptions(folder))], Chosen())
    print(len(_transcribe.signatures))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", "1"], done.stderr


ONE_KERNEL = """
import sys
from microsim.cli.precompile import compiling
from microsim.cli.terminal import set_quiet
from microsim.engine.compiled import SignatureFiles, kernel

set_quiet(True)

@kernel
def twice(x):
    return 2.0 * x

if "full" in sys.argv:
    def save(self, name, data):
        raise OSError(28, "No space left on device", name)
    SignatureFiles._save_data = save
for _ in range(2):
    with compiling():
        assert twice(4.0) == 8.0
"""


@pytest.mark.parametrize("way", ["unwritable", "full"])
def test_a_cache_that_cannot_be_written_is_reported_once_even_with_quiet(tmp_path: Path, way: str) -> None:
    file = tmp_path / "one.py"
    file.write_text(ONE_KERNEL)
    place = tmp_path / "cache"
    if way == "unwritable":
        place.touch()  # a file where the folder should be: root may write into any folder
    done = subprocess.run(
        [sys.executable, str(file), way], capture_output=True, text=True, check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(place), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    why = "Not a directory" if way == "unwritable" else "No space left on device"
    assert lines[0].startswith("microsim: compiled kernels cannot be kept (")
    assert why in lines[0]
    assert lines[0].endswith("set NUMBA_CACHE_DIR to a folder that can be written to")
