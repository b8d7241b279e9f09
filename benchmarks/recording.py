"""What recording costs: beside a run without it, beside the `mcap` library, and when a replay is verified.

Wall time, since recording has a thread of its own: that of a process on two cores, the least of several rounds taken in
turns.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Result

TICKS = 24_000  # 400 s


def measure() -> list[Result]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, recorded, packed, verified = _least(
            _run,
            lambda: _run(folder / "bag"),
            lambda: _run(folder / "packed", compression="zstd"),
            lambda: _verify(folder / "bag"),
        )
        ours, theirs = _least(*_writers(folder))
    return [
        Result("recording all topics, over not recording", 100.0 * (recorded / plain - 1.0), "%", 15.0, at_most=True),
        Result("the same with zstd", 100.0 * (packed / plain - 1.0), "%", at_most=True),
        Result(
            "writing, compared with the mcap library",
            100.0 * theirs / ours,
            "%",
            80.0,
            peer="mcap, without compression",
        ),
        Result("replay --verify, compared with the run", 100.0 * plain / verified, "%", 90.0),
    ]


def _least(*works: Callable[[], Any], rounds: int = 7) -> list[float]:
    """Wall time of each, the least of several rounds."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.perf_counter()
            done = work()
            best[index] = min(best[index], (time.perf_counter() - start) if done is None else done)
    return best


def _run(folder: Path | None = None, **options: Any) -> float:
    """Seconds from the first tick to the end of the recording."""
    from microsim.recording.bag_io import RecordOptions
    from microsim.recording.recorder import Recorder
    from microsim.runner import Runner
    from microsim.simulation import Simulation

    runner = Runner(Simulation("default"), 0.0)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    if folder is None:
        runner.run(TICKS)
        return time.perf_counter() - start
    recorder = Recorder(folder, runner.sim, RecordOptions(**options))
    recorder.attach(runner)
    runner.run(TICKS)
    recorder.close()
    assert not recorder.error
    return time.perf_counter() - start


def _verify(folder: Path) -> float:
    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_replay import Replay

    with Replay(open_bag(folder)) as again:
        start = time.perf_counter()
        verdict = again.verify()
        took = time.perf_counter() - start
    assert verdict.is_identical
    return took


def _writers(folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """The same messages, written by us and by the `mcap` library, into memory."""
    from mcap.writer import CompressionType, Writer

    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_model import BagChannel, BagFacts, Block, definition
    from microsim.recording.mcap import McapWriter

    blocks: list[Block] = list(open_bag(folder / "bag").blocks())
    channels: dict[int, BagChannel] = {each.number: each for block in blocks for each in block.channels}

    def ours() -> None:
        writer = McapWriter(Path("unused"), BagFacts({}, {}), "", lambda path: io.BytesIO())
        for block in blocks:
            writer.write(block)
        writer.close({}, str)

    def theirs() -> None:
        writer = Writer(io.BytesIO(), chunk_size=2**20, compression=CompressionType.NONE)
        writer.start("ros2", "benchmark")
        numbers = {}
        for channel in channels.values():
            schema = writer.register_schema(channel.type, "ros2msg", definition(channel.type)[0].encode())
            numbers[channel.number] = writer.register_channel(channel.topic, "cdr", schema)
        for block in blocks:
            for number, at, data in zip(block.numbers, block.times, block.data, strict=True):
                writer.add_message(numbers[number], at, data, at)
        writer.finish()

    return ours, theirs
