"""Disks that are slow, full or broken; and runs that are killed."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from microsim.cli.terminal import interrupts_end_the_run
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_model import BagError
from microsim.recording.bag_replay import Replay
from microsim.recording.maintenance import look, repair
from microsim.recording.recorder import Recorder
from microsim.runner import Runner
from microsim.simulation import Simulation
from tests.forked_python import forked_python
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
    runner = threading.Thread(target=fly, args=(sim, recorder.on_messages))
    runner.start()
    while recorder._disk.waiting_bytes < 20_000:  # it is full with the next portion, of 10,000 and more
        time.sleep(0.01)
    assert sim.tick < 120
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
    assert stopped_at(recorder.error) == round(look(tmp_path / "bag").last_ns / 1e9, 3)
    with Replay(open_bag(tmp_path / "bag")) as again:
        verdict = again.verify()
    assert verdict.is_identical
    assert verdict.is_cut
    assert "cut off" in str(verdict)


def record_onto(folder: Path, room: int) -> None:
    sim = Simulation(WORLD, 3)
    with Recorder(folder, sim, SMALL, lambda path: FullFile(path, room)) as recorder:
        fly(sim, recorder.on_messages, 600)


@pytest.mark.parametrize("room", [0, 3_000, 120_000])
def test_a_full_disk_ends_a_run_as_fast_as_possible_with_the_reason(tmp_path: Path, room: int) -> None:
    with pytest.raises(BagError, match="No space left on device"):
        record_onto(tmp_path / "bag", room)
    if room == 120_000:
        assert repair(tmp_path / "bag").messages > 50


def stopped_at(error: str) -> float:
    found = re.match(r"the recording stopped at (\d+\.\d{3}) s: ", error)
    assert found is not None, error
    return float(found[1])


@pytest.mark.parametrize("rtf", [0.0, 1000.0])
def test_a_full_disk_is_reported_with_the_time_up_to_which_the_bag_holds_the_run(tmp_path: Path, rtf: float) -> None:
    """Not with the time that the run had reached while the disk had already failed."""
    runner = Runner(Simulation(WORLD, 3), rtf)
    options = RecordOptions(chunk_bytes=10_000)
    recorder = Recorder(tmp_path / "bag", runner.sim, options, lambda path: FullFile(path, 100_000))
    recorder.attach(runner)
    with suppress(BagError):  # as fast as possible, the run ends with its recording
        runner.run(600)
    recorder.close()
    assert stopped_at(recorder.error) == round(repair(tmp_path / "bag").last_ns / 1e9, 3)


def test_a_disk_on_which_nothing_fits_is_reported_as_that(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    recorder = Recorder(tmp_path / "bag", sim, SMALL, lambda path: FullFile(path, 9_000))
    sim.step(5)
    recorder.close()
    assert recorder.error.startswith("the recording stopped before its first tick was written: ")


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
    fly(sim, recorder.on_messages, 60)
    recorder.close()
    assert "No space left on device" in recorder.error


_RUN = """
import sys, time
from pathlib import Path
from microsim.recording.bag_io import RecordOptions
from microsim.recording.recorder import Recorder
from microsim.simulation import Simulation
from tests.recording_support import WORLD, fly
sim = Simulation(WORLD, 3)
recorder = Recorder(Path(sys.argv[1]), sim, RecordOptions(storage=sys.argv[2], chunk_bytes=10_000))
def on_messages(messages):
    recorder.on_messages(messages)
    if sim.tick == 300:
        while recorder._disk.waiting_bytes:
            time.sleep(0.01)
        print("far enough", flush=True)
        time.sleep(60)
fly(sim, on_messages, 400)
"""


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_killed_run_loses_at_most_the_last_chunk(tmp_path: Path, storage: str) -> None:
    root = Path(__file__).parents[3]
    command = [*forked_python(), "-c", _RUN, str(tmp_path / "bag"), storage]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert process.stdout is not None
    assert process.stdout.readline() == b"far enough\n"
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


@contextmanager
def recorded_run(folder: Path, terminal: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A run in real time that records; its output goes to that terminal. Telemetry shows that it has begun."""
    root = Path(__file__).parents[3]
    telemetry = folder / "telemetry.jsonl"
    command = [sys.executable, "-m", "microsim", "run", "flat", "--transport", "none", "--record", str(folder / "bag")]
    output = subprocess.DEVNULL if terminal is None else terminal
    process = subprocess.Popen(
        [*(() if terminal is None else ("setsid", "--ctty")), *command, "--telemetry", str(telemetry)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "TERM": "xterm"},
        stdin=output,
        stdout=output,
        stderr=output,
        preexec_fn=heed_hangups,  # noqa: PLW1509 - it only sets a signal
    )
    try:
        deadline = time.monotonic() + 120
        while not (telemetry.exists() and telemetry.stat().st_size) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def heed_hangups() -> None:
    """The tests themselves may have been started with nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_by_a_signal_finishes_its_bag(tmp_path: Path, number: signal.Signals) -> None:
    with recorded_run(tmp_path) as process:
        process.send_signal(number)
        assert process.wait(60) == 0
    assert open_bag(tmp_path / "bag").run_info.end["complete"] == "true"


def test_a_run_whose_terminal_is_closed_finishes_its_bag(tmp_path: Path) -> None:
    """Nothing can be printed any more."""
    ours, theirs = os.openpty()
    reader = threading.Thread(target=read_all, args=(ours,), daemon=True)
    reader.start()
    with recorded_run(tmp_path, theirs) as process:
        os.close(theirs)
        os.close(ours)
        assert process.wait(60) == 0
    assert open_bag(tmp_path / "bag").run_info.end["complete"] == "true"


def read_all(terminal: int) -> None:
    with suppress(OSError):
        while select.select([terminal], [], [], 0.1) and os.read(terminal, 65536):
            pass


def test_nohup_still_works() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts_end_the_run():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # which is heeded, as ever
    finally:
        signal.signal(signal.SIGHUP, before)
