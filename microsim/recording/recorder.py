"""`Recorder`: everything a run sends and takes, in a bag from which the run can be repeated."""

from __future__ import annotations

import csv
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from fractions import Fraction
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from typing_extensions import Self

from microsim.engine.schedule import Input
from microsim.engine.timekeeper import NS_PER_S, Clock
from microsim.errors import MicroSimError, UsageError, os_errors, there_are
from microsim.listening import Listener
from microsim.messages.outbox import DIGEST_BYTES, STAMP_AND_LENGTH, Message, name_in_transcript
from microsim.messages.topics import DEFAULT_QOS, Qos
from microsim.paths import with_name_of_its_own
from microsim.recording.bag_io import BagWriter, RecordOptions
from microsim.recording.bag_model import FORMAT, BagChannel, BagError, RunInfo, fits, qos_text, repairs
from microsim.recording.chunk_assembly import Assembly, ChannelNames, Disk, Portion
from microsim.recording.inputs import as_text, encoded, input_topics, packed_as_run, plugin_hashes
from microsim.runner import Runner
from microsim.scenario import Scenario
from microsim.simulation import Reconfiguration, Simulation
from microsim.version import __version__

CLOCK = "/clock"  # the first message of every tick
LOCKSTEP_CSV = "lockstep.csv"


class Channels:
    """Numbers of channels, given before the run, in the order of the topics and then of the inputs."""

    names: ChannelNames

    def __init__(self, sim: Simulation, options: RecordOptions) -> None:
        self._options = options
        self._numbers: dict[bytes, int] = {}
        self.new: list[BagChannel] = []  # since the last portion
        self.follow(sim)

    def follow(self, sim: Simulation) -> None:
        """Topics and inputs may have become more."""
        for topic, (type_name, qos) in sim.topics.items():
            self._know(topic, type_name, qos, fits(topic, self._options.topics, self._options.exclude))
        for topic, type_name in input_topics(sim):
            self._know(topic, type_name, DEFAULT_QOS, True)
        self.names = ChannelNames(self._numbers, name_in_transcript(CLOCK, sim.topics[CLOCK][0]))

    def _know(self, topic: str, type_name: str, qos: Qos, is_chosen: bool) -> None:
        name = name_in_transcript(topic, type_name)
        if name in self._numbers:
            return
        self._numbers[name] = max(self._numbers.values(), default=0) + 1 if is_chosen else 0
        if is_chosen:
            self.new.append(BagChannel(self._numbers[name], topic, type_name, qos_text(qos)))


