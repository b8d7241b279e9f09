"""Repeats a recorded run from its inputs, in one go, in wall time, or at any tick of its timeline."""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from typing_extensions import Self

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import ScenarioError, UsageError
from microsim.messages.outbox import Message
from microsim.recording.bag_io import Bag, ForeignBag
from microsim.recording.bag_model import BagChannel, BagError
from microsim.recording.inputs import InputTopics, changed_plugins, unpacked
from microsim.recording.verify import ReplayVerdict, verify
from microsim.scenario import Scenario
from microsim.simulation import Simulation
from microsim.timeline import Timeline
from microsim.version import __version__

HandOut: TypeAlias = Callable[[Sequence[Message]], None]

_AT_ONCE = 64  # ticks; more would leave the processor's cache
_LONGEST_S = 10**8  # three years: what claims to last longer was recorded in wall time


class Replay:
    """A simulation that takes the inputs of a bag. `notes` are the assumptions made on the way."""

    def __init__(
        self,
        bag: Bag,
        scenario: Scenario | None = None,
        seed: int | None = None,
        plugin_folders: Sequence[Path] = (),
        world: str | Path | None = None,
    ) -> None:
        """`plugin_folders`: whose code may run; `world`: where the scenario's bundle is now, if it has moved."""
        self.bag = bag
        self.notes: list[str] = []
        self.reasons: Counter[str]  # why the simulation did not take inputs, and how many
        self.taken: int  # inputs that it took
        self.on_tick: Callable[[int], None] | None = None  # called now and then with the tick it is at
        self._folder = tempfile.TemporaryDirectory(prefix="microsim-")
        if isinstance(bag, ForeignBag):
            self.sim = self._foreign(bag, scenario, seed)
        else:
            self.sim = self._own(scenario, seed, plugin_folders, world)
        self._scenario = self.sim.scenario
        self.use(self.sim)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        ticks = self.bag.run_info.end.get("ticks", "")
        return int(ticks) if ticks.isdecimal() else None

    def run(self, publish: HandOut, until: int | None = None) -> None:
        """Repeat the run, or up to tick `until`, with its inputs; every message is handed out."""
        for messages in self.portions(until):
            publish(messages)

    def portions(self, until: int | None = None) -> Iterator[Sequence[Message]]:
        """The messages of the run, some ticks at a time."""
        yield self.sim.step(0)
        for tick, channel, data in self.inputs():
            if until is not None and tick > until:
                break
            yield from self._steps_to(tick)
            self.take(channel, data)
        yield from self._steps_to(self.last_tick() if until is None else until)

    def inputs(self) -> Iterator[tuple[int, BagChannel, bytes]]:
        """What was taken, with the tick that took it."""
        for channel, time, data in self.bag.entries_of(self._topics):
            yield self._tick(time), channel, data

    def use(self, sim: Simulation) -> None:
        """Continue with another simulation of the same scenario and seed."""
        self.sim = sim
        self._topics = InputTopics(sim, Path(self._folder.name), self.bag.run_info.files, self.bag.is_ours)
        self.reasons = Counter()
        self.taken = self._last_time = 0

    def last_tick(self) -> int:
        if self.end_tick is not None:
            return self.end_tick
        if self.bag.end_ns is not None:
            return self._tick(self.bag.end_ns)
        times = [block.times[-1] for block in self.bag.blocks() if block.times]
        self._last_time = 0
        return self._tick(max(times, default=0))

    def take(self, channel: BagChannel, cdr: bytes) -> None:
        try:
            if self._topics.take(channel.topic, channel.type, cdr):
                self.taken += 1
            else:
                self.reasons[f"{channel.topic}: not a number, infinite, or a place where it cannot be"] += 1
        except BagError as error:
            if self.bag.is_ours:
                raise
            self.reasons[str(error)] += 1  # as the running node does

    def _steps_to(self, tick: int) -> Iterator[Sequence[Message]]:
        sim = self.sim
        while sim.tick < tick:
            yield sim.step(min(tick - sim.tick, _AT_ONCE))
            if self.on_tick is not None:
                self.on_tick(sim.tick)

    def restart(self) -> None:
        self.sim.reset()
        if self.sim.scenario != self._scenario:
            self.sim = Simulation(self._scenario, self.sim.seed)
        self.use(self.sim)

    def verify(self) -> ReplayVerdict:
        """Compare everything with the recording, up to the first difference."""
        return verify(self)

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

    def _own(
        self, scenario: Scenario | None, seed: int | None, plugin_folders: Sequence[Path], world: str | Path | None
    ) -> Simulation:
        start, path = self.bag.run_info.start, self.bag.path
        if scenario is not None or seed is not None:
            raise UsageError("this bag contains its scenario and seed: leave out --scenario and --seed")
        if start["version"] != __version__:
            self.notes.append(f"recorded by microsim {start['version']}, replayed by {__version__}")
        try:
            number, hashes = int(start["seed"]), dict(json.loads(start.get("plugins", "{}")))
            changed = changed_plugins(start["scenario"], hashes, plugin_folders)
        except (ValueError, TypeError, AttributeError, ScenarioError):
            raise BagError(f"{path}: damaged: the scenario, seed or plug-ins cannot be read") from None
        except BagError as error:
            raise BagError(f"{path}: {error}") from None
        if changed:
            self.notes.append(f"the code of the plug-in {', '.join(changed)} is not the recorded one")
        files = Path(self._folder.name), self.bag.run_info.files
        return Simulation(unpacked(start["scenario"], *files, plugin_folders, world), number)

    def _foreign(self, bag: ForeignBag, scenario: Scenario | None, seed: int | None) -> Simulation:
        if scenario is None:
            raise UsageError(f"{bag.path} was not made by microsim and contains no scenario: give --scenario")
        bag.check_one_run()
        sim = Simulation(scenario, seed)
        self.notes += [
            f"assumed: scenario {scenario.name!r}, seed {sim.seed}, no parameter changed, the run began at time 0",
            "assumed: times in the bag are simulated time of arrival; a message counts from the tick it arrived in, "
            "and within a tick in the order of the bag",
        ]
        return sim


