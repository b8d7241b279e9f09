"""`Recorder`: everything a run sends and takes, in a bag that suffices to run it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from typing_extensions import Self

from microsim.errors import UsageError, there_are
from microsim.outbox import Message
from microsim.recording.assembly import Assembly, Batch, Taken
from microsim.recording.bag_writer import BagWriter, RecordOptions
from microsim.recording.disk import Disk
from microsim.recording.entries import FORMAT, BagError, Block, Channel, Columns, Facts, qos_text
from microsim.recording.inputs import encoded, input_topics
from microsim.recording.mcap_writer import pack, packed
from microsim.recording.scenarios import as_text, plugin_hashes
from microsim.recording.scenarios import packed as packed_scenario
from microsim.recording.side_file import SideFile
from microsim.runner import Runner
from microsim.sim.schedule import Input
from microsim.simulation import Reconfiguration, Simulation
from microsim.topics import DEFAULT_QOS
from microsim.version import __version__

CLOCK = "/clock"  # the first message of every tick
_ENOUGH = 400  # messages that are worth the while; more would leave the processor's cache


class Numbering(dict[str, int]):
    """Topic -> number of its channel; 0: not to be recorded; /clock in any case has one of its own, below 0 then.

    Topics get their numbers before the run, in the order of the table, and inputs after them: so the numbers do not
    depend on who comes first.
    """

    def __init__(self, sim: Simulation, options: RecordOptions) -> None:
        super().__init__()
        self.new: list[Channel] = []  # since somebody last looked
        self._sim = sim
        self._options = options
        self._count = 0
        for topic in sim.topics:
            self[topic]
        for topic, type_name in input_topics(sim):
            self[topic] = self._add(topic, type_name, DEFAULT_QOS)

    def __missing__(self, topic: str) -> int:
        if self._is_chosen(topic):
            self[topic] = self._add(topic, *self._sim.topics[topic])
        else:
            self[topic] = -1 if topic == CLOCK else 0
        return self[topic]

    def _add(self, topic: str, type_name: str, qos: Any) -> int:
        self._count += 1
        self.new.append(Channel(self._count, topic, type_name, qos_text(qos)))
        return self._count

    def _is_chosen(self, topic: str) -> bool:
        only, without = self._options.topics, self._options.exclude
        if only and not any(fnmatchcase(topic, pattern) for pattern in only):
            return False
        return not any(fnmatchcase(topic, pattern) for pattern in without)


class Recorder:
    """Give every list of messages to `tap`; close it at the end, or use it in a `with` block.

    Without a runner: as fast as possible, so a full queue is waited for. `create` opens files (for tests).
    """

    messages: int  # of this run, so far
    inputs: int
    _sim: Simulation
    _tick: int
    _digest: str  # of the last tick that was handed out whole
    _waiting: list[Taken]  # inputs, and
    _held: Batch  # messages that go to the disk together with the next
    _numbers: Numbering
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
        self._create = create
        self._runner: Runner | None = None
        self._runs = 0
        self._start(sim)

    def attach(self, runner: Runner) -> None:
        """Record what this runner hands out. In real time the run goes on when the disk cannot follow."""
        self._runner = runner
        runner.taps.append(self.tap)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self.error and kind is None:
            raise BagError(self.error)

    # ---- what comes in -----------------------------------------------------------------------------------------------

    def tap(self, messages: Sequence[Message]) -> None:
        if self.error or not messages or not self._follow(messages[0]):
            return
        topics, held = self._numbers, self._held
        numbers = [topics[message.topic] for message in messages]
        held.numbers += numbers
        held.data += [message.cdr for message in messages]
        self.messages += len(numbers) - numbers.count(0) - numbers.count(-1)
        self._tick += numbers.count(topics[CLOCK])
        if self._tick == self._sim.tick:
            self._digest = self._sim.digest()
        if len(held.data) >= _ENOUGH:
            self._add()

    def _take(self, tick: int, item: Input | Reconfiguration) -> None:
        """An input; it goes to the disk with the next messages."""
        if self._other_hook is not None:
            self._other_hook(tick, item)
        if not self.error:
            stamp_ns = self._sim.clock.time_ns(tick)
            topic, _, cdr = encoded(self._sim, stamp_ns, item)
            self._waiting.append((stamp_ns, self._numbers[topic], cdr))
            self.inputs += 1

    def _follow(self, first: Message) -> bool:
        """The first message of a portion tells its tick: the next one, or 0 after a reset."""
        if first.stamp_ns == 0 and self._tick >= 0:
            self._finish_run()
            if not self.error:
                self._start(self._runner.sim if self._runner is not None else self._sim)
        elif first.topic != CLOCK or first.stamp_ns != self._sim.clock.time_ns(self._tick + 1):
            self._stop(
                f"the next messages are of {first.stamp_ns / 1e9:.9g} s, so some are missing: a recording begins "
                "before the first step, and `advance` and `restore` cannot be recorded"
            )
        return not self.error

    def _add(self) -> None:
        """What is held, to where blocks are made of it."""
        batch, self._held = self._held, Batch([], [])
        batch.inputs, self._waiting = self._waiting, []
        batch.channels, self._numbers.new = self._numbers.new, []
        self._assembly.add(batch)

    def _send(self, channels: list[Channel], columns: Columns, size: int) -> None:
        """To the disk."""
        if self.error:
            return
        if self.options.storage == "mcap":
            used, span = np.flatnonzero(np.bincount(columns.numbers)).tolist(), columns.times[[0, -1]].tolist()
            block = Block(channels, used, span, [], size, packed(columns))
        else:
            block = Block(channels, columns.numbers.tolist(), columns.times.tolist(), columns.data, size)
        wait = self._runner is None or not self._runner.pacer.rtf
        if self._disk.put(block, wait):
            return
        if self._disk.error is None:
            waiting = f"{self._disk.waiting_bytes / 2**20:.0f} MiB wait for it"
            self._stop(f"the disk is too slow for real time: {waiting}. Record fewer topics, or run with --rtf 0")
            return
        self._stop(self._disk_problem())
        if wait:
            raise BagError(self.error)

    # ---- start and end of a run --------------------------------------------------------------------------------------

    def _start(self, sim: Simulation) -> None:
        if sim.tick != 0:
            raise UsageError(f"a recording begins at tick 0, and the simulation is at tick {sim.tick}: reset it first")
        self._check_choice(sim)
        self._sim = sim
        self._tick, self._digest = -1, ""
        self.messages = self.inputs = 0
        self._waiting, self._held = [], Batch([], [])
        self._numbers = Numbering(sim, self.options)
        folder = self.folder if not self._runs else self.folder.with_name(f"{self.folder.name}_run{self._runs + 1}")
        self._runs += 1
        self._writer = self._opened(folder, sim)
        self._side = self._side_file(folder)
        self._disk = self._disk_for(self._writer)
        self._assembly = self._assembly_for(sim)
        self._is_open = True
        self._other_hook = sim.on_input if sim.on_input != self._take else None
        for item in sim.snapshot().memory[1]:  # arrived before the recorder
            self._take(0, item)
        sim.on_input = self._take

    def _assembly_for(self, sim: Simulation) -> Assembly:
        options = self.options
        split_ns = None if options.split_s is None else options.split_s * 10**9
        limits = (options.chunk_bytes, options.chunk_s * 10**9)
        packing = pack if options.storage == "mcap" else None
        return Assembly(sim.clock, self._numbers[CLOCK], self._send, *limits, packing, split_ns)

    def _opened(self, folder: Path, sim: Simulation) -> BagWriter:
        data, files = packed_scenario(sim.scenario)
        start = {
            "format": FORMAT,
            "version": __version__,
            "scenario": as_text(data),
            "seed": str(sim.seed),
            "topics": json.dumps({"only": self.options.topics, "without": self.options.exclude}),
            "options": json.dumps(self.options.to_dict()),
            "plugins": json.dumps(plugin_hashes(sim.scenario)),
        }
        try:
            return self._writer_to(folder, Facts(start, {}, files))
        except OSError as error:
            raise BagError(f"nothing can be recorded into {folder}: {error.strerror or error}") from error

    def _writer_to(self, folder: Path, facts: Facts) -> BagWriter:
        return BagWriter(folder, facts, self.options, self._create)

    def _disk_for(self, writer: BagWriter) -> Disk:
        return Disk(writer.write, self.options.queue_bytes)

    def _side_file(self, folder: Path) -> SideFile | None:
        return SideFile(folder)

    def _check_choice(self, sim: Simulation) -> None:
        for pattern in self.options.topics:
            if not any(fnmatchcase(topic, pattern) for topic in sim.topics):
                raise UsageError(f"no topic fits {pattern!r}; {there_are(sorted(sim.topics))}")

    def close(self) -> None:
        """Write what is left and finish the bag. Look at `error` afterwards."""
        if self._sim.on_input == self._take:
            self._sim.on_input = self._other_hook
        self._finish_run()

    def _stop(self, reason: str) -> None:
        """Take no more. What waits for the disk is left to it: here the run would have to wait."""
        self.error = f"the recording stopped at {self._sim.clock.time_ns(max(self._tick, 0)) / 1e9:.3f} s: {reason}"

    def _finish_run(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if not self.error:
            with suppress(BagError):  # is in self.error
                self._add()
                self._assembly.finish()
        self._disk.close()
        try:
            if self._disk.error is None:
                self._writer.close(self._end())
        except OSError as error:
            self._disk.error = error
        if self._disk.error is not None:
            self._writer.abandon()
            self.error = self.error or f"the recording stopped: {self._disk_problem()}"
        if self._side is not None:
            self._side.finish(self._runner)

    def _end(self) -> dict[str, str]:
        if self.error:
            return {"complete": "false", "reason": self.error}
        counts = {"messages": str(self.messages), "inputs": str(self.inputs)}
        return {**counts, "complete": "true", "ticks": str(max(self._tick, 0)), "digest": self._digest}

    def _disk_problem(self) -> str:
        error = self._disk.error
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
        return f"{self._writer.folder} cannot be written: {reason}; `microsim bag repair` finishes what is there"
