"""One queue for what leaves later than it was sampled: images, which their pipeline delays and loses.

A line holds entries of each world. Of an entry it keeps when it leaves and when it was sampled; its number is a place,
where arrays beside the line (`kept`) have what leaves: a robot's motion, a camera's pose. What is pushed later never
leaves earlier. The same functions serve Python, the compiled tick, batches and GPUs: all take the address of a `LINE`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.engine.calls import Rows, integers_at
from microsim.engine.compiled import kernel
from microsim.engine.jitter import next_deviation
from microsim.engine.noise import uniforms
from microsim.engine.records import ADDRESS, Records, address_of, record, record_at, records_at, rows_of
from microsim.engine.timekeeper import Trigger

LARGEST_NORMAL = 8.3  # that `noise.normals` gives: its uniforms are 2**-53 or more
FIRST_ROOM = 16  # entries for which a line has room at first, where it can get more

QUEUE = record(  # of one world
    first=int,  # place of what leaves next
    count=int,  # of what is under way
    delayed_at=int,  # the tick after the one at which the last delay was drawn; 0: there was none
    deviation=float,  # of that delay from the mean, see `jitter`
)
ENTRY = record(leaves=int, sampled_at=int)  # [tick]
LINE = record(
    queues=ADDRESS,  # one for each world
    entries=ADDRESS,  # `capacity` for each world
    keys=ADDRESS,  # of each world's noise
    capacity=int,
    mean_ms=float,
    jitter_ms=float,
    drop_probability=float,
    hz=float,  # of ticks
)
COUNT = 1  # column of the queues as integers
ONLY: Rows = np.zeros(1, np.int64)  # the world of a single simulation

line_at, queues_at, entries_at = record_at(LINE), records_at(QUEUE), records_at(ENTRY)
_line_at, _queues_at, _entries_at = line_at, queues_at, entries_at
_integers_at = integers_at
ENTRY_BYTES = ENTRY.itemsize


@kernel
def delay_at(line: int, world: int, tick: int) -> int:
    """Of what is sampled at a tick, to the nearest tick; -1: it is lost."""
    own = _line_at(line)
    key = _integers_at(own.keys, world + 1)[world]
    if own.drop_probability > 0.0 and uniforms(key, tick, 1)[0] < own.drop_probability:
        return -1
    delay_ms = own.mean_ms
    if own.jitter_ms > 0.0:
        queue, elapsed = _queues_at(own.queues, world + 1)[world], math.inf
        if queue.delayed_at > 0:
            elapsed = float(tick + 1 - queue.delayed_at) * 1000.0 / (own.hz * own.jitter_ms)
        queue.deviation = next_deviation(key, tick, queue.deviation, elapsed)
        queue.delayed_at = tick + 1
        delay_ms += own.jitter_ms * queue.deviation
    return int(max(delay_ms, 0.0) * own.hz / 1000.0 + 0.5)


@kernel
def push(line: int, world: int, tick: int, delay: int) -> int:
    """The place of what is sampled at a tick and leaves after a delay; -1: the line is full, and stays as it is."""
    own = _line_at(line)
    queue = _queues_at(own.queues, world + 1)[world]
    if queue.count >= own.capacity:
        return -1
    entries = _entries_at(own.entries + ENTRY_BYTES * own.capacity * world, own.capacity)
    leaves = tick + delay
    if queue.count > 0:  # never before what is under way
        leaves = max(leaves, entries[(queue.first + queue.count - 1) % own.capacity].leaves)
    place = (queue.first + queue.count) % own.capacity
    entries[place].leaves, entries[place].sampled_at = leaves, tick
    queue.count += 1
    return place


@kernel
def next_leaving(line: int, world: int) -> int:
    """The tick at which something leaves next; -1: nothing is under way."""
    own = _line_at(line)
    queue = _queues_at(own.queues, world + 1)[world]
    if queue.count == 0:
        return -1
    return _entries_at(own.entries + ENTRY_BYTES * own.capacity * world, own.capacity)[queue.first].leaves


@kernel
def pop_due(line: int, world: int, tick: int) -> int:
    """The place of what leaves next, if that is not after a tick, which keeps its values until a push; -1: nothing."""
    own = _line_at(line)
    queue = _queues_at(own.queues, world + 1)[world]
    place = queue.first
    if queue.count == 0:
        return -1
    if _entries_at(own.entries + ENTRY_BYTES * own.capacity * world, own.capacity)[place].leaves > tick:
        return -1
    queue.first, queue.count = (place + 1) % own.capacity, queue.count - 1
    return place


@kernel
def sampled_at(line: int, world: int, place: int) -> int:
    """The tick at which an entry was sampled."""
    own = _line_at(line)
    return _entries_at(own.entries + ENTRY_BYTES * own.capacity * world, own.capacity)[place].sampled_at


@dataclass(frozen=True)
class Latency:
    """Publishing delay and loss of a pipeline."""

    mean_ms: float
    jitter_ms: float
    drop_probability: float
    physics_hz: float

    @property
    def longest(self) -> int:
        """No delay has more ticks."""
        longest_ms = max(self.mean_ms, 0.0) + LARGEST_NORMAL * max(self.jitter_ms, 0.0)
        return math.floor(longest_ms * self.physics_hz / 1000.0 + 0.5)


def most_under_way(latency: Latency, trigger: Trigger) -> int:
    """How many entries a world can have at once."""
    period, parts = trigger.period
    return (latency.longest + 1) * parts // period + 2


class DelayLine:
    """The line of one pipeline in n worlds. `kept`: name -> shape and type of what an entry has beside its times.

    `xp` is the library of its arrays, NumPy or CuPy; `table` brings rows into the memory where they are.
    """

    def __init__(
        self,
        latency: Latency,
        keys: Any,  # (n,) of the worlds' noise
        capacity: int = FIRST_ROOM,
        xp: Any = np,
        table: Callable[[Records], Any] = lambda rows: rows,
        **kept: tuple[tuple[int, ...], Any],
    ) -> None:
        n = len(keys)
        self.keys, self._latency, self._xp, self._table = keys, latency, xp, table
        self.queues: Rows = xp.zeros((n, QUEUE.itemsize // 8), np.int64)
        self.entries: Rows = xp.zeros((n, capacity, ENTRY_BYTES // 8), np.int64)
        self.kept: dict[str, Any] = {
            name: xp.zeros((n, capacity, *shape), kind) for name, (shape, kind) in kept.items()
        }
        self.row = self._make_row()
        self.address = address_of(self.row)

    def _make_row(self) -> Any:
        queues, entries, keys = map(address_of, (self.queues, self.entries, self.keys))
        latency = self._latency
        return self._table(
            rows_of(
                LINE, queues=queues, entries=entries, keys=keys, capacity=self.capacity, mean_ms=latency.mean_ms,
                jitter_ms=latency.jitter_ms, drop_probability=latency.drop_probability, hz=latency.physics_hz,
            )
        )  # fmt: skip

    @property
    def capacity(self) -> int:
        return int(self.entries.shape[1])

    def push(self, world: int, tick: int, delay: int) -> int:
        """As the kernel does; a full line gets more room."""
        place = push(self.address, world, tick, delay)
        if place < 0:
            self.make_room(2 * self.capacity)
            place = push(self.address, world, tick, delay)
        return place

    def make_room(self, capacity: int) -> None:
        """For that many entries in each world, at least. What is under way gets other places."""
        if capacity <= self.capacity:
            return
        worlds = self._xp.arange(len(self.queues))
        saved = self.save(worlds)

        def wider(array: Any) -> Any:
            return self._xp.zeros((len(array), capacity, *array.shape[2:]), array.dtype)

        self.entries, self.kept = wider(self.entries), {name: wider(array) for name, array in self.kept.items()}
        self.row[...] = self._make_row()
        self.load(worlds, saved)

    def clear(self, worlds: Any) -> None:
        """Nothing is under way, and nothing was before."""
        self.queues[worlds] = 0

    def save(self, worlds: Any) -> dict[str, Any]:
        """Copies of the queues of these worlds and of what is under way, from what leaves next on."""
        queues = self.queues[worlds]
        most = int(queues[0, COUNT]) if len(queues) == 1 else int(queues[:, COUNT].max(initial=0))
        first = queues[:, :1].copy()
        queues[:, 0] = 0  # another line may have less room
        if most == 0:
            return {"queues": queues}
        places = (first + self._xp.arange(most)) % self.capacity
        rows = self._xp.asarray(worlds)[:, None]
        found = {name: array[rows, places] for name, array in self.kept.items()}
        return {**found, "queues": queues, "entries": self.entries[rows, places]}

    def load(self, worlds: Any, saved: dict[str, Any]) -> None:
        """What `save` gave, here or in another line."""
        entries = saved.get("entries")
        if entries is not None:
            most = entries.shape[1]
            self.make_room(most)
            self.entries[worlds, :most] = entries
            for name in self.kept.keys() & saved.keys():
                self.kept[name][worlds, :most] = saved[name]
        self.queues[worlds] = saved["queues"]

    def count(self, world: int = 0) -> int:
        return int(self.queues[world, COUNT])

    def times(self, world: int = 0) -> list[tuple[int, int]]:
        """When each entry leaves, and when it was sampled, in their order."""
        found = self.save([world]).get("entries")
        return [] if found is None else [(int(leaves), int(at)) for leaves, at in found[0]]
