"""Repeats a recorded run from its inputs, in one go, in wall time, or at any tick of its timeline."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from typing_extensions import Self

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError
from microsim.messages.outbox import Message
from microsim.recording.bag import ForeignBag, OwnBag
from microsim.recording.bag_model import BagChannel, BagError
from microsim.recording.compare import Difference, DifferentError, MessageComparison, recorded_choice, without
from microsim.recording.inputs import InputTopics, plugin_hashes, unpacked
from microsim.recording.verify import OtherBytesError, Rerecorder, can_compare
from microsim.scenario import Scenario
from microsim.simulation import Simulation, Snapshot
from microsim.version import __version__

HandOut: TypeAlias = Callable[[Sequence[Message]], None]

_AT_ONCE = 64  # ticks; more would leave the processor's cache
_LONGEST_S = 10**8  # three years: what claims to last longer was recorded in wall time


@dataclass(frozen=True)
class ReplayVerdict:
    """What `verify` found."""

    messages: int  # compared and the same
    ticks: int
    digest: str
    difference: Difference | None = None
    problem: str = ""  # all that was recorded is the same, and yet something else is not
    is_partial: bool = False  # only some topics were recorded
    is_cut: bool = False  # the recording ended before the run did

    @property
    def is_identical(self) -> bool:
        return self.difference is None and not self.problem

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        difference = None if self.difference is None else self.difference.to_dict()
        facts = {
            name: getattr(self, name) for name in ("messages", "ticks", "digest", "problem", "is_partial", "is_cut")
        }
        return {"identical": self.is_identical, **facts, "difference": difference}

    def __str__(self) -> str:
        if self.difference is not None:
            return str(self.difference)
        if self.problem:
            return f"different: {self.problem}"
        notes = ["the recording holds only some topics: these were compared"] if self.is_partial else []
        if self.is_partial and not self.is_cut:
            notes.append("the digest, which covers all topics, is the recorded one")
        notes += [f"the recording was cut off: compared up to tick {self.ticks:,}"] if self.is_cut else []
        return "\n".join([f"identical: {self.messages:,} messages, digest {self.digest}", *notes])


class Replay:
    """A simulation that takes what the bag says it took. `told` are the assumptions made on the way."""

    def __init__(
        self,
        bag: OwnBag | ForeignBag,
        scenario: Scenario | None = None,
        seed: int | None = None,
        plugins: Sequence[Path] | None = None,
        world: str | Path | None = None,
    ) -> None:
        """`plugins` and `world`: where the scenario's plug-ins and its bundle are now, if they have moved."""
        self.bag = bag
        self.told: list[str] = []
        self.reasons: Counter[str]  # why the simulation did not take inputs, and how many
        self.taken: int  # inputs that it took
        self.on_tick: Callable[[int], None] | None = None  # told now and then how far it is
        self._folder = tempfile.TemporaryDirectory(prefix="microsim-")
        if isinstance(bag, ForeignBag):
            self.sim = self._foreign(bag, scenario, seed)
        else:
            self.sim = self._own(scenario, seed, plugins, world)
        self._scenario = self.sim.scenario
        self.use(self.sim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    @property
    def ignored(self) -> int:
        """Inputs that the simulation did not take."""
        return self.reasons.total()

    @property
    def input_topics(self) -> list[str]:
        """What the simulation listens to."""
        return list(self._topics)

    @property
    def end_tick(self) -> int | None:
        """Where the recorded run ended, if that was written down."""
        ticks = self.bag.facts.end.get("ticks", "")
        return int(ticks) if ticks.isdecimal() else None

    # ---- going through the bag ---------------------------------------------------------------------------------------

    def run(self, hand_out: HandOut, until: int | None = None) -> None:
        """Run the mission again, or up to tick `until`, with its inputs; every message is handed out."""
        hand_out(self.sim.step(0))
        for tick, channel, data in self.inputs():
            if until is not None and tick > until:
                break
            self._step_to(tick, hand_out)
            self.take(channel, data)
        self._step_to(self.last_tick() if until is None else until, hand_out)

    def inputs(self) -> Iterator[tuple[int, BagChannel, bytes]]:
        """What was taken, with the tick that took it."""
        for channel, time, data in self.bag.entries_of(self._topics):
            yield self._tick(time), channel, data

    def use(self, sim: Simulation) -> None:
        """Go on with another simulation of the same scenario and seed."""
        self.sim = sim
        self._topics = InputTopics(sim, Path(self._folder.name), self.bag.facts.files, self.bag.is_ours)
        self.reasons = Counter()
        self.taken = self._last_time = 0

    def last_tick(self) -> int:
        """Where the recording ends."""
        if self.end_tick is not None:
            return self.end_tick
        if self.bag.end_ns is not None:
            return self._tick(self.bag.end_ns)
        times = [block.times[-1] for block in self.bag.blocks() if block.times]
        self._last_time = 0
        return self._tick(max(times, default=0))

    def take(self, channel: BagChannel, cdr: bytes) -> None:
        """Hand a recorded input to the simulation."""
        try:
            if self._topics.take(channel.topic, channel.type, cdr):
                self.taken += 1
            else:
                self.reasons[f"{channel.topic}: not a number, infinite, or a place where it cannot be"] += 1
        except BagError as error:
            if self.bag.is_ours:
                raise
            self.reasons[str(error)] += 1  # as the running node does

    def _step_to(self, tick: int, hand_out: HandOut) -> None:
        sim = self.sim
        while sim.tick < tick:
            hand_out(sim.step(min(tick - sim.tick, _AT_ONCE)))
            if self.on_tick is not None:
                self.on_tick(sim.tick)

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def verify(self) -> ReplayVerdict:
        """Compare every message with the recording, up to the first that differs."""
        bag = self.bag
        if not isinstance(bag, OwnBag):
            raise BagError(f"{bag.path}: only what microsim recorded can be verified, and others recorded this")
        if can_compare(bag) and self._is_recorded_alike(bag):
            return self._verdict(int(bag.facts.end["messages"]), None, bool(recorded_choice(bag)))
        self._restart()
        stream = MessageComparison(bag)
        try:
            self._compare(bag, stream)
        except DifferentError as different:
            return self._verdict(stream.same, different.difference, stream.is_partial)
        rest = stream.rest() if bag.is_complete else None
        return self._verdict(stream.same, rest, stream.is_partial)

    def _is_recorded_alike(self, bag: OwnBag) -> bool:
        """Whether a recording of this replay has the very bytes of the bag."""
        try:
            recorder = Rerecorder(bag, self.sim)
        except BagError as error:
            if isinstance(error.__cause__, OtherBytesError):
                return False
            raise
        try:
            self.run(recorder.tap)
        except BagError:
            if not recorder.error:
                raise
        recorder.close()
        return not recorder.error and not self.ignored

    def _restart(self) -> None:
        self.sim.reset()
        if self.sim.scenario != self._scenario:
            self.sim = Simulation(self._scenario, self.sim.seed)
        self.use(self.sim)

    def _compare(self, bag: OwnBag, stream: MessageComparison) -> None:
        stream.collect(self.sim.step(0))
        channels: dict[int, BagChannel] = {}
        for block in bag.blocks():
            channels.update((channel.number, channel) for channel in block.channels)
            inputs = {number for number, channel in channels.items() if channel.topic in self._topics}
            places = [place for place, number in enumerate(block.numbers) if number in inputs]
            for place in places:
                self._step_to(self._tick(block.times[place]), stream.collect)
                self.take(channels[block.numbers[place]], block.data[place])
            self._step_to(self._tick(block.times[-1]), stream.collect)
            stream.compare(without(block, places))
        self._step_to(self.end_tick or 0, stream.collect)

    def _verdict(self, same: int, difference: Difference | None, is_partial: bool) -> ReplayVerdict:
        assert isinstance(self.bag, OwnBag)
        digest, recorded = self.sim.digest(), self.bag.facts.end.get("digest", "")
        problem = ""
        if difference is None and self.ignored:
            problem = f"{self.ignored} recorded inputs were ignored this time"
        elif difference is None and self.bag.is_complete and digest != recorded:
            problem = f"the recorded topics are the same, but the digest of all is {digest}, recorded was {recorded}"
        is_cut = not self.bag.is_complete
        if difference is None and is_cut and not same:
            problem = "the recording was cut off before its first chunk: there is nothing to compare"
        return ReplayVerdict(same, self.sim.tick, digest, difference, problem, is_partial, is_cut)

    def _tick(self, time_ns: int) -> int:
        """The tick in which something of this time was taken: the latest that is not after it."""
        clock = self.sim.clock
        tick = clock.ticks_in(Fraction(time_ns, NS_PER_S))
        if self.bag.is_ours:
            if clock.time_ns(tick) != time_ns or time_ns < self._last_time:
                raise BagError(f"{self.bag.path}: damaged: {time_ns} ns is not the time of a tick, or not in order")
            self._last_time = time_ns
            return tick
        if time_ns > _LONGEST_S * NS_PER_S:
            raise BagError(f"{self.bag.path}: recorded in wall time; record with --use-sim-time")
        return tick - 1 if clock.time_ns(tick) > time_ns else tick

    # ---- the start ---------------------------------------------------------------------------------------------------

    def _own(
        self, scenario: Scenario | None, seed: int | None, plugins: Sequence[Path] | None, world: str | Path | None
    ) -> Simulation:
        facts = self.bag.facts
        if scenario is not None or seed is not None:
            raise UsageError("this bag holds its own scenario and seed: leave out --scenario and --seed")
        if facts.start["version"] != __version__:
            self.told.append(f"recorded by microsim {facts.start['version']}, replayed by {__version__}")
        try:
            number = int(facts.start["seed"])
            hashes = json.loads(facts.start.get("plugins", "{}"))
        except ValueError:
            raise BagError(f"{self.bag.path}: damaged: the seed or the plug-ins cannot be read") from None
        loaded = unpacked(facts.start["scenario"], Path(self._folder.name), facts.files, plugins, world)
        if plugin_hashes(loaded) != hashes:
            self.told.append("the code of its plug-ins is another than when it was recorded")
        return Simulation(loaded, number)

    def _foreign(self, bag: ForeignBag, scenario: Scenario | None, seed: int | None) -> Simulation:
        if scenario is None:
            raise UsageError(f"{bag.path} was not made by microsim and holds no scenario: give --scenario")
        bag.check_one_run()
        sim = Simulation(scenario, seed)
        self.told += [
            f"assumed: scenario {scenario.name!r}, seed {sim.seed}, no parameter changed, the run began at time 0",
            "assumed: times in the bag are simulated time of arrival; a message counts from the tick it arrived in, "
            "and within a tick in the order of the bag",
        ]
        return sim


_AT_ONCE = 64  # ticks; more would leave the processor's cache


class InputPilot:
    """Takes each input at its tick. `sim` may be another simulation of the same scenario and seed."""

    def __init__(self, replay: Replay, sim: Simulation) -> None:
        self._replay = replay
        self._sim = sim
        replay.use(sim)
        self._inputs = replay.inputs()
        self._next = next(self._inputs, None)

    def __call__(self, messages: Sequence[Message] = ()) -> None:
        while self._next is not None and self._next[0] <= self._sim.tick:
            self._replay.take(*self._next[1:])
            self._next = next(self._inputs, None)

    def skip_to(self, tick: int) -> list[Message]:
        """As fast as possible, with nobody listening; what the last tick sends is left for the runner.

        Gives the latest message of each latched topic: who comes later still has to know of these.
        """
        sim = self._sim
        latched: dict[str, Message] = {}
        self()
        while sim.tick < tick - 1:
            stop = tick - 1 if self._next is None else min(tick - 1, max(self._next[0], sim.tick + 1))
            sent = sim.step(min(stop - sim.tick, _AT_ONCE))
            latched.update((each.topic, each) for each in sent if sim.topics[each.topic][1].latched)
            self()
        return list(latched.values())


_EVERY_S, _MOST = 1.0, 600  # between snapshots; longer recordings have them further apart


class Seeker:
    """A pilot that feeds a replay its inputs, and moves it along its timeline. `room`: ticks up to the end."""

    def __init__(self, replay: Replay, sim: Simulation) -> None:
        self._replay, self._sim = replay, sim
        replay.use(sim)
        self._inputs = list(replay.inputs())
        self._ticks = [entry[0] for entry in self._inputs]
        self._next = 0
        self.last = replay.last_tick()
        self._every = max(1, round(_EVERY_S / sim.clock.dt), self.last // _MOST)
        self._kept: dict[int, Snapshot] = {}
        self._at: list[int] = []  # ticks of the snapshots, in order

    @property
    def span(self) -> tuple[int, int]:
        return 0, self.last

    @property
    def ignored(self) -> int:
        return self._replay.ignored

    @property
    def room(self) -> int:
        return max(self.last - self._sim.tick, 0)

    def __call__(self, messages: Sequence[Message] = ()) -> None:
        """Before a tick: what was taken in it is taken again."""
        tick = self._sim.tick
        if tick >= (self._at[-1] + self._every if self._at else 0):
            self._kept[tick] = self._sim.snapshot()
            self._at.append(tick)
        while self._next < len(self._inputs) and self._ticks[self._next] <= tick:
            self._replay.take(*self._inputs[self._next][1:])
            self._next += 1

    def move(self, tick: int, hand_out: Callable[[Sequence[Message]], None]) -> None:
        """Stand at that tick. What is sent in the second before is handed out: the newest image is among it."""
        tick = min(max(tick, 0), self.last)
        start = max(tick - round(1.0 / self._sim.clock.dt), 0)
        if not self._at:
            self()
        if tick < self._sim.tick or start > self._sim.tick + self._every:
            self._go_back(start)
        while self._sim.tick < tick:
            stop = min(tick, self._next_stop())
            messages = self._sim.step(stop - self._sim.tick)
            self()
            hand_out(messages)

    def _go_back(self, tick: int) -> None:
        """To the latest snapshot not after that tick."""
        place = bisect_right(self._at, tick) - 1
        if place < 0 or (self._at[place] <= self._sim.tick <= tick):
            return
        snapshot = self._kept[self._at[place]]
        if snapshot.scenario != self._sim.scenario:
            self._sim.reconfigure(snapshot.scenario)
        self._sim.restore(snapshot)
        self._next = bisect_left(self._ticks, self._at[place])  # a snapshot is made before the inputs of its tick
        self()

    def _next_stop(self) -> int:
        """The next tick with an input or a snapshot."""
        tick = self._sim.tick
        wanted = [(tick // self._every + 1) * self._every, tick + self._every]
        if self._next < len(self._inputs):
            wanted.append(max(self._ticks[self._next], tick + 1))
        return min(wanted)
