"""Disks that are slow, full or broken; and runs that are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from microsim.recording.bag import RecordOptions, open_bag
from microsim.recording.bag_model import BagError
from microsim.recording.maintenance import repair
from microsim.recording.recorder import Recorder
from microsim.recording.replay import Replay
from microsim.runner import Runner
from microsim.simulation import Simulation
from tests.recording_support import WORLD, files_of, fly, record

SMALL = RecordOptions(chunk_bytes=10_000, queue_bytes=40_000)


class SlowFile:
    """Writes when it is let."""

    def __init__(self, path: Path, gate: threading.Event) -> None:
        self.file, self.gate = path.open("xb", buffering=0), gate

    def write(self, data: Any) -> int:
        self.gate.wait()
        return self.file.write(data)

    def close(self) -> None:
        self.file.close()


class FullFile:
    """Takes so many bytes and no more."""

    def __init__(self, path: Path, room: int) -> None:
        self.file, self.room = path.open("xb", buffering=0), room

    def write(self, data: Any) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.file.write(data[: self.room])  # less than it was given, as a real one may
        self.room -= taken
        return taken

    def close(self) -> None:
        self.file.close()


def test_a_slow_disk_pauses_a_run_as_fast_as_possible_and_loses_nothing(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    sim = Simulation(WORLD, 3)
    recorder = Recorder(tmp_path / "slow", sim, SMALL, lambda path: SlowFile(path, gate))
    gate.clear()
    runner = threading.Thread(target=fly, args=(sim, recorder.tap))
    runner.start()
    time.sleep(0.5)
    waiting_at = sim.tick
    assert waiting_at < 120
    gate.set()
    runner.join()
    recorder.close()
    assert not recorder.error
    record(tmp_path / "quick", chunk_bytes=10_000)
    assert files_of(tmp_path / "slow") == files_of(tmp_path / "quick")


def test_a_slow_disk_ends_the_recording_of_a_run_in_real_time_and_not_the_run(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    runner = Runner(Simulation(WORLD, 3), 1000.0)
    recorder = Recorder(tmp_path / "bag", runner.sim, SMALL, lambda path: SlowFile(path, gate))
    recorder.attach(runner)
    gate.clear()
    runner.run(600)  # the disk does not write a byte in all that time
    assert runner.sim.tick == 600
    assert recorder.error
    gate.set()
    recorder.close()
    assert "the disk is too slow for real time" in recorder.error
    with Replay(open_bag(tmp_path / "bag")) as again:
        verdict = again.verify()
    assert verdict.is_identical
    assert verdict.is_cut
    assert "cut off" in str(verdict)


def record_onto(folder: Path, room: int) -> None:
    sim = Simulation(WORLD, 3)
    with Recorder(folder, sim, SMALL, lambda path: FullFile(path, room)) as recorder:
        fly(sim, recorder.tap, 600)


@pytest.mark.parametrize("room", [0, 3_000, 60_000])
def test_a_full_disk_ends_a_run_as_fast_as_possible_with_the_reason(tmp_path: Path, room: int) -> None:
    with pytest.raises(BagError, match="No space left on device"):
        record_onto(tmp_path / "bag", room)
    if room == 60_000:
        assert repair(tmp_path / "bag").messages > 50


def test_a_full_disk_does_not_end_a_run_in_real_time(tmp_path: Path) -> None:
    runner = Runner(Simulation(WORLD, 3), 1000.0)
    options = RecordOptions(chunk_bytes=10_000)
    recorder = Recorder(tmp_path / "bag", runner.sim, options, lambda path: FullFile(path, 60_000))
    recorder.attach(runner)
    runner.run(600)
    recorder.close()
    assert runner.sim.tick == 600
    assert "No space left on device" in recorder.error


def test_a_disk_that_is_full_at_the_very_end_is_told_of(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    recorder = Recorder(tmp_path / "bag", sim, RecordOptions(), lambda path: FullFile(path, 20_000))
    fly(sim, recorder.tap, 60)
    recorder.close()
    assert "No space left on device" in recorder.error


_RUN = """
import sys, time
from pathlib import Path
from microsim.recording.bag import RecordOptions
from microsim.recording.recorder import Recorder
from microsim.simulation import Simulation
from tests.recording_support import WORLD, fly
sim = Simulation(WORLD, 3)
recorder = Recorder(Path(sys.argv[1]), sim, RecordOptions(storage=sys.argv[2], chunk_bytes=10_000))
def tap(messages):
    recorder.tap(messages)
    if sim.tick == 300:
        print("far enough", flush=True)
        time.sleep(60)
fly(sim, tap, 400)
"""


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_killed_run_loses_at_most_the_last_chunk(tmp_path: Path, storage: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _RUN, str(tmp_path / "bag"), storage]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert process.stdout is not None
    assert process.stdout.readline() == b"far enough\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(BagError, match=r"repair"):
        open_bag(tmp_path / "bag")
    repaired = repair(tmp_path / "bag")
    assert repaired.last_ns > 4.5e9  # of five seconds
    with Replay(open_bag(tmp_path / "bag")) as again:
        verdict = again.verify()
    assert verdict.is_identical
    assert verdict.messages > 1300
    assert repair(tmp_path / "bag").damaged == ()  # is whole now