class InputPilot:
    """A pilot that takes each recorded input at its tick: for a replay in wall time, alone or on ROS 2.

    `sim` may be another simulation of the same scenario and seed.
    """

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

        Gives the latest message of each latched topic, for subscribers that come later.
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


class ReplayTimeline:
    """A pilot that takes a recorded run's inputs and moves it along its timeline: back by moments kept on the way.

    `room`: ticks up to the end.
    """

    def __init__(self, replay: Replay, sim: Simulation) -> None:
        self._replay, self._sim = replay, sim
        replay.use(sim)
        self._inputs = list(replay.inputs())
        self._ticks = [entry[0] for entry in self._inputs]
        self._next = 0
        self.last = replay.last_tick()
        self._every = max(1, round(_EVERY_S / sim.clock.dt), self.last // _MOST)
        self._kept: Timeline[int] = Timeline()  # moments with the number of the input that comes next

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
        if self._kept.is_due(tick, self._every):
            self._kept.keep(self._sim, bisect_left(self._ticks, tick))  # before the inputs of its tick
        while self._next < len(self._inputs) and self._ticks[self._next] <= tick:
            self._replay.take(*self._inputs[self._next][1:])
            self._next += 1

    def move(self, tick: int, publish: Callable[[Sequence[Message]], None]) -> None:
        """Stand at that tick. What is sent in the second before is published: the newest image is among it."""
        tick = min(max(tick, 0), self.last)
        start = max(tick - round(1.0 / self._sim.clock.dt), 0)
        if self._kept.newest is None:
            self()
        if tick < self._sim.tick or start > self._sim.tick + self._every:
            self._go_back(start)
        while self._sim.tick < tick:
            stop = min(tick, self._next_stop())
            messages = self._sim.step(stop - self._sim.tick)
            self()
            publish(messages)

    def _go_back(self, tick: int) -> None:
        """To the latest moment not after that tick."""
        moment = self._kept.before(tick)
        if moment is None or moment.tick <= self._sim.tick <= tick:
            return
        self._sim.restore(moment.snapshot)
        self._next = moment.extra
        self()

    def _next_stop(self) -> int:
        """The next tick with an input or a moment."""
        tick = self._sim.tick
        wanted = [(tick // self._every + 1) * self._every, tick + self._every]
        if self._next < len(self._inputs):
            wanted.append(max(self._ticks[self._next], tick + 1))
        return min(wanted)