class Recorder:
    """Records every tick of a simulation from the start; close it at the end, or use it in a `with` block.

    Call `on_messages` from time to time: it raises what went wrong. Without a runner, a full queue makes
    the run wait. `create` opens files (for tests).
    """

    _inputs_before: int  # of the runs before this one
    _sim: Simulation
    _tick: int  # the latest that was received
    _latest: bytes  # its transcript
    _held: list[bytes]  # transcripts that go to the disk together with the next
    _size: int  # [byte] of these
    _start_tick: int  # of the first of these, and
    _end_tick: int  # the first that goes into another chunk
    _channels: Channels
    _disk: Disk

    def __init__(
        self,
        folder: Path | str,
        sim: Simulation,
        options: RecordOptions | None = None,
        create: Callable[[Path], Any] | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.options = options or RecordOptions()
        self.error = ""  # why the recording stopped before the run did
        self.messages = self.inputs = 0  # of all runs; messages of those that are over
        self._ends_run = False  # the run must not continue without it
        self._create = create
        self._listener: Listener | None = None
        self._runner: Runner | None = None
        self.folders: list[Path] = []  # one for each run: a reset begins the next
        self._start(sim)

    def attach(self, runner: Runner) -> None:
        """Follow this runner to other simulations. In real time the run continues when the disk is too slow."""
        self._runner = runner
        runner.listen(messages=self.on_messages, restarts=self._follow_restart, waits=self._note_wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()
        if self.error and kind is None:
            raise BagError(self.error)

    @property
    def disk_error(self) -> Exception | None:
        return self._disk.error

    def on_messages(self, messages: Sequence[Message] = ()) -> None:
        """Raise what went wrong."""
        if self._ends_run:
            raise BagError(self.error)

    # ---- what comes in -----------------------------------------------------------------------------------------------

    def _hear(self, transcript: bytes) -> None:
        if self.error:
            return
        if self._sim.transcript_tick != self._tick + 1:
            self._follow_jump()
            return
        self._tick += 1
        if self._tick >= self._end_tick or self._size >= self.options.chunk_bytes:
            self._flush()
        self._latest = transcript
        self._held.append(transcript)
        self._size += len(transcript)

    def _take(self, tick: int, item: Input | Reconfiguration) -> None:
        """An input, written down as a tick's transcript is; it has no digest."""
        if self.error:
            return
        stamp_ns = self._sim.clock.time_ns(tick)
        topic, type_name, cdr = encoded(self._sim, stamp_ns, item, self._packed)
        if isinstance(item, Reconfiguration):
            self._channels.follow(self._sim)
        head = STAMP_AND_LENGTH.pack(stamp_ns, len(cdr))
        transcript = bytes(DIGEST_BYTES) + name_in_transcript(topic, type_name) + head + cdr
        self._held.append(transcript)
        self._size += len(transcript)
        self.inputs += 1

    def _note_wait(self, tick: int, topic: str, nodes: str, waited_s: float, doubt: str) -> None:
        if self._waits is not None:
            self._waits.add(self._sim.clock.time_ns(tick), topic, nodes, waited_s, doubt)

    def _follow_jump(self) -> None:
        """A reset begins the next bag; nothing else can be followed."""
        if self._sim.tick == 0:
            self._begin_next(self._sim)
            return
        self._flush()
        next_s = self._sim.clock.time_ns(self._sim.transcript_tick) / 1e9
        rule = "a recording begins before the first step, and `advance` and `restore` cannot be recorded"
        reason = f"the next messages are of {next_s:.9g} s, so some are missing: {rule}"
        self._stop(reason, self._sim.clock.time_ns(self._tick))

    def _follow_restart(self, sim: Simulation) -> None:
        """A reset was followed when tick 0 came; another simulation has sent its tick 0 already."""
        if sim is not self._sim and not self.error:
            self._begin_next(sim)

    def _begin_next(self, sim: Simulation) -> None:
        """The next bag, of a run that is at its start."""
        try:
            if sim is not self._sim:
                self._let_go()
            self._finish_run()
            if not self.error:
                self._start(sim)
        except MicroSimError as error:  # is for the run, not for who reset it
            self._stop(str(error), None)
            self._ends_run = True

    def _flush(self) -> None:
        """What is held goes to the disk: whole ticks, since this is done when the next one begins."""
        if not self._held:
            return
        clock, start, channels = self._sim.clock, self._start_tick, self._channels
        span = clock.time_ns(start), clock.time_ns(self._tick)
        is_border = self._tick >= self._end_tick
        portion = Portion(self._held, self._size, *span, channels.names, channels.new, is_border)
        channels.new = []
        self._open_portion()
        is_waiting = self._runner is None or not self._runner.pacer.rtf
        if self._disk.put(portion, is_waiting):
            return
        if self._disk.error is None:
            waiting = f"{self._disk.waiting_bytes / 2**20:.0f} MiB wait for it"
            reason = f"the disk is too slow for real time: {waiting}. Record fewer topics, or run with --rtf 0"
            self._stop(reason, clock.time_ns(start - 1) if start else None)
            return
        self._stop(self._disk_problem(), self._writer.end_ns)
        self._ends_run = is_waiting

    def _open_portion(self) -> None:
        clock, options = self._sim.clock, self.options
        self._held, self._size = [], 0
        self._start_tick = max(self._tick, 0)
        start_ns = clock.time_ns(self._start_tick)
        end = Fraction(start_ns + options.chunk_s * NS_PER_S)
        if options.split_s is not None:  # chunks end with the files they are in
            split_ns = options.split_s * NS_PER_S
            end = min(end, split_ns * (start_ns // split_ns + 1))
        self._end_tick = max(_first_tick(clock, end), self._start_tick + 1)

    # ---- start and end of a run --------------------------------------------------------------------------------------

    def _start(self, sim: Simulation) -> None:
        if sim.tick != 0:
            raise UsageError(f"a recording begins at tick 0, and the simulation is at tick {sim.tick}: reset it first")
        for pattern in self.options.topics:
            if not any(fnmatchcase(topic, pattern) for topic in sim.topics):
                raise UsageError(f"no topic fits {pattern!r}; {there_are(sorted(sim.topics))}")
        self._sim = sim
        self._tick = -1
        self._inputs_before = self.inputs
        self._channels = Channels(sim, self.options)
        folder = self._next_folder()
        with os_errors(f"nothing can be recorded into {folder}", BagError):
            self._writer = self._writer_to(folder, self._start_info(sim))
        self.folders.append(folder)
        self._json = self._recording_json(folder)
        self._waits = None if self._json is None else GateLog(folder)
        limits = (self.options.chunk_bytes // 2, self.options.chunk_s * NS_PER_S)
        self._assembly = Assembly(self._writer.write, self.options.storage == "mcap", *limits)
        self._disk = Disk(self._assembly.add, self.options.queue_bytes)
        self._is_open = True
        self._open_portion()
        self._hear(sim.opening)
        if self._listener is None:
            self._listener = sim.listen(ticks=self._hear, inputs=self._take)
        for item in sim.snapshot().state[1]:  # arrived before the recorder
            self._take(0, item)

    def _next_folder(self) -> Path:
        """Beside those of earlier runs, and of earlier recordings."""
        if not self.folders:
            return self.folder
        first = with_name_of_its_own(self.folder)
        names = (first.with_name(f"{first.name}_run{number}") for number in count(len(self.folders) + 1))
        return next(folder for folder in names if not folder.exists())

    def _let_go(self) -> None:
        if self._listener is not None:
            self._sim.listeners.remove(self._listener)
            self._listener = None

    # ---- what a recorder that only compares does in another way ------------------------------------------------------

    def _start_info(self, sim: Simulation) -> RunInfo:
        data, files = self._packed(sim.scenario)
        start = {
            "format": FORMAT,
            "version": __version__,
            "scenario": as_text(data),
            "seed": str(sim.seed),
            "topics": json.dumps({"only": self.options.topics, "without": self.options.exclude}),
            "options": json.dumps(self.options.to_dict()),
            "plugins": json.dumps(plugin_hashes(sim.scenario)),
        }
        return RunInfo(start, {}, files)

    def _packed(self, scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
        return packed_as_run(scenario)

    def _writer_to(self, folder: Path, run_info: RunInfo) -> BagWriter:
        return BagWriter(folder, run_info, self.options, self._create)

    def _recording_json(self, folder: Path) -> RecordingJson | None:
        return RecordingJson(folder)

    def _end_info(self, messages: int, inputs: int) -> Mapping[str, str]:
        if self.error:
            return {"complete": "false", "reason": self.error}
        counts = {"messages": str(messages), "inputs": str(inputs)}
        return {**counts, "complete": "true", "ticks": str(self._tick), "digest": sha256(self._latest).hexdigest()}

    # ---- the end -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left and finish the bag. Look at `error` afterwards."""
        self._let_go()
        self._finish_run()

    def _stop(self, reason: str, end_ns: int | None) -> None:
        """Take no more. What waits for the disk is left to it: here the run would have to wait."""
        self.error = _stopped(reason, end_ns)
        if self._runner is not None:
            self._runner.note("error", self.error)

    def _finish_run(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if not self.error:
            self._flush()
        self._disk.close()
        try:
            if self._disk.error is None:
                self._assembly.finish()
                inputs = self.inputs - self._inputs_before
                messages = self._assembly.entries - inputs
                self.messages += messages
                self._writer.close(self._end_info(messages, inputs))
        except OSError as error:
            self._disk.error = error
        if self._disk.error is not None:
            self._writer.abandon()
            self.error = _stopped(self._disk_problem(), self._writer.end_ns)
        if self._json is not None:
            self._json.finish(self._runner)
        if self._waits is not None:
            self._waits.close()

    def _disk_problem(self) -> str:
        error = self._disk.error
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
        return (
            f"{self._writer.folder} cannot be written: {reason}; {repairs(self._writer.folder)} finishes what is there"
        )


def _stopped(reason: str, end_ns: int | None) -> str:
    """`end_ns`: time of the last tick that is in the bag; None: there is none."""
    where = "before its first tick was written" if end_ns is None else f"at {end_ns / 1e9:.3f} s"
    return f"the recording stopped {where}: {reason}"


def _first_tick(clock: Clock, time_ns: Fraction) -> int:
    """The first tick that is not before this time."""
    tick = clock.ticks_in(time_ns / NS_PER_S)
    while clock.time_ns(tick) >= time_ns:
        tick -= 1
    while clock.time_ns(tick) < time_ns:
        tick += 1
    return tick


class RecordingJson:
    """`recording.json`: what depends on wall time, kept out of the files that two runs must share byte for byte."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "recording.json"
        self._written: dict[str, Any] = {
            "started": _now(),
            "host": platform.node(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "microsim": __version__,
            "command": sys.argv,
        }
        self._write()

    def finish(self, runner: Runner | None) -> None:
        self._written["ended"] = _now()
        if runner is not None:
            self._written |= {"wall_s": round(runner.wall_s, 6), "real_time_factor": round(runner.achieved_rtf, 4)}
        self._write()

    def _write(self) -> None:
        with suppress(OSError):  # nothing depends on it
            text = json.dumps(self._written, indent=2, ensure_ascii=False) + "\n"
            self._path.write_text(text, encoding="utf-8", errors="backslashreplace")  # arguments may be any bytes


class GateLog:
    """`lockstep.csv`: when which node opened a gate, and how long the run waited: wall time, so beside the messages.

    `not_known`: why its reply need not follow from the recorded inputs alone; empty: it does.
    """

    COLUMNS = ("time_ns", "expect", "nodes", "waited_ms", "not_known")

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCKSTEP_CSV
        self._file: TextIO | None = None  # made with the first gate

    def add(self, time_ns: int, topic: str, nodes: str, waited_s: float, doubt: str) -> None:
        with suppress(OSError):  # nothing depends on it
            if self._file is None:
                self._file = self._path.open("w", encoding="utf-8", newline="")
                self._file.write(",".join(self.COLUMNS) + "\n")
            row = (time_ns, topic, nodes, f"{1e3 * waited_s:.3f}", doubt)
            csv.writer(self._file, lineterminator="\n").writerow(row)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def has_gates(folder: Path) -> bool:
    """Whether nodes replied in lockstep in this recording."""
    return (folder / LOCKSTEP_CSV).exists()


def repliers(folder: Path, topic: str, time_ns: int) -> tuple[str, str]:
    """Which nodes replied on this topic, the last time up to then; and why that may not be due to them.

    No nodes: unknown. No reason: what they had received until then was recorded, in the order in which they handled it.
    """
    found = ("", "")
    try:
        with (folder / LOCKSTEP_CSV).open(encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if row[1:2] == [topic] and row[0].isdecimal() and int(row[0]) <= time_ns:
                    doubt = row[4] if len(row) > 4 else "it was recorded by an older version"
                    found = (row[2] if len(row) > 2 else "", found[1] or doubt)
    except (OSError, UnicodeDecodeError, csv.Error):
        return "", ""
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
